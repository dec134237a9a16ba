#include "env.h"

#include <fmt/format.h>

#include <algorithm>

#include "store/trace.h"

namespace forebay::conformance {

void must(bool holds, const char* condition, const char* file, int line) {
  if (!holds) throw Wrong(fmt::format("{}:{}: {}", file, line, condition));
}

Env::Env(Store& store, int fault) : caller(this_process_caller()), store_(store), fault_(fault) {
  auto root = store.root();
  if (!root) throw Wrong("root: " + root.error().message());
  top_ = *root;
}

CallerRef Env::user(uint32_t uid, uint32_t gid, std::vector<uint32_t> groups) {
  return std::make_shared<Caller>(Caller{uid, gid, std::move(groups), {}});
}

Request Env::request(Op op, const Handle& handle, std::string name) const {
  Request r;
  r.op = op;
  r.caller = caller;
  r.handle = handle;
  r.name = std::move(name);
  return r;
}

void Env::note(const Request& r, const Reply& reply) {
  if (r.op == Op::close) {
    std::erase_if(open_, [&](const Open& o) { return o.file.right == r.right; });
    return;
  }
  // A right that is used is open, also if it was closed before.
  const Right& right = reply.right.empty() ? r.right : reply.right;
  const Handle& handle = r.op == Op::create ? reply.handle : r.handle;
  const auto same = [&](const Open& o) { return o.file.right == right; };
  if (right.empty() || std::any_of(open_.begin(), open_.end(), same)) return;
  open_.push_back({{handle, right}, r.caller});
}

Result<Reply> Env::attempt(Request r) {
  Request copy = r;  // for what it says if it went wrong
  auto result = store_.call(std::move(r));
  if (result) {
    note(copy, *result);
  } else if (fault_ != 0 && result.error().code() == fault_) {
    throw Surfaced{result.error()};
  }
  return result;
}

Reply Env::ok(Request r) {
  const std::string what = format(r);
  auto result = attempt(std::move(r));
  if (!result) throw Wrong(what + ": " + result.error().message());
  return std::move(*result);
}

void Env::fails(std::initializer_list<int> codes, Request r) {
  const std::string what = format(r);
  const auto result = attempt(std::move(r));
  std::string wanted;
  for (const int code : codes) {
    if (!result && result.error().code() == code) return;
    wanted += (wanted.empty() ? "" : " or ") + errno_name(code);
  }
  throw Wrong(fmt::format("{}: {} instead of {}", what,
                          result ? "success" : errno_name(result.error().code()), wanted));
}

// ---- Names ----

Request Env::create_request(const Handle& directory, std::string name, uint32_t flags) const {
  Request r = request(Op::create, directory, std::move(name));
  r.mode = 0644;
  r.access = Access::both;
  r.flags = flags;
  return r;
}

File Env::create(const Handle& directory, std::string name, uint32_t mode) {
  Request r = create_request(directory, std::move(name));
  r.mode = mode;
  const Reply reply = ok(std::move(r));
  return {reply.handle, reply.right};
}

Handle Env::mkdir(const Handle& directory, std::string name, uint32_t mode) {
  Request r = request(Op::mkdir, directory, std::move(name));
  r.mode = mode;
  return ok(std::move(r)).handle;
}

Handle Env::symlink(const Handle& directory, std::string name, std::string target) {
  Request r = request(Op::symlink, directory, std::move(name));
  r.data = std::move(target);
  return ok(std::move(r)).handle;
}

Request Env::link_request(const Handle& file, const Handle& directory, std::string name) const {
  Request r = request(Op::link, file);
  r.handle2 = directory;
  r.name2 = std::move(name);
  return r;
}

Request Env::rename_request(const Handle& from, std::string name, const Handle& to,
                            std::string name2, uint32_t flags) const {
  Request r = request(Op::rename, from, std::move(name));
  r.handle2 = to;
  r.name2 = std::move(name2);
  r.flags = flags;
  return r;
}

void Env::rename(std::string from, std::string to, uint32_t flags) {
  ok(rename_request(top_, std::move(from), top_, std::move(to), flags));
}

Request Env::remove_request(const Handle& directory, std::string name, bool folder) const {
  Request r = request(Op::remove, directory, std::move(name));
  r.flags = folder ? kFlagDirectory : 0u;
  return r;
}

Reply Env::lookup(std::string path) {
  return ok(request(Op::lookup, top_, std::move(path)));
}

bool Env::exists(std::string path) {
  const auto found = attempt(request(Op::lookup, top_, path));
  if (!found && found.error().code() != ENOENT) throw Wrong(path + found.error().message());
  return found.has_value();
}

std::vector<Entry> Env::list(const Handle& directory, uint64_t length, uint32_t flags) {
  std::vector<Entry> all;
  for (uint64_t cookie = 0;;) {
    Request r = request(Op::readdir, directory);
    r.length = Length(length);
    r.cookie = cookie;
    r.flags = flags;
    Reply reply = ok(std::move(r));
    if (reply.entries.empty() && !reply.end) throw Wrong("readdir gives nothing, and no end");
    for (Entry& entry : reply.entries) all.push_back(std::move(entry));
    if (reply.end) return all;
    cookie = all.back().cookie;
  }
}

std::vector<std::string> Env::names(const Handle& directory) {
  std::vector<std::string> names;
  for (Entry& entry : list(directory)) names.push_back(std::move(entry.name));
  std::sort(names.begin(), names.end());
  return names;
}

// ---- Files ----

Request Env::open_request(const Handle& file, Access access) const {
  Request r = request(Op::open, file);
  r.access = access;
  return r;
}

File Env::open(const Handle& file, Access access) {
  return {file, ok(open_request(file, access)).right};
}

Request Env::close_request(const File& file) const {
  Request r = request(Op::close, file.handle);
  r.right = file.right;
  return r;
}

void Env::close(const File& file) {
  ok(close_request(file));
}

Request Env::data_request(Op op, const File& file, Extents where, Memory memory) const {
  Request r = request(op, file.handle);
  r.right = file.right;
  r.file = std::move(where);
  r.memory = std::move(memory);
  return r;
}

void Env::write(const File& file, uint64_t offset, std::string_view bytes) {
  const Extents where(Extent{Offset(offset), Length(bytes.size())});
  const Memory memory = Memory::of(std::as_bytes(std::span(bytes)));
  MUST(ok(data_request(Op::write, file, where, memory)).count == bytes.size());
}

std::string Env::read(const File& file, uint64_t offset, uint64_t length) {
  std::string bytes(length, '?');
  const Extents where(Extent{Offset(offset), Length(length)});
  const Memory memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  bytes.resize(ok(data_request(Op::read, file, where, memory)).count);
  return bytes;
}

Request Env::resize_request(const Handle& file, uint64_t length) const {
  Request r = request(Op::resize, file);
  r.length = Length(length);
  return r;
}

void Env::tidy() {
  for (const Open& open : std::exchange(open_, {})) {
    Request r = close_request(open.file);
    r.caller = open.caller;
    const auto closed = store_.call(std::move(r));
    if (!closed && closed.error().code() != ESTALE)
      throw Wrong("close: " + closed.error().message());
  }
}

}  // namespace forebay::conformance
