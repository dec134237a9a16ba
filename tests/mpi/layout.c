// Preloaded, it makes every file look as if it lay in CephFS, striped as CEPH_FILE_LAYOUT says: an
// ordinary file system keeps no attribute of that name.
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

ssize_t getxattr(const char* path, const char* name, void* value, size_t size) {
  const char* layout = getenv("CEPH_FILE_LAYOUT");
  if (!layout || strcmp(name, "ceph.file.layout") != 0) {
    ssize_t (*next)(const char*, const char*, void*, size_t);
    *(void**)&next = dlsym(RTLD_NEXT, "getxattr");
    return next(path, name, value, size);
  }
  const size_t length = strlen(layout);
  if (size == 0) return (ssize_t)length;
  if (size < length) {
    errno = ERANGE;
    return -1;
  }
  memcpy(value, layout, length);
  return (ssize_t)length;
}
