// MemoryFs: the inodes behind a MemoryStore and what each operation does to them. Not thread-safe:
// the store's lock covers it. One function per operation of core/op.h; the handle of the request is
// already resolved to its inode, and check() has passed.
//
// Invariants:
//  1. An inode lives while it has a name or an open right; directories are never open, so they go
//     with their name. The top directory stays.
//  2. File ids are never used again, so an id is its own generation: an id that is not found is a
//     file that is gone.
//  3. A directory's parent is the directory that holds its one name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/op.h"
#include "store/memory_content.h"
#include "store/sealed.h"

namespace forebay {

class MemoryFs {
 public:
  MemoryFs(uint64_t limit, uint64_t fs_id);

  Result<Reply> perform(Request& request);
  Result<void> admits(const Request& request);  // a read or write
  Handle top() const;
  size_t open_rights() const { return open_.size(); }

 private:
  struct Inode {
    explicit Inode(Budget& budget) : content(budget) {}
    Attr attr;
    SparseBytes content;                        // files
    std::string target;                         // symbolic links
    std::map<std::string, std::string> xattrs;  // names with their "user."
    uint64_t opens = 0;

    // Directories. A cookie is given to an entry once and never again, so that readdir goes on
    // where it stopped whatever was added or removed meanwhile.
    struct Slot {
      uint64_t file_id, cookie;
    };
    std::unordered_map<std::string, Slot> names;
    std::map<uint64_t, std::string> order;  // by cookie
    uint64_t next_cookie = 1;
    uint64_t parent = 0;
  };

  // What a right says about itself.
  struct Grant {
    uint64_t file_id, nonce;
    uint32_t uid;
    Access access;
  };

  using Operation = Result<Reply> (MemoryFs::*)(Inode&, Request&);
  static Operation operation(Op op);

  Result<Reply> lookup(Inode& top, Request& r);
  Result<Reply> open(Inode& file, Request& r);
  Result<Reply> close(Inode& file, Request& r);
  Result<Reply> create(Inode& directory, Request& r);
  Result<Reply> remove(Inode& directory, Request& r);
  Result<Reply> rename(Inode& directory, Request& r);
  Result<Reply> link(Inode& file, Request& r);
  Result<Reply> symlink(Inode& directory, Request& r);
  Result<Reply> readlink(Inode& file, Request& r);
  Result<Reply> mkdir(Inode& directory, Request& r);
  Result<Reply> readdir(Inode& directory, Request& r);
  Result<Reply> getattr(Inode& file, Request& r);
  Result<Reply> setattr(Inode& file, Request& r);
  Result<Reply> resize(Inode& file, Request& r);
  Result<Reply> fallocate(Inode& file, Request& r);
  Result<Reply> commit(Inode& file, Request& r);
  Result<Reply> statfs(Inode& file, Request& r);
  Result<Reply> read(Inode& file, Request& r);
  Result<Reply> write(Inode& file, Request& r);
  Result<Reply> layout(Inode& file, Request& r);
  Result<Reply> xattr_get(Inode& file, Request& r);
  Result<Reply> xattr_set(Inode& file, Request& r);
  Result<Reply> xattr_list(Inode& file, Request& r);
  Result<Reply> xattr_remove(Inode& file, Request& r);

  // Names to inodes and back.
  Result<Inode*> resolve(const Handle& handle);
  Handle handle_of(const Inode& inode) const;
  Inode& inode(uint64_t file_id);
  // Is it a directory that the caller may search?
  Result<void> enter(const Inode& directory, const Caller& caller) const;
  Inode* find(const Inode& directory, const std::string& name);
  Result<Inode*> child(Inode& directory, const std::string& name, const Caller& caller);
  // Fails with EEXIST if the name is taken, and unless the caller may add it.
  Result<void> may_add(Inode& directory, const std::string& name, const Caller& caller);
  bool is_within(const Inode& inode, uint64_t ancestor);

  // Changes of the tree.
  Inode& add(Inode& directory, const std::string& name, FileType type, uint32_t mode,
             const Caller& caller);
  void enter_name(Inode& directory, const std::string& name, Inode& file);
  void drop_name(Inode& directory, const std::string& name, Inode& file);
  void drop_link(Inode& file);
  void collect(Inode& file);
  Result<void> may_replace(const Request& r, const Inode& directory, const Inode& old,
                           bool by_directory);
  Result<void> may_rename(const Request& r, const Inode& from, const Inode& to, const Inode& source,
                          const Inode* target);

  // Rights.
  Right grant(Inode& file, Access access, const Caller& caller);
  Result<Grant> examine(const Right& right, const Inode& file, const Caller& caller) const;
  // The right must allow `access`; opens it again if it is not open.
  Result<Grant> may_use(const Request& r, const Inode& file, Access access) const;
  Result<void> use(const Request& r, Inode& file, Access access);
  // The same where the right is optional: without one, the mode bits decide.
  Result<void> use_or_may(const Request& r, Inode& file, Access access);

  void truncate(Inode& file, uint64_t size);
  void modified(Inode& file);
  void changed(Inode& file);
  Result<void> xattr_access(const Inode& file, const Request& r, uint32_t want) const;
  Reply described(const Inode& file, bool with_handle) const;

  const SealKey key_ = SealKey::random();
  const uint64_t limit_, fs_id_;
  Budget budget_;  // outlives the inodes that pay from it
  std::unordered_map<uint64_t, std::unique_ptr<Inode>> inodes_;
  std::unordered_map<uint64_t, uint64_t> open_;  // nonce of a right to file id
  uint64_t next_file_id_ = 1;
  uint64_t next_nonce_ = 1;
};

}  // namespace forebay
