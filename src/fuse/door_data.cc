// Open files and their bytes.
#include <fcntl.h>

#include "fuse/door.h"
#include "fuse/worker.h"
#include "store/open_path.h"

namespace forebay::fuse {

// ---- Opening and closing ----

void Door::keep(fuse_file_info* info, std::unique_ptr<OpenFile> file) {
  // Where an append goes is not for a kernel to say that others do not ask.
  const bool appends = coherence_.shared() && (info->flags & O_APPEND);
  // Whoever writes through pages keeps them locked meanwhile: two who wait for each other's pages
  // would wait for good.
  file->leased = leases_.keeps(file->node) && file->access == Access::read && !appends &&
                 kernel_.maps_direct();
  info->direct_io = appends || !(file->leased || coherence_.keeps_pages(kernel_.maps_direct()));
  info->keep_cache = file->leased && leases_.opened(file->node);
  if (file->leased) write_back_.opened_to_read(file->node);
  if (allows(file->access, Access::write)) write_back_.opened_to_write(file->node);
  file->losses = write_back_.errors(file->node);
  // A completed write is in the Store already; but with its last flush a process lets go of locks.
  info->noflush = !coherence_.shared();
  info->fh = reinterpret_cast<uint64_t>(file.release());
}

void Door::close(OpenFile& file) {
  if (allows(file.access, Access::write)) write_back_.closed_to_write(file.node);
  if (file.leased) leases_.closed(file.node);
  if (file.leased) write_back_.closed_to_read(file.node);
  (void)store_.call(
      {.op = Op::close, .caller = file.caller, .handle = file.node.handle(), .right = file.right});
}

std::optional<Error> Door::written(OpenFile& file) {
  write_back_.settle(file.node);
  return write_back_.take_error(file.node, file.losses);
}

// O_TRUNC. Of a file that is opened for reading it wants the right to write all the same.
Result<void> Door::truncate_opened(fuse_req_t req, const OpenFile& file) {
  const bool writes = allows(file.access, Access::write);
  write_back_.settle(file.node);
  Result<Reply> cut = ask(req, {.op = Op::resize,
                                .caller = file.caller,
                                .handle = file.node.handle(),
                                .right = writes ? file.right : Right()});
  if (!cut) return std::move(cut).error();
  return {};
}

void Door::open(fuse_req_t req, fuse_ino_t number, fuse_file_info* info) {
  Node& node = at(number);
  auto file = std::make_unique<OpenFile>(node, Right(), caller(req), access_of(info->flags));
  Result<Reply> opened = ask(
      req,
      {.op = Op::open, .caller = file->caller, .handle = node.handle(), .access = file->access});
  if (!opened) return fail(req, opened.error());
  file->right = std::move(opened->right);
  if (info->flags & O_TRUNC) {
    if (auto cut = truncate_opened(req, *file); !cut) return close(*file), fail(req, cut.error());
    leases_.changed(node, UINT64_MAX);
  }
  OpenFile& kept = *file;
  keep(info, std::move(file));
  if (fuse_reply_open(req, info) == 0) return;
  close(kept);  // the program was interrupted meanwhile
  delete &kept;
}

void Door::create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
                  fuse_file_info* info) {
  const CallerRef who = caller(req);
  const Access access = access_of(info->flags);
  Result<Reply> made = ask(req, {.op = Op::create,
                                 .flags = (info->flags & O_EXCL ? kFlagExclusive : 0u) |
                                          (info->flags & O_TRUNC ? kFlagTruncate : 0u),
                                 .caller = who,
                                 .handle = at(parent).handle(),
                                 .name = name,
                                 .access = access,
                                 .mode = mode & 07777});
  if (!made) return fail(req, made.error());
  Node& node = nodes_.remember(made->handle, made->attr);
  auto file = std::make_unique<OpenFile>(node, std::move(made->right), who, access);
  OpenFile& kept = *file;
  keep(info, std::move(file));
  const fuse_entry_param entry = entry_of(node, made->attr);
  if (fuse_reply_create(req, &entry, info) == 0) return;
  close(kept);
  delete &kept;
  nodes_.forget(node, 1);
}

void Door::release(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  free_locks(info);
  const std::unique_ptr<OpenFile> file(&file_of(info));
  close(*file);
  fuse_reply_err(req, 0);
}

// ---- Bytes ----

