// Env: a store as a case sees it. Operations are short, and return what succeeded; what should fail
// is asked with fails(). Two things end a case early, both as exceptions:
//  - Wrong: the store did what it must not; the case fails with that text;
//  - Surfaced: an injected fault came up. In a run under faults that is a good end.
// Env closes what the case left open (tidy()).
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "conformance.h"

namespace forebay::conformance {

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Surfaced {
  Error error;
};

// Throws Wrong with the text and the place unless it holds.
#define MUST(condition) ::forebay::conformance::must((condition), #condition, __FILE__, __LINE__)
void must(bool holds, const char* condition, const char* file, int line);

// A file that is open.
struct File {
  Handle handle;
  Right right;
};

class Env {
 public:
  // `fault` is the errno of injected faults, 0 in a plain run.
  Env(Store& store, int fault);

  Store& store() { return store_; }
  const Handle& top() const { return top_; }
  // Whoever asks from now on; at first this process.
  CallerRef caller;
  static CallerRef user(uint32_t uid, uint32_t gid, std::vector<uint32_t> groups = {});

  Request request(Op op, const Handle& handle, std::string name = {}) const;
  Reply ok(Request r);
  void fails(std::initializer_list<int> codes, Request r);
  void fails(int code, Request r) { fails({code}, std::move(r)); }
  Result<Reply> attempt(Request r);

  // Names. `where` defaults to the top directory.
  Request create_request(const Handle& directory, std::string name, uint32_t flags = 0) const;
  File create(const Handle& directory, std::string name, uint32_t mode = 0644);
  File create(std::string name) { return create(top_, std::move(name)); }
  Handle mkdir(const Handle& directory, std::string name, uint32_t mode = 0755);
  Handle mkdir(std::string name) { return mkdir(top_, std::move(name)); }
  Handle symlink(const Handle& directory, std::string name, std::string target);
  Request link_request(const Handle& file, const Handle& directory, std::string name) const;
  Request rename_request(const Handle& from, std::string name, const Handle& to, std::string name2,
                         uint32_t flags = 0) const;
  void rename(std::string from, std::string to, uint32_t flags = 0);
  Request remove_request(const Handle& directory, std::string name, bool folder = false) const;
  void remove(std::string name) { ok(remove_request(top_, std::move(name))); }
  Reply lookup(std::string path);
  bool exists(std::string path);
  std::vector<Entry> list(const Handle& directory, uint64_t length = 32 * 1024, uint32_t flags = 0);
  std::vector<std::string> names(const Handle& directory);  // sorted

  // Files.
  Request open_request(const Handle& file, Access access) const;
  File open(const Handle& file, Access access = Access::both);
  Request close_request(const File& file) const;
  void close(const File& file);
  Attr attr(const Handle& file) { return ok(request(Op::getattr, file)).attr; }
  Request data_request(Op op, const File& file, Extents where, Memory memory) const;
  void write(const File& file, uint64_t offset, std::string_view bytes);
  // What is there of `length` bytes.
  std::string read(const File& file, uint64_t offset, uint64_t length);
  Request resize_request(const Handle& file, uint64_t length) const;

  // Closes what the case left open. Not under faults.
  void tidy();

 private:
  void note(const Request& r, const Reply& reply);

  Store& store_;
  const int fault_;
  Handle top_;
  struct Open {
    File file;
    CallerRef caller;
  };
  std::vector<Open> open_;
};

}  // namespace forebay::conformance
