#include "hostile.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/clock.h"
#include "transport/shared_bytes.h"

namespace forebay::fuzz {

using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 50ms;  // for an answer that may never come

// Numbers near to what is there, and far from anything.
uint64_t wild(uint8_t how, uint16_t a, uint64_t now) {
  switch (how % 6) {
    case 0:
      return a;
    case 1:
      return now + a;
    case 2:
      return now - a;
    case 3:
      return ~uint64_t(a);
    case 4:
      return uint64_t(1) << (a % 64);
    default:
      return now + (uint64_t(a) << 12);
  }
}

Fd memfd(uint64_t bytes, int seals) {
  Fd made(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FOREBAY_ASSERT(made && ::ftruncate(made.get(), static_cast<off_t>(bytes)) == 0);
  FOREBAY_ASSERT(::fcntl(made.get(), F_ADD_SEALS, seals) == 0);
  return made;
}

void scribble(std::span<std::byte> memory, const Operands& x) {
  if (memory.empty()) return;
  const size_t at = size_t(x.a) * 16 % memory.size();
  const size_t n = std::min<size_t>(x.b % 8192 + 1, memory.size() - at);
  for (size_t i = 0; i < n; ++i) memory[at + i] = static_cast<std::byte>(x.how * (i | 1));
}

}  // namespace

Scribbler::Scribbler(int memory, uint64_t size, uint64_t from) {
  auto pages = SharedPages::adopt(Fd(::dup(memory)), size).value();
  thread_ = std::jthread(
      [pages = std::move(pages), from](std::stop_token stop) { run(stop, *pages, from); });
}

void Scribbler::run(const std::stop_token& stop, const SharedPages& pages, uint64_t from) {
  std::mt19937_64 random(from);
  const std::span<std::byte> all = pages.bytes().subspan(from);
  while (!stop.stop_requested()) {
    for (int i = 0; i < 50 && !all.empty(); ++i) {
      const uint64_t at = random() % all.size(), n = 1 + random() % 64;
      std::memset(all.data() + at, static_cast<int>(random()), std::min(n, all.size() - at));
    }
    ::sched_yield();
  }
}

// ---- Coming and going ----

Hostile::Made Hostile::make_offer(OfferKind kind, uint8_t size) {
  constexpr uint64_t areas[] = {16 << 10, 4096, 64 << 10, 0};
  SharedRegion::Layout layout{SharedRegion::kMinRing << (size % 3), areas[size / 4 % 4]};
  if (kind <= OfferKind::alias) {
    if (kind == OfferKind::good) lent_ = SharedPages::create(64 << 10).value();
    region_ = SharedRegion::create(layout, lent_).value();
    if (kind == OfferKind::alias) {
      lent_ = SharedPages::adopt(Fd(::dup(region_->descriptor())), layout.bytes()).value();
      aliased_ = true;
    }
  }
  Made made;
  if (kind == OfferKind::too_large) layout.area = 2 * kHostileArea;
  made.offer.ring = kind == OfferKind::odd_ring ? layout.ring + 1 : layout.ring;
  made.offer.area = layout.area;
  made.offer.lent = lent_ ? lent_->bytes().size() : 0;
  const uint64_t bytes = layout.bytes() - (kind == OfferKind::other_size ? 4096 : 0);
  if (region_) {
    made.region = Fd(::dup(region_->descriptor()));
  } else if (kind == OfferKind::no_memfd) {
    made.region = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  } else {
    made.region = memfd(bytes, kind == OfferKind::unsealed ? 0 : F_SEAL_SHRINK);
  }
  if (lent_) made.lent = Fd(::dup(lent_->descriptor()));
  if (kind == OfferKind::other_lent) {
    made.lent = memfd(8192, F_SEAL_SHRINK);
    made.offer.lent = 8192 + 4096;
  }
  return made;
}

void Hostile::connect(OfferKind kind, uint8_t size) {
  hang_up();
  socket_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  FOREBAY_ASSERT(path_.size() < sizeof to.sun_path);
  std::memcpy(to.sun_path, path_.c_str(), path_.size());
  FOREBAY_ASSERT(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0,
                 "the server does not listen any more");
  if (kind == OfferKind::plain) return;
  const Made made = make_offer(kind, size);
  const size_t bytes = kind == OfferKind::half ? 1 + size % 31 : sizeof made.offer;
  const auto sent =
      shared::send_with(socket_.get(), &made.offer, bytes, {made.region.get(), made.lent.get()});
  FOREBAY_ASSERT(sent.has_value(), sent.error().message());
  hear_answer(kind);
}

void Hostile::hear_answer(OfferKind kind) {
  pollfd wait{socket_.get(), POLLIN, 0};
  ::poll(&wait, 1, 10000);
  const Result<OfferAnswer> answer = receive_answer(socket_.get());
  if (kind == OfferKind::half) return;
  FOREBAY_ASSERT(answer.has_value(), "no answer to an offer: " + answer.error().message());
  FOREBAY_ASSERT(answer->plain == (kind > OfferKind::plain),
                 "taken, or refused, against the rules");
  if (answer->plain) return;
  bell_ = Fd(::dup(answer->bell.get()));
  writer_.emplace(region_->to_server(), region_->ring_to_server());
  reader_.emplace(region_->to_client(), region_->ring_to_client());
  if (restless) begin_scribbling();
}

void Hostile::begin_scribbling() {
  const SharedRegion::Layout& layout = region_->layout();
  const uint64_t rings = layout.bytes() - layout.area;
  scribblers_.emplace_back(region_->descriptor(), layout.bytes(), reckless ? 0 : rings);
  if (lent_)
    scribblers_.emplace_back(lent_->descriptor(), lent_->bytes().size(), aliased_ ? rings : 0);
  sullied_ |= reckless;
}

void Hostile::hang_up() {
  scribblers_.clear();
  socket_.reset();
  bell_.reset();
  writer_.reset();
  reader_.reset();
  region_.reset();
  lent_.reset();
  in_.clear();
  pulls_.clear();
  given_.clear();
  for (Slot& slot : slots_) slot.busy = false;
  sullied_ = aliased_ = refused_ = deaf_ = welcomed_ = quiet = false;
}

template <class Pred>
void Hostile::listen_until(Pred&& pred) {
  const SteadyClock clock;
  for (const Time end = clock.now() + kPatience; !pred() && !deaf_ && clock.now() < end;) {
    listen();
    ::sched_yield();
  }
}

void Hostile::begin(OfferKind kind, uint8_t size, bool resume) {
  connect(kind, size);
  if (kind == OfferKind::half) return;
  hello(resume);
  listen_until([&] { return welcomed_ || refused_; });
  if (!welcomed_ || welcome_.resumed) return;
  slots_.assign(slots_.size(), {});
  create();
  listen_until([&] { return !handle_.empty() || refused_; });
}

// ---- Frames ----

// As much as fits, to the server that reads or does not.
void Hostile::send(const std::string& bytes) {
  if (!region_) return send_on_socket(bytes);
  if (!writer_) return;
  const iovec piece[] = {{const_cast<char*>(bytes.data()), bytes.size()}};
  writer_->put(piece);
  if (!quiet && writer_->must_ring()) ring_bell({});
}

void Hostile::send_payload(const std::string& head, size_t payload) {
  send(head + std::string(payload, 'p'));
}

void Hostile::hello(bool resume) {
  wire::Hello h;
  h.export_name = "x";
  h.program = "hostile";
  if (resume) {
    h.session = welcome_.session;
    h.session_key = welcome_.session_key;
  }
  send(wire::encode(h));
}

Request Hostile::request(Op op) const {
  Request r;
  r.op = op;
  r.handle = handle_;
  r.right = right_;
  return r;
}

// A slot that is free, if there is one and the program does not insist.
uint16_t Hostile::pick_slot(uint8_t how) const {
  if (how & 32) return how % (kHostileSlots + 1);
  const auto idle = [](const Slot& s) { return !s.busy; };
  const auto found = std::find_if(slots_.begin(), slots_.begin() + kHostileSlots, idle);
  return static_cast<uint16_t>(found - slots_.begin()) % kHostileSlots;
}

wire::RequestId Hostile::next_id(uint8_t how) {
  const uint16_t slot = pick_slot(how);
  const bool again = (how & 48) == 48;
  slots_[slot].sequence += !again;
  slots_[slot].busy = true;
  return {slot, slots_[slot].sequence};
}

void Hostile::create(const std::string& name, Access access) {
  wire::RequestMessage m;
  m.id = next_id(0);
  m.request.op = Op::create;
  m.request.handle = welcome_.root;
  m.request.name = name;
  m.request.access = access;
  m.request.mode = 0600;
  handle_ = {};
  right_ = {};
  send(wire::encode(m));
}

uint64_t Hostile::pick_place(uint8_t how, uint16_t a, uint64_t length) const {
  const uint64_t size = lent_ ? lent_->bytes().size() : 0;
  switch (how % 8) {
    case 1:
    case 2:
      return length <= size ? uint64_t(a) * 64 % (size - length + 1) : 0;
    case 3:
      return size - length;
    case 4:
      return size - length + 1;
    case 5:
      return wild(how, a, size);
    default:
      return wire::kNoArea;
  }
}

void Hostile::transfer(Op op, const Operands& x) {
  wire::RequestMessage m;
  m.request = request(op);
  const uint64_t length = x.how & 128 ? uint64_t(x.b) << 16 : x.b;
  m.request.file = Extents(Extent{Offset(uint64_t(x.a) * 8), Length(length)});
  m.total = length;
  m.place = pick_place(x.how, x.a, length);
  sullied_ |= aliased_ && m.place != wire::kNoArea;
  m.eager = op == Op::write && m.place == wire::kNoArea && length <= kHostileEager && !(x.how & 64);
  m.id = next_id(x.how);
  const auto payload = static_cast<uint32_t>(m.eager ? length : 0);
  send_payload(wire::encode(m, payload), payload);
}

// A list that is pulled, of blocks that lie apart.
void Hostile::list(Op op, const Operands& x) {
  wire::RequestMessage m;
  m.request = request(op);
  m.list_blocks = 1 + x.b % 2048;
  const uint64_t each = 1 + x.a % 64;
  m.list_bounds = {Offset(0), Length(m.list_blocks * 128)};
  m.total = m.list_blocks * each;
  m.place = pick_place(x.how, x.a, m.total);
  sullied_ |= aliased_ && m.place != wire::kNoArea;
  m.id = next_id(x.how);
  send(wire::encode(m));
}

void Hostile::settle_file(Op op, const Operands& x) {
  wire::RequestMessage m;
  m.request = request(op);
  m.id = next_id(x.how);
  send(wire::encode(m));
}

void Hostile::answer_pull(const Operands& x) {
  if (pulls_.empty()) return;
  const bool last_first = x.how % 16 == 8;
  wire::Pull pull = last_first ? pulls_.back() : pulls_.front();
  if (x.how % 16 != 9) last_first ? pulls_.pop_back() : pulls_.pop_front();
  wire::Data data{pull.id, pull.part, pull.position, pull.area, 0};
  uint32_t payload = pull.length;
  const bool in_area = pull.area != wire::kNoArea && region_;
  if (in_area) {
    if (pull.area < region_->area().size()) scribble(region_->area().subspan(pull.area), x);
    data.length = std::exchange(payload, 0);
  }
  std::string bytes(payload, '\0');
  if (pull.part == wire::Part::list) {
    for (size_t at = 0; at + wire::kBlockBytes <= bytes.size(); at += wire::kBlockBytes) {
      const Extent block{Offset((pull.position + at) / wire::kBlockBytes * 128),
                         Length(1 + x.a % 64)};
      wire::encode_blocks({&block, 1},
                          std::as_writable_bytes(std::span(bytes).subspan(at, wire::kBlockBytes)));
    }
  }
  switch (x.how % 16) {
    case 1:
      data.area = wild(x.how / 16, x.a, data.area);
      break;
    case 2:
      data.length = static_cast<uint32_t>(wild(x.how / 16, x.a, data.length));
      break;
    case 3:
      data.position = wild(x.how / 16, x.a, data.position);
      break;
    case 4:
      data.id.sequence += x.a;
      break;
    case 5:  // as bytes behind the message, whatever was asked
      data.area = wire::kNoArea;
      bytes.resize(std::exchange(data.length, 0));
      break;
    case 6:
      return;  // never
    case 7:
      bytes.resize(bytes.size() / 2);  // and the rest never
      break;
    default:
      break;
  }
  send(wire::encode(data, payload) + bytes);
}

void Hostile::take_data(const Operands& x) {
  uint64_t place = given_.empty() ? x.a : given_.front();
  if (x.how % 8 == 4 && !given_.empty()) place = given_.back();
  if (x.how % 8 == 1) place = wild(x.how / 8, x.a, place);
  if (x.how % 8 != 2 && !given_.empty()) {
    const auto found = std::find(given_.begin(), given_.end(), place);
    if (found != given_.end()) given_.erase(found);
  }
  if (x.how % 8 == 3) return;  // never
  send(wire::encode(wire::Taken{place}));
}

void Hostile::cancel(const Operands& x) {
  const uint16_t slot = x.how % (kHostileSlots + 1);
  send(wire::encode(wire::Cancel{{slot, slots_[slot].sequence + x.a % 2}}));
}

void Hostile::shortcut(const Operands& x) {
  if (x.how % 8 < 3) {
    wire::RequestMessage m;
    m.request = request(Op::shortcut);
    if (x.how & 64) m.request.flags = kFlagShared;
    m.id = next_id(x.how & 63);
    return send(wire::encode(m));
  }
  if (!region_) return;
  ShortcutWord& word = region_->shortcut(x.a % (x.how & 128 ? kShortcuts : 4));
  const uint32_t generation = 1 + x.b % 8;
  switch (x.how % 8) {
    case 3:
    case 4:
      word.enter(generation);
      return;
    case 5:
      return word.leave();
    case 6:
      return word.move_on();
    default:
      scribble(std::as_writable_bytes(std::span(&word, 1)), {x.how, uint16_t(x.a & 3), x.b});
  }
}

// A write in a box, with whatever is wrong about it.
void Hostile::box(const Operands& x) {
  if (!region_ || !writer_) return;
  const wire::RequestId id = next_id(x.how);
  BoxRequest& box = region_->box(id.slot).request;
  const std::string names = handle_.bytes + right_.bytes;
  box = {id.sequence,
         uint64_t(x.a) * 8,
         static_cast<uint16_t>(1 + x.b % kHostileEager),
         static_cast<uint16_t>(x.b / kHostileEager % 2),
         static_cast<uint16_t>(handle_.bytes.size()),
         static_cast<uint16_t>(right_.bytes.size()),
         {}};
  std::memcpy(box.names, names.data(), std::min(names.size(), kBoxNames));
  switch (x.how % 16) {
    case 1:
      box.offset = wild(x.how / 16, x.a, box.offset);
      break;
    case 2:
      box.length = static_cast<uint16_t>(wild(x.how / 16, x.a, box.length));
      break;
    case 3:
      box.handle_size = static_cast<uint16_t>(wild(x.how / 16, x.a, box.handle_size));
      break;
    case 4:
      box.right_size = static_cast<uint16_t>(wild(x.how / 16, x.a, box.right_size));
      break;
    case 5:
      box.sequence = wild(x.how / 16, x.a, box.sequence);
      break;
    case 6:
      scribble(std::as_writable_bytes(std::span(&box, 1)), x);
      break;
    default:
      break;
  }
  writer_->post(x.how % 16 == 7 ? wild(x.how / 16, x.a, x.b) : uint64_t(1) << id.slot);
  if (!quiet && writer_->must_ring()) ring_bell({});
}

// ---- Against the rules ----

void Hostile::set_word(const Operands& x) {
  if (!region_) return;
  const bool mine = x.how & 1;
  RingState& ring = mine ? region_->to_client() : region_->to_server();
  const auto set = [&](auto& word) {
    using Word = decltype(word.load());
    word.store(static_cast<Word>(wild(x.how >> 3, x.a, word.load())));
  };
  switch (x.how >> 1 & 3) {
    case 0:
      set(ring.written);
      break;
    case 1:
      set(ring.taken);
      break;
    case 2:
      set(ring.writer_rests);
      break;
    default:
      set(ring.reader_rests);
  }
  sullied_ |= mine;
}

void Hostile::scribble_ring(const Operands& x) {
  if (!region_) return;
  scribble(x.how & 1 ? region_->ring_to_client() : region_->ring_to_server(), x);
  sullied_ |= x.how & 1;
}

void Hostile::scribble_area(const Operands& x) {
  if (region_) scribble(region_->area(), x);
}

void Hostile::scribble_lent(const Operands& x) {
  if (lent_) scribble(lent_->bytes(), x);
  sullied_ |= aliased_;
}

void Hostile::punch(const Operands& x) {
  if (!region_) return;
  const auto& memory = x.how & 1 && lent_ ? lent_->descriptor() : region_->descriptor();
  ::fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(x.a) * 16, off_t(x.b) + 1);
  sullied_ = true;
}

