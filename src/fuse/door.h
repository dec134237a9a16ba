// Door: the kernel's requests, one function each, as requests of a Store. libfuse calls them on the
// threads of workers.h; each makes blocking calls of the Store and answers exactly once.
//
// Who asks: names, attributes and opens are done as the process that asks, with the groups that it
// has at that moment; data calls as whoever opened the file, because a right is the opener's. Run
// by a user, everything is done as that user (the kernel lets nobody else in unless told to).
//
// A program that is interrupted while its request waits stops it (Request::stop) and gets EINTR. No
// request waits longer than the Store does: a server's client gives up after its retry_for.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "fuse/coherence.h"
#include "fuse/file_leases.h"
#include "fuse/kernel_io.h"
#include "fuse/nodes.h"
#include "fuse/write_back.h"
#include "store/listing.h"
#include "store/store.h"

namespace forebay::fuse {

class Door {
 public:
  Door(Store& store, const Found& root, const MountOptions& options);

  static const fuse_lowlevel_ops& operations();
  KernelIo& kernel() { return kernel_; }
  // Stops what is answered later, and waits for it: before the session is gone.
  void stop_pending();
  // The kernel can be told what to drop, until stop_pending().
  void start(fuse_session* session);
  const Nodes& nodes() const { return nodes_; }

 private:
  // Who has locked bytes through an open file: with its last descriptor they let go of them.
  class LockOwners {
   public:
    void add(uint64_t owner) {
      std::lock_guard lock(mutex_);
      owners_.insert(owner);
    }
    void remove(uint64_t owner) {
      std::lock_guard lock(mutex_);
      owners_.erase(owner);
    }
    const std::set<uint64_t>& all() const { return owners_; }  // when nobody adds any more

   private:
    std::mutex mutex_;
    std::set<uint64_t> owners_;
  };
  struct OpenFile {
    OpenFile(Node& of, Right granted, CallerRef opener, Access how)
        : node(of), right(std::move(granted)), caller(std::move(opener)), access(how) {}
    Node& node;
    Right right;
    CallerRef caller;
    Access access;
    bool leased = false;  // its pages are, if it has any
    uint64_t losses = 0;  // of writes: those that it does not care for, or was told of
    LockOwners owners;
  };
  struct OpenDirectory {
    std::mutex mutex;
    Listing listing;
  };
  static OpenFile& file_of(const fuse_file_info* info) {
    return *reinterpret_cast<OpenFile*>(info->fh);
  }
  static OpenDirectory& directory_of(const fuse_file_info* info) {
    return *reinterpret_cast<OpenDirectory*>(info->fh);
  }

  static void init(void* door, fuse_conn_info* kernel);

