// What the kernel may keep of a file, and what keeps that true. The one place of the mount where it
// matters that others use the same files: leases, locks across clients and appends across nodes are
// added here, and only here, when a Store offers them.
//
// Today nobody vouches for anything: the kernel keeps no data of files that are read and written
// (each call reaches the Store), and of mapped ones what it had at their last open or mmap; file
// locks are the kernel's own, among the processes of this mount; an append looks at the file's size
// under the node's lock and writes there, so appends of one mount never overlap, and those of two
// mounts may.
//
//  - A read lease, taken in opened() and given back in closed(), would let `keep_pages` be true;
//  its
//    recall calls fuse_lowlevel_notify_inval_inode with the node's number before it is
//    acknowledged.
//  - An append of the Store's own replaces append()'s two requests by one.
//  - Locks of the Store's own are getlk, setlk and flock in door.cc's table: while those are absent
//    the kernel does them itself.
#pragma once

#include "fuse/mount_options.h"
#include "fuse/nodes.h"
#include "store/store.h"

namespace forebay::fuse {

class Coherence {
 public:
  explicit Coherence(Cache cache) : cache_(cache) {}

  // How an open file is to be treated by the kernel.
  struct Keep {
    bool pages = false;       // its page cache serves reads, and is written through
    bool over_opens = false;  // and outlives an open
  };
  // `maps_direct`: mappings work without `pages`.
  Keep opened(bool maps_direct) const { return {cache_ == Cache::pages || !maps_direct, false}; }
  void closed(Node&) const {}

  // Is it for us to say where an append goes? With pages the kernel has said it already.
  bool places_appends(bool maps_direct) const { return !opened(maps_direct).pages; }
  // `write` is a whole write request but for its place, which is the end of the file.
  template <class Ask>
  Result<Reply> append(Node& node, Request&& write, uint64_t bytes, Ask&& ask) const {
    std::lock_guard alone(node.appending());
    Result<Reply> now = ask({.op = Op::getattr, .caller = write.caller, .handle = write.handle});
    if (!now) return now;
    if (now->attr.size > kMaxOffset - bytes) return Error(EFBIG);
    write.file = Extents({Offset(now->attr.size), Length(bytes)});
    return ask(std::move(write));
  }

 private:
  const Cache cache_;
};

}  // namespace forebay::fuse
