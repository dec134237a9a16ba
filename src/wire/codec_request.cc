#include <fmt/format.h>

#include <cstring>

#include "wire/message.h"
#include "wire/small_write.h"

namespace forebay::wire {
namespace {

// ---- Encoding ----

flatbuffers::Offset<flatbuffers::Vector<const fbs::Extent*>> put_blocks(
    Builder& b, std::span<const Extent> blocks) {
  if (blocks.empty()) return 0;
  fbs::Extent* to = nullptr;
  const auto vector = b.CreateUninitializedVectorOfStructs(blocks.size(), &to);
  for (const Extent& e : blocks) *to++ = fbs::Extent(e.offset.value, e.length.value);
  return vector;
}

flatbuffers::Offset<flatbuffers::Vector<const fbs::Stride*>> put_loops(
    Builder& b, std::span<const Stride> loops) {
  if (loops.empty()) return 0;
  fbs::Stride* to = nullptr;
  const auto vector = b.CreateUninitializedVectorOfStructs(loops.size(), &to);
  for (const Stride& s : loops) *to++ = fbs::Stride(s.count, s.stride);
  return vector;
}

flatbuffers::Offset<fbs::Caller> put_caller(Builder& b, const CallerRef& caller) {
  if (!caller) return 0;
  const auto groups = caller->groups.empty()
                          ? flatbuffers::Offset<flatbuffers::Vector<uint32_t>>(0)
                          : b.CreateVector(caller->groups.data(), caller->groups.size());
  const auto job = put_text(b, caller->job, kMaxLabel);
  return fbs::CreateCaller(b, caller->uid, caller->gid, groups, job);
}

// ---- Decoding ----

// The elements of a vector of structs. They are copied out one by one because the verifier checks
// the alignment of the vector's length (4), not that of its elements (8).
template <class Struct>
class Elements {
 public:
  explicit Elements(const flatbuffers::Vector<const Struct*>* from)
      : data_(from ? from->Data() : nullptr), size_(from ? from->size() : 0) {}
  size_t size() const { return size_; }
  Struct operator[](size_t i) const {
    Struct element;
    std::memcpy(static_cast<void*>(&element), data_ + i * sizeof(Struct), sizeof(Struct));
    return element;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

std::vector<Extent> get_blocks(const fbs::Request& t, Fields& fields) {
  const Elements<fbs::Extent> from(t.blocks());
  std::vector<Extent> blocks;
  if (!fields.fits("the list of blocks", from.size(), kMaxInlineBlocks, E2BIG)) return blocks;
  blocks.reserve(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const fbs::Extent e = from[i];
    blocks.push_back({Offset(e.offset()), Length(e.length())});
  }
  return blocks;
}

std::vector<Stride> get_loops(const fbs::Request& t, Fields& fields) {
  const Elements<fbs::Stride> from(t.loops());
  std::vector<Stride> loops;
  if (!fields.fits("the list of loops", from.size(), kMaxLoops, E2BIG)) return loops;
  loops.reserve(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const fbs::Stride s = from[i];
    loops.push_back({s.count(), s.stride()});
  }
  return loops;
}

CallerRef get_caller(const fbs::Caller* t, Fields& fields) {
  if (!t) return nullptr;
  auto caller = std::make_shared<Caller>();
  caller->uid = t->uid();
  caller->gid = t->gid();
  if (const auto* groups = t->groups(); groups) {
    if (!fields.fits("the caller's groups", groups->size(), kMaxGroups)) return nullptr;
    caller->groups.assign(groups->begin(), groups->end());
  }
  fields.text("the caller's job", t->job(), kMaxLabel, caller->job);
  return caller;
}

void get_op(uint8_t op, Fields& fields, Op& to) {
  if (op < kOpCount)
    to = static_cast<Op>(op);
  else
    fields.fail(EOPNOTSUPP, fmt::format("operation {} is not known to this server", op));
}

void get_set(const fbs::SetAttr* t, SetAttr& set) {
  if (!t) return;
  set = {t->what(), t->mode(), t->uid(), t->gid(), get_time(t->atime()), get_time(t->mtime())};
}

// The file side that travels with the request.
Result<Extents> make_file(const fbs::Request& t, Fields& fields) {
  auto loops = get_loops(t, fields);
  auto blocks = get_blocks(t, fields);
  return Extents::make(std::move(blocks), std::move(loops));
}

void get_file(const fbs::Request& t, Fields& fields, RequestMessage& m) {
  auto file = make_file(t, fields);
  if (!fields.ok()) return;
  if (!file) return fields.fail(file.error().code(), file.error().what());
  m.request.file = *std::move(file);
  m.total = m.request.file.total().value;
  if (t.total() != 0 && t.total() != m.total)
    fields.fail(0, fmt::format("total is {}, but the extents have {} bytes", t.total(), m.total));
}

// The file side whose blocks are to be pulled.
void get_list(const fbs::Request& t, Fields& fields, RequestMessage& m) {
  if (t.blocks()) return fields.fail(0, "blocks both in the request and to be pulled");
  if (m.request.op != Op::read && m.request.op != Op::write)
    return fields.fail(0, "a list of extents for neither a read nor a write");
  if (!fields.fits("the list to be pulled", t.list_blocks(), kMaxOffset / kBlockBytes, E2BIG))
    return;
  m.list_loops = get_loops(t, fields);
  fields.number("total", t.total(), kMaxOffset, m.total);
  if (const auto* bounds = t.list_bounds(); bounds) {
    if (bounds->offset() > kMaxOffset || bounds->length() > kMaxOffset - bounds->offset())
      return fields.fail(0, "the bounds of the list lie beyond the largest offset");
    m.list_bounds = {Offset(bounds->offset()), Length(bounds->length())};
  }
  m.list_blocks = t.list_blocks();
}

void get_arguments(const fbs::Request& t, Fields& fields, Request& r) {
  get_op(t.op(), fields, r.op);
  r.flags = t.flags();
  r.mode = t.mode();
  r.cookie = t.cookie();
  r.value = t.value();
  r.expected = t.expected();
  if (const auto* once = t.once()) {
    r.once = {once->client(), once->client2(), once->sequence(), once->lane()};
  }
  get_set(t.set(), r.set);
  r.caller = get_caller(t.caller(), fields);
  fields.bytes("handle", t.handle(), kMaxHandle, r.handle.bytes);
  fields.bytes("handle2", t.handle2(), kMaxHandle, r.handle2.bytes);
  fields.bytes("name", t.name(), kMaxPath, r.name, ENAMETOOLONG);
  fields.bytes("name2", t.name2(), kMaxPath, r.name2, ENAMETOOLONG);
  fields.bytes("right", t.right(), kMaxRight, r.right.bytes);
  fields.bytes("data", t.data(), kMaxXattr, r.data, E2BIG);
  fields.enumeration("access", t.access(), Access::both, r.access);
  fields.number("offset", t.offset(), kMaxOffset, r.offset.value);
  fields.number("length", t.length(), kMaxOffset, r.length.value);
}

// Has it what a small write has, and nothing else?
bool is_small_write(const fbs::Request& t) {
  const bool moves = t.op() == static_cast<uint8_t>(Op::write) && t.eager() && t.handle() &&
                     t.right() && t.blocks() && t.place() == kNoArea;
  const bool plain = t.flags() == 0 && !t.caller() && !t.loops() && t.list_blocks() == 0 &&
                     !t.list_bounds() && t.total() == 0;
  const bool alone = !t.name() && !t.handle2() && !t.name2() && !t.data() && !t.set() &&
                     t.access() == 0 && t.mode() == 0 && t.offset() == 0 && t.length() == 0 &&
                     t.cookie() == 0 && t.value() == 0 && t.expected() == 0 && !t.once();
  return moves && plain && alone && t.handle()->size() <= kMaxHandle &&
         t.right()->size() <= kMaxRight;
}

}  // namespace

std::string encode(const RequestMessage& m, uint32_t payload_size) {
  const Request& r = m.request;
  const bool pulled = m.list_blocks != 0;
  FOREBAY_ASSERT(r.file.blocks().size() <= (pulled ? 0 : kMaxInlineBlocks),
                 "a long list is pulled: it does not travel in the request");
  Builder& b = scratch();
  const auto handle = put_bytes(b, r.handle.bytes);
  const auto name = put_bytes(b, r.name);
  const auto handle2 = put_bytes(b, r.handle2.bytes);
  const auto name2 = put_bytes(b, r.name2);
  const auto right = put_bytes(b, r.right.bytes);
  const auto data = put_bytes(b, r.data);
  const auto blocks = put_blocks(b, r.file.blocks());
  const auto loops = put_loops(b, pulled ? m.list_loops : r.file.loops());
  const auto caller = put_caller(b, r.caller);
  const fbs::SetAttr set(r.set.what, r.set.mode, r.set.uid, r.set.gid, put_time(r.set.atime),
                         put_time(r.set.mtime));
  const fbs::Extent bounds(m.list_bounds.offset.value, m.list_bounds.length.value);
  const fbs::Once once(r.once.client, r.once.client2, r.once.sequence, r.once.lane);
  const bool has_set = !(r.set == SetAttr{}), has_once = !(r.once == Once{});
  return finish(b, FrameType::request,
                fbs::CreateRequest(
                    b, m.id.slot, m.id.sequence, static_cast<uint8_t>(r.op), r.flags, handle, name,
                    handle2, name2, right, static_cast<uint8_t>(r.access), r.mode,
                    has_set ? &set : nullptr, r.offset.value, r.length.value, r.cookie, data,
                    blocks, loops, m.list_blocks, pulled ? &bounds : nullptr, pulled ? m.total : 0,
                    m.eager, caller, m.place, r.value, r.expected, has_once ? &once : nullptr),
                payload_size);
}

Result<void> decode_request_into(RequestMessage& m, Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Request>(message, bytes.size(), "request", 2);
  if (!opened) return opened.error();
  const fbs::Request& t = **opened;
  Fields fields("request", EINVAL);
  m.id = {t.slot(), t.sequence()};
  m.eager = t.eager();
  m.place = t.place();
  get_arguments(t, fields, m.request);
  if (t.list_blocks() != 0)
    get_list(t, fields, m);
  else if (t.blocks() || t.loops() || t.total() != 0)
    get_file(t, fields, m);
  if (m.eager && m.request.op != Op::write)
    fields.fail(0, "eager data for an operation that is not a write");
  if (m.place != kNoArea && (m.eager || (m.request.op != Op::read && m.request.op != Op::write)))
    fields.fail(0, "a place in memory for an operation that needs none");
  m.bad = fields.error();
  return {};
}

std::optional<SmallWriteView> view_small_write(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Request>(message, bytes.size(), "request", 2);
  if (!opened || !is_small_write(**opened)) return std::nullopt;
  const fbs::Request& t = **opened;
  Fields fields("request", EINVAL);
  auto file = make_file(t, fields);
  if (!fields.ok() || !file || file->empty()) return std::nullopt;
  const auto in_message = [&](const ByteVector* v) {
    return std::string_view(
        reinterpret_cast<const char*>(bytes.data()) + (v->data() - message.data()), v->size());
  };
  return SmallWriteView{
      {t.slot(), t.sequence()}, in_message(t.handle()), in_message(t.right()), *std::move(file)};
}

}  // namespace forebay::wire
