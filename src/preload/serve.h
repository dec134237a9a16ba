// The functions of Served (served.h), by kind, and what they share. Each is one call of a program:
// it looks up what it is about, makes its requests, and answers as the kernel would.
#pragma once

#include "preload/open_files.h"
#include "store/path.h"

namespace forebay::preload {

// Runs a call: its value, or -1 and errno. No exception leaves.
int64_t answer(Result<int64_t>&& result);
int64_t failed_with(int code);
template <class Call>
int64_t run(Call&& call) {
  try {
    return answer(call());
  } catch (const std::bad_alloc&) {
    return failed_with(ENOMEM);
  } catch (...) {
    return failed_with(EIO);
  }
}

// The file that a target names.
struct Subject {
  Handle handle;
  CallerRef caller;
  Attr attr;  // of a name; of an open file it is asked for
};
Result<Subject> find(const Target& target);
Result<Place> name_of(const Target& target, int root);

// The Store as paths are walked through it: a link with a whole path in it leads where programs
// would go with that path, to a place in the export or out of it (kLeadsOut).
class LinkedStore final : public Store {
 public:
  explicit LinkedStore(Store& store) : store_(store) {}
  Result<Reply> call(Request request) override;
  void submit(Request&& request, Completion&& done) override {
    store_.submit(std::move(request), std::move(done));
  }
  Result<Handle> root() override { return store_.root(); }

 private:
  Store& store_;
};
// One request about it, by whoever asks now.
Result<Reply> about(const Target& target, Request&& request);
Result<int64_t> done(Result<Reply>&& reply);  // 0, or the error

// ---- serve_data.cc ----
int open_file(const Target& target, int flags, mode_t mode);
ssize_t move_bytes(const Transfer& transfer);
off64_t seek(int fd, off64_t by, int whence);
int truncate(const Target& target, off64_t size);
int sync(int fd, bool data_only);
int allocate(int fd, const Range& range);
int get_flags(int fd);
int set_flags(int fd, int flags);
int shown(int fd, char* path, size_t room);
Result<uint64_t> read_at(OpenFile& file, std::span<std::byte> to, uint64_t offset);

// ---- serve_names.cc ----
int rename(const Target& from, const Target& to, unsigned flags);
int link(const Target& from, const Target& to);
int symlink(const char* text, const Target& target);
ssize_t readlink(const Target& target, char* to, size_t room);
int remove(const Target& target, bool directory);
int mkdir(const Target& target, mode_t mode);
int make_file(const Target& target, mode_t mode);
void* list(int fd);
int next_entry(void* listing, dirent64* to);
void seek_entry(void* listing, long cookie);
void end_list(void* listing);

// ---- serve_attr.cc ----
int status(const Target& target, struct statx* to);
int access(const Target& target, int mode, bool effective);
int change(const Target& target, const Change& change);
int file_system(const Target& target, struct statvfs* to);
ssize_t get_xattr(const Target& target, const char* name, void* to, size_t room);
int set_xattr(const Target& target, const char* name, const void* value, size_t size, int flags);
ssize_t list_xattr(const Target& target, char* to, size_t room);
int remove_xattr(const Target& target, const char* name);

// ---- serve_locks.cc ----
int lock(int fd, int command, flock64* lock);
int lock_whole(int fd, int how);
void free_locks(const OpenFile& file);  // of this process, with any descriptor of the file
bool holds_locks();                     // that end with an exec, perhaps
// Around fork(): held, and a child has none of its parent's.
std::mutex& locks_held_for_fork();
void forget_locks();

// ---- serve_whole.cc ----
void* map(int fd, void* at, size_t size, int protection, int flags, off64_t from);
int copy(const Target& target);

}  // namespace forebay::preload
