// What tests of the posix store share: an export in a temporary directory, and operations as plain
// calls. Header only.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "core/testing.h"
#include "store/posix.h"

namespace forebay {

inline CallerRef caller_of(uint32_t uid, uint32_t gid, std::vector<uint32_t> groups = {}) {
  return std::make_shared<const Caller>(Caller{uid, gid, std::move(groups), {}});
}

// An export and its store. `options.directory` and `key_file` are filled in if empty.
class PosixRig {
 public:
  explicit PosixRig(PosixOptions options = {}) : options_(std::move(options)) {
    ::umask(0);  // as a server does
    if (options_.directory.empty()) {
      options_.directory = temp_ / "export";
      FOREBAY_ASSERT(::mkdir(options_.directory.c_str(), 0755) == 0);
    }
    if (options_.key_file.empty()) options_.key_file = temp_ / "key";
    options_.export_id = 7;
    start();
  }

  void start() {
    auto opened = PosixStore::open(options_, counters);
    FOREBAY_ASSERT(opened.has_value(), opened ? "" : opened.error().message());
    store = std::move(*opened);
    root = *store->root();
  }
  void stop() { store.reset(); }
  void restart() {
    stop();
    start();
  }

  std::string path(const std::string& name) const { return options_.directory + "/" + name; }
  std::string outside(const std::string& name) const { return temp_ / name; }
  PosixOptions& options() { return options_; }

  Result<Reply> call(Request r) {
    if (!r.caller) r.caller = caller;
    // Through submit(), as a server does, or on this thread, as a library does.
    return through_submit ? store->Store::call(std::move(r)) : store->call(std::move(r));
  }

  Result<Reply> lookup(const Handle& at, const std::string& name) {
    return call({.op = Op::lookup, .handle = at, .name = name});
  }
  Result<Reply> lookup(const std::string& name) { return lookup(root, name); }
  Result<Reply> create(const Handle& at, const std::string& name, uint32_t mode = 0644,
                       Access access = Access::both, uint32_t flags = 0) {
    return call({.op = Op::create,
                 .flags = flags,
                 .handle = at,
                 .name = name,
                 .access = access,
                 .mode = mode});
  }
  Result<Reply> create(const std::string& name, uint32_t mode = 0644) {
    return create(root, name, mode);
  }
  Result<Reply> open(const Handle& file, Access access) {
    return call({.op = Op::open, .handle = file, .access = access});
  }
  Result<Reply> close(const Handle& file, const Right& right) {
    return call({.op = Op::close, .handle = file, .right = right});
  }
  Result<Reply> mkdir(const Handle& at, const std::string& name, uint32_t mode = 0755) {
    return call({.op = Op::mkdir, .handle = at, .name = name, .mode = mode});
  }
  Result<Reply> remove(const Handle& at, const std::string& name, uint32_t flags = 0) {
    return call({.op = Op::remove, .flags = flags, .handle = at, .name = name});
  }
  Result<Reply> rename(const Handle& from, const std::string& name, const Handle& to,
                       const std::string& name2, uint32_t flags = 0) {
    return call({.op = Op::rename,
                 .flags = flags,
                 .handle = from,
                 .handle2 = to,
                 .name = name,
                 .name2 = name2});
  }
  Result<Reply> getattr(const Handle& file) { return call({.op = Op::getattr, .handle = file}); }

  Result<Reply> write(const Handle& file, const Right& right, uint64_t at, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    return call({.op = Op::write,
                 .handle = file,
                 .right = right,
                 .file = Extents({Offset(at), Length(text.size())}),
                 .memory = Memory::of(bytes)});
  }
  // The text read, as long as count says.
  Result<std::string> read(const Handle& file, const Right& right, uint64_t at, size_t length) {
    std::string text(length, '?');
    Result<Reply> reply =
        call({.op = Op::read,
              .handle = file,
              .right = right,
              .file = Extents({Offset(at), Length(length)}),
              .memory = Memory::of(std::as_writable_bytes(std::span(text.data(), length)))});
    if (!reply) return std::move(reply).error();
    text.resize(reply->count);
    return text;
  }

  CounterSet counters;
  std::unique_ptr<PosixStore> store;
  Handle root;
  CallerRef caller = this_process_caller();
  bool through_submit = false;

 private:
  TempDir temp_;
  PosixOptions options_;
};

// From here on what this process mounts is seen by nobody else and goes with it, even if it
// crashes. False if it may not mount.
inline bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

template <class T>
int code_of(const Result<T>& result) {
  return result ? 0 : result.error().code();
}

inline std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace forebay