void Hostile::truncate(const Operands& x) {
  if (!region_) return;
  for (const int memory : {region_->descriptor(), lent_ ? lent_->descriptor() : -1}) {
    const off_t size = off_t(x.a) * (x.how % 16);
    FOREBAY_ASSERT(memory < 0 || ::ftruncate(memory, size) != 0, "a sealed size changed");
  }
}

void Hostile::ring_bell(const Operands& x) {
  if (!bell_) return;
  const uint64_t n = x.how & 1 ? UINT64_MAX - 1 : 1;
  [[maybe_unused]] const ssize_t done = ::write(bell_.get(), &n, sizeof n);
  uint64_t emptied;
  if (x.how & 2) [[maybe_unused]]
    const ssize_t got = ::read(bell_.get(), &emptied, sizeof emptied);
}

void Hostile::send_on_socket(const std::string& bytes) {
  if (!socket_) return;
  [[maybe_unused]] const ssize_t n =
      ::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// ---- Listening ----

void Hostile::listen() {
  char bytes[16 << 10];
  for (;;) {
    ssize_t n = -1;
    if (reader_) {
      const iovec piece[] = {{bytes, sizeof bytes}};
      n = reader_->take(piece);
      if (n > 0 && reader_->must_ring() && !quiet) ring_bell({});
    } else if (socket_) {
      n = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      deaf_ |= n == 0;
    }
    if (n <= 0) break;
    in_.append(bytes, static_cast<size_t>(n));
  }
  if (reader_) hear_posts(reader_->take_posts());
  while (!deaf_ && take_frame()) {
  }
}

void Hostile::hear_posts(uint64_t bits) {
  FOREBAY_ASSERT(sullied_ || bits >> kHostileSlots == 0, "a box that there is not");
  for (size_t i = 0; i < kHostileSlots; ++i) {
    if (bits >> i & 1) slots_[i].busy = false;
  }
}

bool Hostile::take_frame() {
  const auto bytes = std::as_bytes(std::span(in_));
  if (bytes.size() < wire::kHeaderSize) return false;
  const auto header = wire::decode_header(bytes.first<wire::kHeaderSize>());
  FOREBAY_ASSERT(header || sullied_, "the server sent what is no frame");
  if (!header) return deaf_ = true, false;
  const size_t size = wire::kHeaderSize + header->message_size + header->payload_size;
  if (bytes.size() < size) return false;
  hear(*header, bytes.subspan(wire::kHeaderSize, header->message_size));
  in_.erase(0, size);
  return true;
}

void Hostile::hear(const wire::FrameHeader& header, wire::Bytes message) {
  const auto good = [&](auto&& decoded) {
    FOREBAY_ASSERT(decoded.has_value() || sullied_, "the server sent what does not decode");
    return decoded.has_value();
  };
  if (header.type == wire::FrameType::welcome) {
    if (auto w = wire::decode_welcome(message); good(w)) welcome_ = std::move(*w), welcomed_ = true;
  } else if (header.type == wire::FrameType::reply) {
    if (auto r = wire::decode_reply(message); good(r)) hear_reply(*r);
  } else if (header.type == wire::FrameType::pull) {
    auto pull = wire::decode_pull(message);
    if (!good(pull)) return;
    const uint64_t area = region_ ? region_->area().size() : 0;
    FOREBAY_ASSERT(sullied_ || pull->area == wire::kNoArea ||
                   (pull->length <= kHostileChunk && pull->area + pull->length <= area));
    pull->length = std::min(pull->length, kHostileChunk);
    pulls_.push_back(*pull);
  } else if (header.type == wire::FrameType::data) {
    auto data = wire::decode_data(message);
    if (good(data) && data->area != wire::kNoArea) given_.push_back(data->area);
  } else if (header.type == wire::FrameType::refused) {
    refused_ = true;
  } else {
    FOREBAY_ASSERT(sullied_ || header.type == wire::FrameType::goodbye,
                   "a frame that no server sends");
  }
}

void Hostile::hear_reply(const wire::ReplyMessage& reply) {
  if (reply.id.slot < slots_.size()) slots_[reply.id.slot].busy = false;
  if (!reply.result || sullied_) return;
  if (!reply.result->handle.empty()) handle_ = reply.result->handle;
  if (!reply.result->right.empty()) right_ = reply.result->right;
  files_lent_ += !reply.result->data.empty();  // its path
}

}  // namespace forebay::fuzz
