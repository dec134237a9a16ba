#include "capi/attributes.h"

#include <sys/stat.h>

namespace forebay::capi {
uint32_t type_bits(FileType type) {
  constexpr uint32_t kBits[] = {0,       S_IFREG,  S_IFDIR, S_IFLNK,
                                S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR};  // in FileType's order
  return kBits[static_cast<size_t>(type)];
}

fb_attr to_c(const Attr& attr) {
  fb_attr out = {};
  out.mode = type_bits(attr.type) | (attr.mode & 07777);
  out.uid = attr.uid;
  out.gid = attr.gid;
  out.block_size = attr.block_size;
  out.links = attr.links;
  out.size = attr.size;
  out.allocated = attr.allocated;
  out.file_id = attr.file_id;
  out.fs_id = attr.fs_id;
  out.atime = attr.atime.seconds;
  out.mtime = attr.mtime.seconds;
  out.ctime = attr.ctime.seconds;
  out.atime_nsec = attr.atime.nanoseconds;
  out.mtime_nsec = attr.mtime.nanoseconds;
  out.ctime_nsec = attr.ctime.nanoseconds;
  return out;
}

}  // namespace forebay::capi
