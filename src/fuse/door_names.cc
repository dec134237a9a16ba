// Names: looking them up, making, removing and moving them.
#include <fcntl.h>
#include <stdio.h>

#include "fuse/door.h"

namespace forebay::fuse {

void Door::lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  answer_entry(
      req,
      ask(req,
          {.op = Op::lookup, .caller = caller(req), .handle = at(parent).handle(), .name = name}));
}

void Door::forget(fuse_req_t req, fuse_ino_t node, uint64_t lookups) {
  if (node != FUSE_ROOT_ID) nodes_.forget(at(node), lookups);
  fuse_reply_none(req);
}

void Door::forget_multi(fuse_req_t req, size_t count, fuse_forget_data* all) {
  for (size_t i = 0; i < count; ++i)
    if (all[i].ino != FUSE_ROOT_ID) nodes_.forget(at(all[i].ino), all[i].nlookup);
  fuse_reply_none(req);
}

// Stores keep files, directories and links; what EPERM says is in mknod(2).
void Door::mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t) {
  if (!S_ISREG(mode) && (mode & S_IFMT) != 0) return fail(req, Error(EPERM));
  answer_entry(req, ask(req, {.op = Op::create,
                              .flags = kFlagExclusive,
                              .caller = caller(req),
                              .handle = at(parent).handle(),
                              .name = name,
                              .mode = mode & 07777}));
}

void Door::mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  answer_entry(req, ask(req, {.op = Op::mkdir,
                              .caller = caller(req),
                              .handle = at(parent).handle(),
                              .name = name,
                              .mode = mode & 07777}));
}

void Door::symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  answer_entry(req, ask(req, {.op = Op::symlink,
                              .caller = caller(req),
                              .handle = at(parent).handle(),
                              .name = name,
                              .data = target}));
}

void Door::link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char* name) {
  Result<Reply> reply = ask(req, {.op = Op::link,
                                  .caller = caller(req),
                                  .handle = at(node).handle(),
                                  .handle2 = at(parent).handle(),
                                  .name2 = name});
  if (reply) reply->handle = at(node).handle();
  answer_entry(req, reply);
}

void Door::unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  answer(
      req,
      ask(req,
          {.op = Op::remove, .caller = caller(req), .handle = at(parent).handle(), .name = name}));
}

void Door::rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  answer(req, ask(req, {.op = Op::remove,
                        .flags = kFlagDirectory,
                        .caller = caller(req),
                        .handle = at(parent).handle(),
                        .name = name}));
}

void Door::rename(fuse_req_t req, fuse_ino_t from, const char* name, fuse_ino_t to,
                  const char* new_name, unsigned flags) {
  if (flags & ~unsigned{RENAME_NOREPLACE | RENAME_EXCHANGE}) return fail(req, Error(EINVAL));
  answer(req, ask(req, {.op = Op::rename,
                        .flags = (flags & RENAME_NOREPLACE ? kFlagNoReplace : 0u) |
                                 (flags & RENAME_EXCHANGE ? kFlagExchange : 0u),
                        .caller = caller(req),
                        .handle = at(from).handle(),
                        .handle2 = at(to).handle(),
                        .name = name,
                        .name2 = new_name}));
}

void Door::readlink(fuse_req_t req, fuse_ino_t node) {
  const Result<Reply> reply =
      ask(req, {.op = Op::readlink, .caller = caller(req), .handle = at(node).handle()});
  if (!reply) return fail(req, reply.error());
  fuse_reply_readlink(req, reply->data.c_str());
}

}  // namespace forebay::fuse