void Door::read(fuse_req_t req, fuse_ino_t, size_t size, off_t at, fuse_file_info* info) {
  const OpenFile& file = file_of(info);
  const auto room = Worker::here().reply().first(std::min(size, kMostData));
  write_back_.settle(file.node);
  if (file.leased) leases_.reads(file.node, number_of(file.node), {file.right, file.caller});
  const Result<Reply> reply =
      ask(req, {.op = Op::read,
                .caller = file.caller,
                .handle = file.node.handle(),
                .right = file.right,
                .file = Extents({Offset(static_cast<uint64_t>(at)), Length(room.size())}),
                .memory = Memory::of(room)});
  if (!reply) return fail(req, reply.error());
  fuse_reply_buf(req, reinterpret_cast<const char*>(room.data()), reply->count);
}

void Door::write(fuse_req_t req, fuse_ino_t, const char* bytes, size_t size, off_t at,
                 fuse_file_info* info) {
  const OpenFile& file = file_of(info);
  const std::span data(reinterpret_cast<const std::byte*>(bytes), size);
  Request request = {.op = Op::write,
                     .flags = kFlagStable,
                     .caller = file.caller,
                     .handle = file.node.handle(),
                     .right = file.right,
                     .memory = Memory::of(data)};
  const bool append = (info->flags & O_APPEND) && !info->writepage &&
                      coherence_.places_appends(kernel_.maps_direct());
  const bool at_once =
      append || info->writepage || (info->flags & O_DSYNC) || !kernel_.maps_direct();
  if (!at_once &&
      write_back_.keep(file.node, {file.right, file.caller}, static_cast<uint64_t>(at), data)) {
    leases_.changed(file.node, static_cast<uint64_t>(at) + size);
    return void(fuse_reply_write(req, size));
  }
  write_back_.settle(file.node);
  Result<Reply> reply(std::in_place);
  if (append) {
    reply = coherence_.append(file.node, std::move(request), size,
                              [&](Request&& one) { return ask(req, std::move(one)); });
  } else {
    request.file = Extents({Offset(static_cast<uint64_t>(at)), Length(size)});
    reply = ask(req, std::move(request));
  }
  const uint64_t start = append && reply ? reply->value : static_cast<uint64_t>(at);
  leases_.changed(file.node, start + (reply ? reply->count : size));
  // What is there is there: the program writes the rest again and hears why it cannot.
  const uint64_t count = reply ? reply->count : reply.error().done();
  if (!reply && count == 0) return fail(req, reply.error());
  if (info->flags & O_DSYNC && !info->writepage) {  // O_SYNC is a larger one
    const Result<Reply> safe = ask(req, {.op = Op::commit,
                                         .caller = file.caller,
                                         .handle = file.node.handle(),
                                         .right = file.right});
    if (!safe) return fail(req, safe.error());
  }
  fuse_reply_write(req, count);
}

void Door::fsync(fuse_req_t req, fuse_ino_t, int data_only, fuse_file_info* info) {
  OpenFile& file = file_of(info);
  if (const auto loss = written(file)) return fail(req, *loss);
  answer(req, ask(req, {.op = Op::commit,
                        .flags = data_only ? kFlagDataOnly : 0u,
                        .caller = file.caller,
                        .handle = file.node.handle(),
                        .right = file.right}));
}

void Door::fallocate(fuse_req_t req, fuse_ino_t, int mode, off_t at, off_t length,
                     fuse_file_info* info) {
  constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  if (mode & ~kKnown) return fail(req, Error(EOPNOTSUPP));
  const OpenFile& file = file_of(info);
  write_back_.settle(file.node);
  const Result<Reply> done =
      ask(req, {.op = Op::fallocate,
                .flags = (mode & FALLOC_FL_KEEP_SIZE ? kFlagKeepSize : 0u) |
                         (mode & FALLOC_FL_PUNCH_HOLE ? kFlagPunchHole : 0u) |
                         (mode & FALLOC_FL_ZERO_RANGE ? kFlagZeroRange : 0u),
                .caller = file.caller,
                .handle = file.node.handle(),
                .right = file.right,
                .offset = Offset(static_cast<uint64_t>(at)),
                .length = Length(static_cast<uint64_t>(length))});
  leases_.changed(file.node, static_cast<uint64_t>(at) + static_cast<uint64_t>(length));
  answer(req, done);
}

}  // namespace forebay::fuse
