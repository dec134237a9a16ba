#include "shared_world.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

#include "store/fault.h"
#include "store/posix.h"

namespace forebay::fuzz {

using namespace std::chrono_literals;

namespace {

constexpr const char* kBeside = "honest-one-beside-it";
constexpr const char* kAfter = "honest-one-afterwards";
constexpr uint64_t kHonestFile = 20_KiB;
constexpr auto kStoreTime = 1ms;
constexpr auto kLongest = 10s;  // after which something hangs

// ---- The process ----

// What a process holds of shared memory and sockets.
struct Held {
  size_t descriptors = 0, mappings = 0;
  bool operator==(const Held&) const = default;
};

Held held_now() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  Held held{static_cast<size_t>(std::distance(begin(fds), end(fds))), 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    held.mappings += line.find("/memfd:") != std::string::npos;
  }
  return held;
}

}  // namespace

// ---- Honest ----

Honest::Honest(const Address& server, const std::string& name) : content_(kHonestFile, '\0') {
  RemoteOptions options;
  options.address = [server]() -> Result<Address> { return server; };
  options.export_name = "x";
  RemoteRuntime runtime;
  runtime.make_loop = [] { return std::make_unique<EpollLoop>(); };
  runtime.make_transport = [](Loop&) {
    return std::make_unique<SocketTransport>(SocketOptions{.shared_area = kHostileArea});
  };
  runtime.lent = kHostileArea;
  store_ = RemoteStore::connect(std::move(options), std::move(runtime)).value();
  Request create;
  create.op = Op::create;
  create.caller = caller_;
  create.handle = store_->root().value();
  create.name = name;
  create.mode = 0600;
  create.access = Access::both;
  const Reply made = store_->call(std::move(create)).value();
  handle_ = made.handle;
  right_ = made.right;
  submit(Op::write, 0, std::make_shared<std::string>(content_), false);
}

Honest::~Honest() {
  settle();
}

void Honest::submit(Op op, uint64_t at, std::shared_ptr<std::string> bytes, bool lent) {
  Request r;
  r.op = op;
  r.caller = caller_;
  r.handle = handle_;
  r.right = right_;
  r.file = Extents(Extent{Offset(at), Length(bytes->size())});
  std::byte* const memory = lent ? store_->allocate(bytes->size()) : nullptr;
  if (memory) std::memcpy(memory, bytes->data(), bytes->size());
  r.memory = memory ? Memory::of(std::span(memory, bytes->size()))
                    : Memory::of(std::as_writable_bytes(std::span(*bytes)));
  std::unique_lock lock(mutex_);
  ++under_way_;
  lock.unlock();
  store_->submit(std::move(r), [this, bytes, memory](Result<Reply>&& result) {
    FOREBAY_ASSERT(result.has_value(), "an honest client: " + result.error().message());
    FOREBAY_ASSERT(result->count == bytes->size(), "an honest client: a short transfer");
    if (memory) {
      std::memcpy(bytes->data(), memory, bytes->size());
      store_->deallocate(memory);
    }
    std::lock_guard held(mutex_);
    --under_way_;
    changed_.notify_one();
  });
}

void Honest::settle() {
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, kLongest, [&] { return under_way_ == 0; });
  FOREBAY_ASSERT(done, "an honest client is not answered");
}

void Honest::begin_write(const Operands& x) {
  const uint64_t at = x.a % kHonestFile;
  const uint64_t length = std::min<uint64_t>(1 + x.b % (10 << 10), kHonestFile - at);
  auto bytes = std::make_shared<std::string>(length, '\0');
  for (size_t i = 0; i < length; ++i) (*bytes)[i] = static_cast<char>(x.how + i * 7);
  content_.replace(at, length, *bytes);
  submit(Op::write, at, std::move(bytes), x.how & 1);
}

void Honest::verify() {
  for (const bool lent : {false, true}) {
    const auto bytes = std::make_shared<std::string>(kHonestFile, '?');
    submit(Op::read, 0, bytes, lent);
    settle();
    FOREBAY_ASSERT(*bytes == content_, "an honest client's file is not what it wrote");
  }
}

void Honest::round_trip() {
  begin_write({uint8_t(content_[0] + 2), 0, 9000});
  begin_write({uint8_t(content_[0] + 3), 100, 200});
  verify();
}