  // ---- door_names.cc ----
  void lookup(fuse_req_t req, fuse_ino_t parent, const char* name);
  void forget(fuse_req_t req, fuse_ino_t node, uint64_t lookups);
  void forget_multi(fuse_req_t req, size_t count, fuse_forget_data* all);
  void mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t device);
  void mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode);
  void symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name);
  void link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char* name);
  void unlink(fuse_req_t req, fuse_ino_t parent, const char* name);
  void rmdir(fuse_req_t req, fuse_ino_t parent, const char* name);
  void rename(fuse_req_t req, fuse_ino_t from, const char* name, fuse_ino_t to,
              const char* new_name, unsigned flags);
  void readlink(fuse_req_t req, fuse_ino_t node);

  // ---- door_attr.cc ----
  void getattr(fuse_req_t req, fuse_ino_t node, fuse_file_info* info);
  void setattr(fuse_req_t req, fuse_ino_t node, struct stat* to, int valid, fuse_file_info* info);
  void access(fuse_req_t req, fuse_ino_t node, int mask);
  void statfs(fuse_req_t req, fuse_ino_t node);
  void getxattr(fuse_req_t req, fuse_ino_t node, const char* name, size_t room);
  void setxattr(fuse_req_t req, fuse_ino_t node, const char* name, const char* value, size_t size,
                int flags);
  void listxattr(fuse_req_t req, fuse_ino_t node, size_t room);
  void removexattr(fuse_req_t req, fuse_ino_t node, const char* name);
  void answer_gate(fuse_req_t req, const OpenFile& file);
  Result<Reply> resize(fuse_req_t req, Node& node, uint64_t size, const fuse_file_info* info);

  // ---- door_data.cc ----
  void open(fuse_req_t req, fuse_ino_t node, fuse_file_info* info);
  void create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
              fuse_file_info* info);
  void read(fuse_req_t req, fuse_ino_t node, size_t size, off_t at, fuse_file_info* info);
  void write(fuse_req_t req, fuse_ino_t node, const char* bytes, size_t size, off_t at,
             fuse_file_info* info);
  void release(fuse_req_t req, fuse_ino_t node, fuse_file_info* info);
  void fsync(fuse_req_t req, fuse_ino_t node, int data_only, fuse_file_info* info);
  void fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t at, off_t length,
                 fuse_file_info* info);
  void keep(fuse_file_info* info, std::unique_ptr<OpenFile> file);
  void close(OpenFile& file);
  // What it has written is in the Store, or was lost.
  std::optional<Error> written(OpenFile& file);
  Result<void> truncate_opened(fuse_req_t req, const OpenFile& file);

  // ---- door_locks.cc ----
  void getlk(fuse_req_t req, fuse_ino_t node, fuse_file_info* info, struct flock* lock);
  void setlk(fuse_req_t req, fuse_ino_t node, fuse_file_info* info, struct flock* lock, int sleep);
  void flock(fuse_req_t req, fuse_ino_t node, fuse_file_info* info, int how);
  void flush(fuse_req_t req, fuse_ino_t node, fuse_file_info* info);
  Request about_lock(Op op, const fuse_file_info* info) const;
  void submit_lock(fuse_req_t req, Request&& request);
  void free_locks(const fuse_file_info* info);
  class Pending;
  std::shared_ptr<Pending> pend(fuse_req_t req);
  void ended(Pending& pending);

  // ---- door_dirs.cc ----
  void opendir(fuse_req_t req, fuse_ino_t node, fuse_file_info* info);
  void readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t at, fuse_file_info* info);
  void readdirplus(fuse_req_t req, fuse_ino_t node, size_t size, off_t at, fuse_file_info* info);
  struct ListFrom {
    uint64_t cookie;
    size_t size;  // of the kernel's buffer
    uint32_t flags;
  };
  Result<void> list(fuse_req_t req, Node& node, const fuse_file_info* info, ListFrom from,
                    const Listing::Take& take);
  void releasedir(fuse_req_t req, fuse_ino_t node, fuse_file_info* info);
  void fsyncdir(fuse_req_t req, fuse_ino_t node, int data_only, fuse_file_info* info);

  // ---- What they share (door.cc) ----
  Node& at(fuse_ino_t number);
  fuse_ino_t number_of(const Node& node);
  CallerRef caller(fuse_req_t req) const;
  // Who the data of an open file is handled for, or whoever asks if it is not open.
  CallerRef caller(fuse_req_t req, const fuse_file_info* info) const;
  Result<Reply> ask(fuse_req_t req, Request&& request);
  struct stat stat_of(const Attr& attr) const;
  fuse_entry_param entry_of(Node& node, const Attr& attr);
  // A file's attributes were found by its name: those it has when its writes are in the Store.
  Attr settled(fuse_req_t req, Node& node, const Attr& attr);
  // Answers a lookup, or what made a name, and counts it.
  void answer_entry(fuse_req_t req, const Result<Reply>& reply);
  void answer(fuse_req_t req, const Result<Reply>& reply);  // done, or the error
  static void fail(fuse_req_t req, const Error& error);

  Store& store_;
  const MountOptions options_;
  const CallerRef self_;
  const bool speaks_for_others_;
  Nodes nodes_;
  Coherence coherence_;
  FileLeases leases_;
  WriteBack write_back_;
  KernelIo kernel_;
  std::mutex pending_mutex_;
  std::condition_variable none_pending_;
  std::set<Pending*> pending_;
};

}  // namespace forebay::fuse
