#include "store/null.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

namespace forebay {

namespace {

constexpr const char* kTop = "/";
constexpr const char* kGranted = "granted";

Reply described_top() {
  Reply reply;
  reply.handle = {kTop};
  reply.attr.type = FileType::directory;
  reply.attr.mode = 0777;
  reply.attr.links = 2;
  reply.attr.file_id = 1;
  return reply;
}

uint64_t file_id(const std::string& name) {
  return std::hash<std::string>{}(name) | 2;
}

Reply read_zeros(const Request& r, uint64_t size) {
  Reply reply;
  walk_pairs(r.file, r.memory.shape, [&](Extent from, Extent to) {
    const uint64_t start = from.offset.value;
    const uint64_t n = start < size ? std::min(from.length.value, size - start) : 0;
    if (n != 0) std::memset(r.memory.at(to.offset), 0, n);
    reply.count += n;
    return n == from.length.value;
  });
  return reply;
}

}  // namespace

void NullStore::submit(Request&& request, Completion&& done) {
  auto good = check_at_back_end(request);
  // The result first, the completion after the lock is gone: it may submit again.
  done(good ? perform(request) : Result<Reply>(std::move(good).error()));
}

Result<Handle> NullStore::root() {
  return Handle{kTop};
}

Result<Reply> NullStore::perform(const Request& r) {
  std::lock_guard lock(mutex_);
  if (r.op == Op::statfs || r.op == Op::layout) return Reply{};
  if (r.handle.bytes == kTop) return in_directory(r);
  const auto file = sizes_.find(r.handle.bytes);
  if (file == sizes_.end()) return Error(ESTALE);
  return on_file(r, file->first, file->second);
}

Reply NullStore::described(const std::string& name, uint64_t size) {
  Reply reply;
  reply.handle = {name};
  reply.attr.type = FileType::file;
  reply.attr.mode = 0666;
  reply.attr.links = 1;
  reply.attr.size = size;
  reply.attr.file_id = file_id(name);
  return reply;
}

Result<Reply> NullStore::in_directory(const Request& r) {
  switch (r.op) {
    case Op::lookup: {
      const auto file = sizes_.find(r.name);
      if (file == sizes_.end()) return Error(ENOENT);
      return described(file->first, file->second);
    }
    case Op::create:
      return create(r);
    case Op::remove:
      if (sizes_.erase(r.name) == 0) return Error(ENOENT);
      return Reply{};
    case Op::readdir:
      return list(r);
    case Op::getattr:
    case Op::setattr:
      return described_top();
    case Op::commit:
      return Reply{};
    case Op::open:
    case Op::close:
    case Op::read:
    case Op::write:
    case Op::resize:
    case Op::fallocate:
      return Error(EISDIR);
    default:
      return Error(EOPNOTSUPP);
  }
}

Result<Reply> NullStore::create(const Request& r) {
  const auto [file, made] = sizes_.emplace(r.name, 0);
  if (!made && (r.flags & kFlagExclusive)) return Error(EEXIST);
  if (r.flags & kFlagTruncate) file->second = 0;
  Reply reply = described(file->first, file->second);
  if (r.access != Access::none) reply.right = {kGranted};
  return reply;
}

Reply NullStore::list(const Request& r) const {
  // A cookie is a position; names added or removed meanwhile may shift it.
  Reply reply;
  uint64_t bytes = 0, cookie = std::min<uint64_t>(r.cookie, sizes_.size());
  auto at = std::next(sizes_.begin(), static_cast<std::ptrdiff_t>(cookie));
  for (; at != sizes_.end(); ++at) {
    bytes += kReaddirEntry + at->first.size();
    if (!reply.entries.empty() && bytes > r.length.value) break;
    Entry entry{at->first, ++cookie, file_id(at->first), FileType::file, {}, {}};
    if (r.flags & kFlagPlus) {
      Reply file = described(at->first, at->second);
      entry.handle = std::move(file.handle);
      entry.attr = file.attr;
    }
    reply.entries.push_back(std::move(entry));
  }
  reply.end = at == sizes_.end();
  return reply;
}

Result<Reply> NullStore::on_file(const Request& r, const std::string& name, uint64_t& size) {
  Reply reply = described(name, size);
  if (!r.right.empty() && r.right.bytes != kGranted) return Error(EBADF);
  switch (r.op) {
    case Op::open:
      reply.right = {kGranted};
      return reply;
    case Op::read:
      return read_zeros(r, size);
    case Op::write:
      if (!r.file.empty()) size = std::max(size, r.file.bounds().end().value);
      reply.count = r.file.total().value;
      return reply;
    case Op::resize:
      size = r.length.value;
      return described(name, size);
    case Op::fallocate:
      if (!(r.flags & (kFlagKeepSize | kFlagPunchHole))) {
        size = std::max(size, (r.offset + r.length).value);
      }
      return reply;
    case Op::close:
    case Op::getattr:
    case Op::setattr:
    case Op::commit:
      return reply;
    case Op::lookup:
    case Op::create:
    case Op::remove:
    case Op::mkdir:
    case Op::symlink:
    case Op::readdir:
      return Error(ENOTDIR);
    default:
      return Error(EOPNOTSUPP);
  }
}

}  // namespace forebay