// ---- The server ----

SharedWorld::SharedWorld(unsigned mode) : mode_(mode) {
  ServerOptions options;
  options.boot = 1;
  options.slots = kHostileSlots;
  options.eager_max = kHostileEager;
  options.eager_session = 4 * kHostileEager;
  options.grace = 1ms;
  options.stall = 3s;  // for whoever does not let go of a file
  server_ = std::make_unique<Server>(options, loop_, std::vector<Loop*>{&loop_}, counters_);
  ExportOptions exported;
  exported.name = "x";
  exported.pool = 32 * kHostileChunk;
  exported.chunk = kHostileChunk;
  exported.in_flight = 2;
  exported.pipeline = static_cast<Pipeline>(mode / 64 % 3);
  server_->add_export(exported, make_store()).value();
  listener_ =
      transport_.listen(address_, loop_, [this](auto c) { server_->accept(std::move(c)); }).value();
  thread_ = std::make_unique<LoopThread>(loop_, "server");
  beside_ = std::make_unique<Honest>(address_, kBeside);
  after_ = std::make_unique<Honest>(address_, kAfter);
}

std::unique_ptr<Store> SharedWorld::make_store() {
  if (mode_ & kPosix) {
    PosixOptions options;
    options.directory = directory_ / "x";
    options.threads = 1;
    options.direct = mode_ & kSlow;
    std::filesystem::create_directory(options.directory);
    return PosixStore::open(options, counters_).value();
  }
  MemoryOptions options;
  options.limit = 4_MiB;
  auto memory = std::make_unique<MemoryStore>(options);
  memory_ = memory.get();
  if (!(mode_ & kSlow)) return memory;
  auto slow = std::make_unique<FaultStore>(std::move(memory), 1, [this](Duration d, Task task) {
    loop_.post([this, d, task = std::move(task)]() mutable { loop_.after(d, std::move(task)); });
  });
  for (const Op op : {Op::read, Op::write}) {
    slow->add(
        {.op = op, .probability = 0.3, .action = FaultRule::Action::delay, .delay = kStoreTime});
  }
  return slow;
}

// Runs fn on the server's loop, and waits.
template <class Fn>
void SharedWorld::on_loop(Fn&& fn) {
  std::binary_semaphore done(0);
  loop_.post([&] {
    fn();
    done.release();
  });
  FOREBAY_ASSERT(done.try_acquire_for(kLongest), "the server's loop does not turn any more");
}

SharedWorld::~SharedWorld() {
  std::binary_semaphore stopped(0);
  on_loop([&] {
    listener_.reset();
    server_->stop(kLongest, [&] { stopped.release(); });
  });
  FOREBAY_ASSERT(stopped.try_acquire_for(kLongest), "the server does not stop");
  on_loop([&] { server_.reset(); });
  thread_->stop();
}

// ---- A program ----

void SharedWorld::play(std::span<const std::byte> steps) {
  for (size_t n = 0; n < kMaxSteps && !steps.empty(); ++n) {
    unsigned char bytes[kStepSize] = {};
    const size_t size = std::min(steps.size(), kStepSize);
    std::memcpy(bytes, steps.data(), size);
    steps = steps.subspan(size);
    const Operands x{bytes[1], uint16_t(bytes[2] | bytes[3] << 8),
                     uint16_t(bytes[4] | bytes[5] << 8)};
    step(static_cast<Step>(bytes[0] % static_cast<uint8_t>(Step::count)), x, steps);
    if (!(mode_ & kRush)) settle(), hostile_.listen();
    if (hostile_.refused() && !(mode_ & kStubborn)) hostile_.begin(OfferKind::good, x.how, x.a % 2);
  }
}

void SharedWorld::step(Step what, const Operands& x, std::span<const std::byte>& rest) {
  if (hostile_step(what, x)) return;
  switch (what) {
    case Step::settle:
      return settle();
    case Step::wait:
      if (waits_++ < kMaxWaits) std::this_thread::sleep_for(kStoreTime + 1ms);
      return;
    case Step::honest:
      return beside_->begin_write(x);
    case Step::connect:
      return hostile_.begin(kind_of(x.how), static_cast<uint8_t>(x.a), x.b % 2);
    default: {  // bytes
      const size_t size = std::min<size_t>(x.a % 512, rest.size());
      const std::string bytes(reinterpret_cast<const char*>(rest.data()), size);
      rest = rest.subspan(size);
      what == Step::raw ? hostile_.send(bytes) : hostile_.send_on_socket(bytes);
    }
  }
}

