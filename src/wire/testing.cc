#include "wire/testing.h"

#include <algorithm>
#include <tuple>

#include "wire/small_write.h"

namespace forebay::wire {
namespace {

auto fields_of(const Request& r) {
  return std::tie(r.op, r.flags, r.handle, r.handle2, r.name, r.name2, r.right, r.access, r.mode,
                  r.set, r.offset, r.length, r.cookie, r.data, r.file);
}

auto fields_of(const Reply& r) {
  return std::tie(r.count, r.handle, r.right, r.attr, r.data, r.entries, r.end, r.statfs, r.layout,
                  r.verifier, r.locked);
}

bool same_caller(const CallerRef& a, const CallerRef& b) {
  return a && b ? *a == *b : !a && !b;
}

template <class T, class Same>
bool same_result(const Result<T>& a, const Result<T>& b, Same same_value) {
  if (a.has_value() != b.has_value()) return false;
  return a ? same_value(*a, *b) : a.error() == b.error();
}

template <class T, class Decode, class Encode, class Same>
bool back_and_forth(const Result<T>& first, Decode decode, Encode encode_again, Same same_value) {
  if (!first) {
    FOREBAY_ASSERT(first.error().code() == EPROTO, first.error().message());
    return false;
  }
  const std::string head = encode_again(*first);
  const Result<T> second = decode(message_of(head));
  FOREBAY_ASSERT(second, second ? "" : second.error().message());
  FOREBAY_ASSERT(same_value(*first, *second), "a message changed when encoded again");
  return true;
}

const auto kEqual = [](const auto& a, const auto& b) { return a == b; };
const auto kSame = [](const auto& a, const auto& b) { return same(a, b); };
const auto kEncode = [](const auto& m) { return encode(m); };

}  // namespace

bool same(const RequestMessage& a, const RequestMessage& b) {
  return std::tie(a.id, a.total, a.eager, a.list_blocks, a.list_loops, a.list_bounds, a.bad) ==
             std::tie(b.id, b.total, b.eager, b.list_blocks, b.list_loops, b.list_bounds, b.bad) &&
         fields_of(a.request) == fields_of(b.request) &&
         same_caller(a.request.caller, b.request.caller);
}

bool same(const ReplyMessage& a, const ReplyMessage& b) {
  return a.id == b.id && same_result(a.result, b.result, [](const Reply& x, const Reply& y) {
           return fields_of(x) == fields_of(y);
         });
}

bool same(const ControlReply& a, const ControlReply& b) {
  return same_result(a.json, b.json, kEqual);
}

std::string RandomMessages::bytes(size_t limit) {
  const size_t most = below(20) == 0 ? limit : std::min<size_t>(limit, 40);
  std::string text(below(8) == 0 ? most : below(most + 1), '\0');
  for (char& c : text) c = static_cast<char>(random_());
  return text;
}

Hello RandomMessages::hello() {
  Hello m;
  m.version_min = static_cast<uint16_t>(random_());
  m.version_max = static_cast<uint16_t>(random_());
  m.purpose = chance() ? Hello::Purpose::data : Hello::Purpose::control;
  m.export_name = bytes(kMaxLabel);
  m.session = chance() ? random_() : 0;
  m.session_key = bytes(kMaxKey);
  m.auth_method = bytes(kMaxLabel);
  m.auth = bytes(kMaxAuth);
  m.host = bytes(kMaxLabel);
  m.program = bytes(kMaxLabel);
  m.job = bytes(kMaxLabel);
  m.pid = static_cast<uint32_t>(random_());
  m.chunk = chance() ? static_cast<uint32_t>(random_()) : 0;
  if (chance()) return m;
  m.relay = bytes(kMaxLabel);
  m.home = bytes(kMaxLabel);
  m.servers = bytes(kMaxServers);
  m.root.bytes = bytes(kMaxHandle);
  return m;
}

Welcome RandomMessages::welcome() {
  Welcome m;
  m.boot = random_();
  m.session = random_();
  m.session_key = bytes(kMaxKey);
  m.resumed = chance();
  m.root.bytes = bytes(kMaxHandle);
  m.slots = static_cast<uint16_t>(1 + below(65535));
  m.eager_bytes = static_cast<uint32_t>(random_());
  m.eager_max = static_cast<uint32_t>(below(kMaxPayload + 1));
  m.chunk = static_cast<uint32_t>(below(kMaxPayload + 1));
  m.max_list_bytes = random_();
  m.grace_ms = static_cast<uint32_t>(random_());
  return m;
}

Error RandomMessages::error() {
  Error e = Error(static_cast<int>(1 + below(kMaxErrorCode)), bytes(kMaxText));
  if (chance()) e = std::move(e).with_done(below(kMaxOffset));
  return chance() ? std::move(e).with_unknown_outcome() : e;
}

Extents RandomMessages::extents(size_t max_blocks) {
  std::vector<Extent> blocks(below(10) == 0 ? max_blocks : below(5));
  for (Extent& e : blocks) e = {Offset(1_GiB + below(1_GiB)), Length(below(1_MiB))};
  std::vector<Stride> loops(below(4));
  for (Stride& s : loops)
    s = {1 + below(100), static_cast<int64_t>(below(2_MiB)) - static_cast<int64_t>(1_MiB)};
  return *Extents::make(std::move(blocks), std::move(loops));
}

// The file side of a read or write, in the request or to be pulled.
void RandomMessages::list(RequestMessage& m) {
  if (chance()) {
    m.request.file = extents(kMaxInlineBlocks);
    m.total = m.request.file.total().value;
    return;
  }
  m.list_blocks = 1 + below(kMaxOffset / kBlockBytes);
  m.list_loops.resize(below(kMaxLoops + 1));
  for (Stride& s : m.list_loops) s = {random_(), static_cast<int64_t>(random_())};
  m.list_bounds = {Offset(below(kMaxOffset / 2)), Length(below(kMaxOffset / 2))};
  m.total = below(kMaxOffset);
}

RequestMessage RandomMessages::request() {
  RequestMessage m;
  m.id = id();
  Request& r = m.request;
  r.op = static_cast<Op>(below(kOpCount));
  r.flags = chance() ? static_cast<uint32_t>(random_()) : 0;
  r.handle.bytes = bytes(kMaxHandle);
  r.handle2.bytes = chance() ? bytes(kMaxHandle) : "";
  r.name = bytes(kMaxPath);
  r.name2 = chance() ? bytes(kMaxPath) : "";
  r.right.bytes = bytes(kMaxRight);
  r.access = static_cast<Access>(below(4));
  r.mode = chance() ? static_cast<uint32_t>(random_()) : 0;
  if (chance()) r.set = {static_cast<uint32_t>(random_()), 1, 2, 3, time(), time()};
  r.offset = Offset(chance() ? below(kMaxOffset) : 0);
  r.length = Length(chance() ? below(kMaxOffset) : 0);
  r.cookie = chance() ? random_() : 0;
  r.data = bytes(kMaxXattr);
  if (r.op == Op::read || r.op == Op::write) list(m);
  m.eager = r.op == Op::write && chance();
  if (chance()) {
    Caller caller{
        static_cast<uint32_t>(random_()), static_cast<uint32_t>(random_()), {}, bytes(kMaxLabel)};
    caller.groups.resize(below(50) == 0 ? kMaxGroups : below(20));
    for (uint32_t& g : caller.groups) g = static_cast<uint32_t>(random_());
    r.caller = std::make_shared<const Caller>(std::move(caller));
  }
  return m;
}

Attr RandomMessages::attr() {
  Attr a;
  a.type = file_type();
  a.mode = static_cast<uint32_t>(random_());
  a.uid = static_cast<uint32_t>(random_());
  a.gid = static_cast<uint32_t>(random_());
  a.links = random_();
  a.size = random_();
  a.allocated = random_();
  a.file_id = random_();
  a.fs_id = random_();
  a.rdev = random_();
  a.block_size = static_cast<uint32_t>(random_());
  a.atime = time();
  a.mtime = time();
  a.ctime = time();
  a.btime = time();
  return a;
}

Entry RandomMessages::entry() {
  Entry e;
  e.name = bytes(kMaxName);
  e.cookie = random_();
  e.file_id = random_();
  e.type = file_type();
  if (chance()) {
    e.handle.bytes = bytes(kMaxHandle);
    e.attr = attr();
  }
  return e;
}

ReplyMessage RandomMessages::reply() {
  if (below(4) == 0) return {id(), error()};
  Reply r;
  r.count = below(kMaxOffset);
  r.handle.bytes = bytes(kMaxHandle);
  r.right.bytes = bytes(kMaxRight);
  r.data = bytes(kMaxXattr);
  r.end = chance();
  if (chance()) r.attr = attr();
  if (chance()) r.statfs = {random_(), random_(), random_(), random_(), random_(), random_(), 255};
  if (chance()) r.layout = {random_(), 7, 3};
  if (chance()) r.verifier = random_();
  if (chance()) r.locked = {Offset(random_()), Length(random_()), chance(), 4711};
  r.entries.resize(chance() ? below(30) : 0);
  std::generate(r.entries.begin(), r.entries.end(), [this] { return entry(); });
  return {id(), std::move(r)};
}

Pull RandomMessages::pull() {
  Pull m{id(), Part::stream, below(kMaxOffset - kMaxPayload),
         1 + static_cast<uint32_t>(below(kMaxPayload))};
  if (chance()) m = {m.id, Part::list, m.position / 16 * 16, (m.length + 15) / 16 * 16};
  if (m.part == Part::stream && chance()) m.area = below(kMaxOffset - kMaxPayload);
  return m;
}

Data RandomMessages::data() {
  const uint64_t position = below(kMaxOffset - kMaxPayload);
  if (chance()) return {id(), Part::list, position / 16 * 16};
  if (chance()) return {id(), Part::stream, position};
  return {id(), Part::stream, position, below(kMaxOffset - kMaxPayload),
          1 + static_cast<uint32_t>(below(kMaxPayload))};
}

ControlReply RandomMessages::control_reply() {
  if (chance()) return {error()};
  return {bytes(10000)};
}

std::vector<std::string> one_of_each(RandomMessages& random) {
  return {encode(random.hello()),
          encode(random.welcome()),
          encode_refused(random.error()),
          encode(random.request()),
          encode(random.reply()),
          encode(random.pull()),
          encode(random.data(), 16),
          encode(random.cancel()),
          encode_goodbye(random.bytes(kMaxText), true),
          encode(random.control()),
          encode(random.control_reply()),
          encode(Taken{random.pull().position}),
          encode(Recall{random.pull().position}),
          encode(Released{random.pull().position})};
}

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Bytes message_of(std::string_view head) {
  return bytes_of(head).subspan(kHeaderSize);
}

namespace {

// Is the view of a small write all that there is to it?
bool is_view_of(const RequestMessage& m, const SmallWriteView& view) {
  RequestMessage made;
  made.id = view.id;
  made.request.op = Op::write;
  made.request.handle.bytes = view.handle;
  made.request.right.bytes = view.right;
  made.request.file = view.file;
  made.total = view.file.total().value;
  made.eager = true;
  return same(m, made);
}

}  // namespace

bool decode_and_back(FrameType type, Bytes message) {
  // A request with a bad argument is not encoded again: encoders take good ones only.
  const auto request = [](Bytes b) {
    auto m = decode_request(b);
    if (const auto view = view_small_write(b)) {
      FOREBAY_ASSERT(m && !m->bad && is_view_of(*m, *view));
    }
    return m && m->bad ? Result<RequestMessage>(Error(EPROTO, m->bad->message())) : m;
  };
  switch (type) {
    case FrameType::hello:
      return back_and_forth(decode_hello(message), decode_hello, kEncode, kEqual);
    case FrameType::welcome:
      return back_and_forth(decode_welcome(message), decode_welcome, kEncode, kEqual);
    case FrameType::refused:
      return back_and_forth(
          decode_refused(message), decode_refused,
          [](const Refused& m) { return encode_refused(m.why); }, kEqual);
    case FrameType::request:
      return back_and_forth(request(message), request, kEncode, kSame);
    case FrameType::reply:
      return back_and_forth(decode_reply(message), decode_reply, kEncode, kSame);
    case FrameType::pull:
      return back_and_forth(decode_pull(message), decode_pull, kEncode, kEqual);
    case FrameType::data:
      return back_and_forth(
          decode_data(message), decode_data, [](const Data& m) { return encode(m, 0); }, kEqual);
    case FrameType::cancel:
      return back_and_forth(decode_cancel(message), decode_cancel, kEncode, kEqual);
    case FrameType::taken:
      return back_and_forth(decode_taken(message), decode_taken, kEncode, kEqual);
    case FrameType::recall:
      return back_and_forth(decode_recall(message), decode_recall, kEncode, kEqual);
    case FrameType::released:
      return back_and_forth(decode_released(message), decode_released, kEncode, kEqual);
    case FrameType::goodbye:
      return back_and_forth(
          decode_goodbye(message), decode_goodbye,
          [](const Goodbye& m) { return encode_goodbye(m.reason, m.written); }, kEqual);
    case FrameType::control:
      return back_and_forth(decode_control(message), decode_control, kEncode, kEqual);
    case FrameType::control_reply:
      return back_and_forth(decode_control_reply(message), decode_control_reply, kEncode, kSame);
  }
  return false;
}

}  // namespace forebay::wire
