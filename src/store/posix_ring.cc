#include "store/posix_ring.h"

#include <algorithm>
#include <array>

#include "core/log.h"
#include "store/posix_direct.h"

namespace forebay::posix {

namespace {

constexpr uint64_t kMostTransfer = 64_MiB;
constexpr size_t kMostPieces = 256;

}  // namespace

// ---- Transfers ----

std::unique_ptr<RingTransfer> RingTransfer::make(Request& request, Completion& done,
                                                 DescriptorPtr file, uint64_t block,
                                                 BufferPool& staging) {
  if (request.file.empty() || !request.file.contiguous()) return nullptr;
  const Extent wanted = request.file.bounds();
  const uint64_t at = round_down(wanted.offset.value, block);
  const uint64_t end = round_up(wanted.end().value, block);
  if (end - at > kMostTransfer || end > kMaxOffset) return nullptr;
  const Extent range{Offset(at), Length(end - at)};
  const bool whole = range == wanted, write = request.op == Op::write;
  if (write && !whole) return nullptr;
  auto t = std::make_unique<RingTransfer>();
  if (!whole || !aligned_pieces(request.memory, block, kMostPieces, t->pieces)) {
    if (range.length.value > kStage || !(t->stage = staging.try_take())) return nullptr;
    const auto bytes = t->stage.bytes().first(range.length.value);
    if (write) copy_out(request.memory, bytes);
    t->pieces.assign(1, {bytes.data(), bytes.size()});
  }
  t->range = range;
  t->file = std::move(file);
  t->request = std::move(request);
  t->done = std::move(done);
  return t;
}

bool RingTransfer::succeeded(int result, uint64_t block, Reply& reply) const {
  if (result < 0) return false;
  const uint64_t got = range.offset.value + static_cast<uint64_t>(result);
  const Extent wanted = request.file.bounds();
  // Within a block a direct read stops at the end of file only.
  const bool at_end = request.op == Op::read && static_cast<uint64_t>(result) % block != 0;
  if (got < wanted.end().value && !at_end) return false;
  const uint64_t end = std::min(got, wanted.end().value);
  reply.count = end > wanted.offset.value ? end - wanted.offset.value : 0;
  if (request.op == Op::read && stage) {
    const uint64_t from = wanted.offset.value - range.offset.value;
    copy_in(stage.bytes().subspan(from, reply.count), request.memory);
  }
  return true;
}

// ---- The ring ----

Result<std::shared_ptr<Ring>> Ring::start(unsigned depth, Handler handler) {
  Result<std::unique_ptr<Uring>> ring = Uring::open(depth);
  if (!ring) return std::move(ring).error();
  return std::shared_ptr<Ring>(new Ring(std::move(*ring), depth, std::move(handler)));
}

Ring::Ring(std::unique_ptr<Uring> ring, unsigned depth, Handler handler)
    : ring_(std::move(ring)),
      depth_(depth),
      handler_(std::move(handler)),
      thread_([this] { work(); }) {}

Ring::~Ring() {
  stop();
  leave_ = true;
  {
    std::lock_guard lock(mutex_);
    while (!ring_->wake()) std::this_thread::yield();
  }
  thread_.join();
}

void Ring::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  while (const unsigned left = unhandled_.load()) unhandled_.wait(left);
}

bool Ring::try_submit(std::unique_ptr<RingTransfer>& transfer) {
  std::lock_guard lock(mutex_);
  if (stopped_ || under_way_.load() >= depth_) return false;
  ++under_way_;
  ++unhandled_;
  RingTransfer* const t = transfer.release();  // the kernel's, from before it knows
  const bool taken = ring_->submit({.write = t->request.op == Op::write,
                                    .fd = t->file->direct(),
                                    .at = t->range.offset,
                                    .pieces = t->pieces,
                                    .memory = registered(t->pieces),
                                    .tag = t});
  if (taken) return true;
  transfer.reset(t);
  --under_way_;
  --unhandled_;
  unhandled_.notify_all();
  return false;
}

void Ring::work() {
  std::array<Uring::Ended, 64> ended;
  while (!leave_) {
    const size_t n = ring_->wait(ended);
    const auto end = std::remove_if(ended.begin(), ended.begin() + static_cast<ptrdiff_t>(n),
                                    [](const Uring::Ended& e) { return e.tag == nullptr; });
    const auto transfers = static_cast<unsigned>(end - ended.begin());
    under_way_ -= transfers;  // before they are handled: there is room for what follows them
    for (auto e = ended.begin(); e != end; ++e)
      handler_(std::unique_ptr<RingTransfer>(static_cast<RingTransfer*>(e->tag)), e->result);
    if (transfers == 0) continue;
    unhandled_ -= transfers;
    unhandled_.notify_all();
  }
}

// ---- Registered memory ----

std::shared_ptr<const void> Ring::prepare(std::span<std::byte> memory, uint64_t piece) {
  auto prepared = std::make_unique<Prepared>();
  prepared->memory = memory;
  prepared->piece = piece;
  prepared->numbers.assign((memory.size() + piece - 1) / piece, kNotYet);
  const Prepared* const key = prepared.get();
  std::lock_guard lock(mutex_);
  prepared_.push_back(std::move(prepared));
  return std::shared_ptr<const void>(key, [ring = weak_from_this(), key](const void*) {
    if (const auto alive = ring.lock()) alive->forget(key);
  });
}

void Ring::forget(const Prepared* key) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(prepared_, key, &std::unique_ptr<Prepared>::get);
  for (const int number : key->numbers)
    if (number >= 0) ring_->remove_memory(number);
  prepared_.erase(found);
}

// The number of the registered memory that holds a transfer's only piece.
int Ring::registered(const std::vector<iovec>& pieces) {
  if (pieces.size() != 1) return Uring::kUnregistered;
  const auto* const at = static_cast<std::byte*>(pieces.front().iov_base);
  for (const auto& p : prepared_) {
    if (at < p->memory.data() || at >= p->memory.data() + p->memory.size()) continue;
    const auto from = static_cast<uint64_t>(at - p->memory.data());
    const size_t index = from / p->piece;
    if ((from + pieces.front().iov_len - 1) / p->piece != index) break;
    int& number = p->numbers[index];
    return number == kNotYet ? number = register_piece(*p, index) : number;
  }
  return Uring::kUnregistered;
}

int Ring::register_piece(Prepared& p, size_t index) {
  if (memory_refused_) return Uring::kUnregistered;
  const uint64_t from = index * p.piece;
  Result<int> number = ring_->add_memory(
      p.memory.subspan(from, std::min<uint64_t>(p.piece, p.memory.size() - from)));
  if (number) return *number;
  if (number.error().code() == ENOSPC) return Uring::kUnregistered;
  memory_refused_ = true;
  log::info("direct I/O goes on without registering more memory: {}", number.error().message());
  return Uring::kUnregistered;
}

}  // namespace forebay::posix