bool SharedWorld::hostile_step(Step what, const Operands& x) {
  switch (what) {
    case Step::write:
      return hostile_.transfer(Op::write, x), true;
    case Step::read:
      return hostile_.transfer(Op::read, x), true;
    case Step::write_list:
      return hostile_.list(Op::write, x), true;
    case Step::read_list:
      return hostile_.list(Op::read, x), true;
    case Step::commit:
      return hostile_.settle_file(Op::commit, x), true;
    case Step::close:
      return hostile_.settle_file(Op::close, x), true;
    case Step::answer:
      return hostile_.answer_pull(x), true;
    case Step::take:
      return hostile_.take_data(x), true;
    case Step::cancel:
      return hostile_.cancel(x), true;
    case Step::listen:
      return hostile_.listen(), true;
    case Step::set_word:
      return hostile_.set_word(x), true;
    case Step::scribble_ring:
      return hostile_.scribble_ring(x), true;
    case Step::scribble_area:
      return hostile_.scribble_area(x), true;
    case Step::scribble_lent:
      return hostile_.scribble_lent(x), true;
    case Step::box:
      return hostile_.box(x), true;
    case Step::bell:
      return hostile_.ring_bell(x), true;
    case Step::punch:
      return hostile_.punch(x), true;
    case Step::truncate:
      return hostile_.truncate(x), true;
    case Step::quiet:
      return hostile_.quiet = x.how & 1, true;
    case Step::hello:
      return hostile_.hello(x.how & 1), true;
    case Step::create:
      return hostile_.create(), true;
    case Step::open_honest:
      return hostile_.create(x.how % 2 ? kBeside : kAfter, Access::read), true;
    case Step::shortcut:
      return hostile_.shortcut(x), true;
    case Step::goodbye:
      return hostile_.goodbye(), true;
    case Step::hang_up:
      return hostile_.hang_up(), true;
    default:
      return false;
  }
}

// Two turns: what the first begins ends in the second, unless it waits for somebody.
void SharedWorld::settle() {
  for (int turn = 0; turn < 2; ++turn) on_loop([] {});
}

// ---- The end ----

void SharedWorld::end() {
  after_->round_trip();  // while the hostile one is still there
  hostile_.hang_up();
  after_->round_trip();
  beside_->verify();
  after_.reset();
  beside_.reset();
  wait_until_empty();
}

void SharedWorld::wait_until_empty() {
  std::string status;
  const auto empty = [&] {
    on_loop([&] { status = server_->status(); });
    for (const char* rest : {R"("sessions": [])", R"("flights": 0)", R"("in_use": 0)",
                             R"("used": 0)", R"("reservations": 0)"}) {
      if (status.find(rest) == std::string::npos) return false;
    }
    return !memory_ || memory_->open_rights() == 0;
  };
  const SteadyClock clock;
  for (const Time late = clock.now() + kLongest; !empty();) {
    FOREBAY_ASSERT(clock.now() < late, "the server does not let go: " + status);
    std::this_thread::sleep_for(500us);
  }
}

void play_shared(std::span<const std::byte> program) {
  if (program.size() < 2) return;
  const Held before = held_now();
  {
    const auto mode = std::to_integer<uint8_t>(program[0]);
    const auto offer = std::to_integer<uint8_t>(program[1]);
    SharedWorld world(mode);
    world.hostile().restless = mode & kRestless;
    world.hostile().reckless = mode & kStubborn;
    if (!(mode & kUnannounced)) {
      world.begin(offer);
    } else {
      world.hostile().connect(OfferKind::good, offer);
    }
    world.play(program.subspan(2));
    world.end();
  }
  // What is no memory is closed on threads of its own.
  for (int i = 0; held_now() != before; ++i) {
    FOREBAY_ASSERT(i < 1000, "descriptors or mappings are left over");
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace forebay::fuzz
