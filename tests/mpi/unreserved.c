// Preloaded, it makes every file system one that reserves no space, as CephFS and many others.
// (Without <fcntl.h>, in which the two may be one.)
#include <errno.h>
#include <sys/types.h>

int fallocate64(int fd, int mode, off_t offset, off_t length) {
  (void)fd, (void)mode, (void)offset, (void)length;
  errno = EOPNOTSUPP;
  return -1;
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
  return fallocate64(fd, mode, offset, length);
}
