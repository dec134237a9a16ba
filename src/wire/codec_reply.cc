#include <fmt/format.h>

#include "wire/message.h"

namespace forebay::wire {
namespace {

size_t counted_bytes(const Entry& e) {
  static_assert(sizeof(fbs::Attr) + alignof(fbs::Attr) <= kEntryAttrBytes);
  const size_t attr = e.attr == Attr{} ? 0 : kEntryAttrBytes;
  return kEntryBytes + attr + e.name.size() + e.handle.bytes.size();
}

// ---- Encoding ----

fbs::Attr put_attr(const Attr& a) {
  return fbs::Attr(a.size, a.allocated, a.file_id, a.fs_id, a.links, a.rdev, put_time(a.atime),
                   put_time(a.mtime), put_time(a.ctime), put_time(a.btime), a.mode, a.uid, a.gid,
                   a.block_size, static_cast<uint8_t>(a.type));
}

flatbuffers::Offset<fbs::Entry> put_entry(Builder& b, const Entry& e) {
  const auto name = put_bytes(b, e.name);
  const auto handle = put_bytes(b, e.handle.bytes);
  const fbs::Attr attr = put_attr(e.attr);
  const bool has_attr = !(e.attr == Attr{});
  return fbs::CreateEntry(b, name, e.cookie, e.file_id, static_cast<uint8_t>(e.type), handle,
                          has_attr ? &attr : nullptr);
}

// How many of the entries, from the first, one message may hold.
size_t entries_that_fit(std::span<const Entry> entries) {
  size_t bytes = 0, n = 0;
  for (; n < entries.size(); ++n) {
    bytes += counted_bytes(entries[n]);
    if (bytes > kMaxEntryBytes) break;
  }
  return n;
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fbs::Entry>>> put_entries(
    Builder& b, std::span<const Entry> entries) {
  if (entries.empty()) return 0;
  std::vector<flatbuffers::Offset<fbs::Entry>> offsets;
  offsets.reserve(entries.size());
  for (const Entry& e : entries) offsets.push_back(put_entry(b, e));
  return b.CreateVector(offsets);
}

std::string encode_failure(const RequestId& id, const Error& error, uint32_t payload_size) {
  Builder& b = scratch();
  const auto offset = put_error(b, error);
  fbs::ReplyBuilder table(b);
  table.add_sequence(id.sequence);
  table.add_error(offset);
  table.add_slot(id.slot);
  return finish(b, FrameType::reply, table.Finish(), payload_size);
}

std::string encode_success(const RequestId& id, const Reply& r, uint32_t payload_size) {
  Builder& b = scratch();
  const size_t fit = entries_that_fit(r.entries);
  const auto entries = put_entries(b, std::span(r.entries).first(fit));
  const auto handle = put_bytes(b, r.handle.bytes);
  const auto right = put_bytes(b, r.right.bytes);
  const auto data = put_bytes(b, r.data);
  const fbs::Attr attr = put_attr(r.attr);
  const fbs::FsStatus statfs(r.statfs.block_size, r.statfs.blocks, r.statfs.blocks_free,
                             r.statfs.blocks_available, r.statfs.files, r.statfs.files_free,
                             r.statfs.name_max);
  const fbs::Layout layout(r.layout.stripe_size, r.layout.stripe_count, r.layout.first_target);
  const fbs::Locked locked(r.locked.offset.value, r.locked.length.value, r.locked.pid,
                           r.locked.shared);
  const bool has_attr = !(r.attr == Attr{}), has_statfs = !(r.statfs == FsStatus{}),
             has_layout = !(r.layout == Layout{}), has_locked = !(r.locked == Locked{});
  return finish(
      b, FrameType::reply,
      fbs::CreateReply(b, id.slot, id.sequence, 0, r.count, handle, right,
                       has_attr ? &attr : nullptr, data, entries, r.end && fit == r.entries.size(),
                       has_statfs ? &statfs : nullptr, has_layout ? &layout : nullptr, r.verifier,
                       has_locked ? &locked : nullptr, r.value),
      payload_size);
}

// ---- Decoding ----

void get_attr(const fbs::Attr* t, Fields& fields, Attr& a) {
  if (!t) return;
  fields.enumeration("file type", t->type(), FileType::character, a.type);
  a.mode = t->mode();
  a.uid = t->uid();
  a.gid = t->gid();
  a.links = t->links();
  a.size = t->size();
  a.allocated = t->allocated();
  a.file_id = t->file_id();
  a.fs_id = t->fs_id();
  a.rdev = t->rdev();
  a.block_size = t->block_size();
  a.atime = get_time(t->atime());
  a.mtime = get_time(t->mtime());
  a.ctime = get_time(t->ctime());
  a.btime = get_time(t->btime());
}

void get_entry(const fbs::Entry& t, Fields& fields, Entry& e) {
  e.cookie = t.cookie();
  e.file_id = t.file_id();
  fields.enumeration("an entry's type", t.type(), FileType::character, e.type);
  fields.bytes("an entry's name", t.name(), kMaxName, e.name);
  fields.bytes("an entry's handle", t.handle(), kMaxHandle, e.handle.bytes);
  get_attr(t.attr(), fields, e.attr);
}

void get_entries(const fbs::Reply& t, Fields& fields, std::vector<Entry>& entries) {
  if (!t.entries()) return;
  // Many entries may point at one long handle: the limit is on what they take when each has its
  // own, and is looked at as they are copied, so that a small message cannot become a large value.
  size_t bytes = 0;
  entries.reserve(t.entries()->size());
  for (const fbs::Entry* from : *t.entries()) {
    Entry& e = entries.emplace_back();
    get_entry(*from, fields, e);
    bytes += counted_bytes(e);
    if (!fields.ok() || !fields.fits("the list of entries", bytes, kMaxEntryBytes)) return;
  }
}

void get_statfs(const fbs::FsStatus* t, FsStatus& s) {
  if (!t) return;
  s = {t->block_size(), t->blocks(),     t->blocks_free(), t->blocks_available(),
       t->files(),      t->files_free(), t->name_max()};
}

void get_reply(const fbs::Reply& t, Fields& fields, Reply& r) {
  fields.number("count", t.count(), kMaxOffset, r.count);
  fields.bytes("handle", t.handle(), kMaxHandle, r.handle.bytes);
  fields.bytes("right", t.right(), kMaxRight, r.right.bytes);
  fields.bytes("data", t.data(), kMaxXattr, r.data);
  get_attr(t.attr(), fields, r.attr);
  get_entries(t, fields, r.entries);
  r.end = t.end();
  r.verifier = t.verifier();
  r.value = t.value();
  get_statfs(t.statfs(), r.statfs);
  if (const auto* l = t.layout(); l)
    r.layout = {l->stripe_size(), l->stripe_count(), l->first_target()};
  if (const auto* l = t.locked(); l)
    r.locked = {Offset(l->offset()), Length(l->length()), l->shared(), l->pid()};
}

}  // namespace

std::string encode_reply(const RequestId& id, const Result<Reply>& result, uint32_t payload_size) {
  if (!result) return encode_failure(id, result.error(), payload_size);
  if (const size_t size = result->data.size(); size > kMaxXattr)
    return encode_failure(
        id, Error(E2BIG, fmt::format("the answer has {} bytes; the limit is {}", size, kMaxXattr)),
        payload_size);
  return encode_success(id, *result, payload_size);
}

Result<void> decode_reply_into(ReplyMessage& m, Bytes bytes) {
  const Aligned message(bytes);
  constexpr uint32_t kMaxTables = 2 + kMaxEntryBytes / kEntryBytes;
  const auto opened = open_message<fbs::Reply>(message, bytes.size(), "reply", kMaxTables);
  if (!opened) return opened.error();
  const fbs::Reply& t = **opened;
  Fields fields("reply");
  m.id = {t.slot(), t.sequence()};
  if (t.error()) {
    auto error = get_error(t.error(), fields);
    if (error) m.result = *std::move(error);
  } else {
    get_reply(t, fields, *m.result);
  }
  if (!fields.ok()) return *fields.error();
  return {};
}

}  // namespace forebay::wire
