// What the kernel may keep of a file, and what keeps that true. The one place of the mount where it
// matters that others use the same files.
//
// A Store that is a server's export keeps locks for all its clients, and gives appends their place:
// then both are its business (door_locks.cc, append()). Otherwise file locks are the kernel's own,
// among the processes of this mount, and an append looks at the file's size under the node's lock
// and writes there.
//
// Unless leases do (file_leases.h), nobody vouches for data: the kernel keeps none of files that
// are read and written (each call reaches the Store), and of mapped ones what it had at their last
// open or mmap.
#pragma once

#include "fuse/mount_options.h"
#include "fuse/nodes.h"
#include "store/store.h"

namespace forebay::fuse {

class Coherence {
 public:
  // `shared`: the Store keeps locks and places of appends for all its clients.
  Coherence(Cache cache, bool shared) : cache_(cache), shared_(shared) {}

  bool shared() const { return shared_; }
  // May leases vouch for what is kept?
  bool leases() const { return shared_ && (cache_ == Cache::lease || cache_ == Cache::writeback); }

  // Does the kernel's page cache serve reads, and is written through, though no lease vouches for
  // it? `maps_direct`: mappings work without.
  bool keeps_pages(bool maps_direct) const { return cache_ == Cache::pages || !maps_direct; }

  // Is it for us to say where an append goes? With pages the kernel has said it already, unless the
  // Store gives appends their place: files that are opened for that go around its pages.
  bool places_appends(bool maps_direct) const { return shared_ || !keeps_pages(maps_direct); }
  // `write` is a whole write request but for its place, which is the end of the file. Writes less
  // if that is more than a server passes on to another whole: the reply says how much.
  template <class Ask>
  Result<Reply> append(Node& node, Request&& write, uint64_t bytes, Ask&& ask) const {
    if (shared_) {
      write.flags |= kFlagAppend;
      for (;; bytes /= 2) {
        Request part = write;
        part.file = Extents({Offset(0), Length(bytes)});
        part.memory = write.memory.slice(Length(0), Length(bytes));
        Result<Reply> reply = ask(std::move(part));
        if (reply || reply.error().code() != EMSGSIZE || bytes <= 1) return reply;
      }
    }
    std::lock_guard alone(node.appending());
    Result<Reply> now = ask({.op = Op::getattr, .caller = write.caller, .handle = write.handle});
    if (!now) return now;
    if (now->attr.size > kMaxOffset - bytes) return Error(EFBIG);
    write.file = Extents({Offset(now->attr.size), Length(bytes)});
    return ask(std::move(write));
  }

 private:
  const Cache cache_;
  const bool shared_;
};

}  // namespace forebay::fuse
