// What the tests of shortcuts (client/shortcuts.h, server/shortcuts.h) run on: a server of a
// folder, and files as clients have them open.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "server_process.h"
#include "store/posix.h"

namespace forebay {

inline std::unique_ptr<Store> make_posix(const std::string& directory, CounterSet& counters) {
  PosixOptions options;
  options.directory = directory + "/export";
  ::mkdir(options.directory.c_str(), 0755);
  options.key_file = directory + "/key";
  options.export_id = 7;
  return PosixStore::open(options, counters).value();
}

inline ServerOptions impatient() {
  ServerOptions options;
  options.stall = std::chrono::milliseconds(300);
  options.grace = std::chrono::milliseconds(300);
  return options;
}

// A file as a client has it open.
class Opened {
 public:
  Opened(RemoteStore& store, const std::string& name, Access access = Access::both,
         uint32_t flags = 0)
      : store_(store) {
    Request r = request(Op::create);
    r.handle = store.root().value();
    r.name = name;
    r.mode = 0600;
    r.access = access;
    r.flags = flags;
    file_ = store.call(std::move(r)).value();
  }

  Request request(Op op) const {
    Request r;
    r.op = op;
    r.caller = this_process_caller();
    r.handle = file_.handle;
    r.right = file_.right;
    return r;
  }
  Request transfer(Op op, Extents file, std::string& bytes) const {
    Request r = request(op);
    r.file = std::move(file);
    r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    return r;
  }
  Request transfer(Op op, uint64_t at, std::string& bytes) const {
    return transfer(op, Extents(Extent{Offset(at), Length(bytes.size())}), bytes);
  }
  Result<Reply> write(uint64_t at, std::string bytes, uint32_t flags = 0) {
    Request r = transfer(Op::write, at, bytes);
    r.flags = flags;
    return store_.call(std::move(r));
  }
  std::string read(uint64_t at, uint64_t length) {
    std::string bytes(length, '?');
    const uint64_t count = store_.call(transfer(Op::read, at, bytes)).value().count;
    bytes.resize(count);
    return bytes;
  }
  RemoteStore& store() const { return store_; }
  uint64_t itself() const { return store_.stats().by_shortcut; }  // requests that the client did
  // Writes until it does so itself; what is there, or `bytes`.
  void take(std::string bytes = {}) {
    if (bytes.empty()) bytes = read(0, 128_KiB);
    const uint64_t before = itself();
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
         itself() == before;) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no shortcut was given";
      ASSERT_TRUE(write(0, bytes.empty() ? std::string("x") : bytes));
    }
  }

 private:
  RemoteStore& store_;
  Reply file_;
};

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string random_bytes(std::mt19937_64& random, uint64_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

class ShortcutsTest : public ::testing::Test {
 protected:
  explicit ShortcutsTest(ExportOptions exported = {})
      : server_(impatient(), std::move(exported), make_posix) {}
  std::string path(const std::string& name) const {
    return server_.directory() + "/export/" + name;
  }

  std::mt19937_64 random_{test_seed()};
  ServerProcess server_;
};

}  // namespace forebay
