// Forebay's C interface: files of a Forebay server, from C99 and C++.
//
// A program connects to an export of a server (fb_connect), opens files by path (fb_open), and
// moves bytes: contiguous (fb_pread, fb_pwrite), lists of extents (fb_readv_list, fb_writev_list)
// or nested strides (fb_read_strided, fb_write_strided). Each of them, and fb_fsync, has a
// non-blocking form with an `i` in front, which gives an fb_request to wait for or test.
//
//   fb_store* store;
//   fb_file* file;
//   if (fb_connect(NULL, NULL, &store) != 0) { puts(fb_error()); exit(1); }
//   if (fb_open(store, "/run/out", O_CREAT | O_RDWR, 0644, NULL, &file) != 0) ...
//   if (fb_pwrite(file, data, size, 0) != (int64_t)size) ...
//   fb_close(file);
//   fb_disconnect(store);
//
// Results: a function returns 0, or a count, or -1 and sets errno. fb_error() has the text of this
// thread's last error: what failed, where, and often what to do.
//
// Order: a request that overlaps an earlier one of the same connection takes effect after it, also
// if neither was waited for. No request is torn by another, whatever its size, unless its list is
// too long for the server and was cut. A write that has completed is seen by every later read of
// every client. Durable it is after fb_fsync.
//
// Threads: any thread may use any connection and any file, also at the same time. An fb_request is
// waited for or tested by one thread at a time.
//
// Fork: a child may go on using connections and files that it inherited; it gets a session of its
// own at its first call. Requests that its parent had under way are the parent's.
//
// Paths: "/a/b" and "a/b" are the same, from the export's root. Symbolic links never lead out of
// the export: an absolute one starts at the export's root, and ".." stops there.
#ifndef FOREBAY_FOREBAY_H
#define FOREBAY_FOREBAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fb_store fb_store;      // a connection to an export
typedef struct fb_file fb_file;        // an open file
typedef struct fb_dir fb_dir;          // a directory that is being listed
typedef struct fb_request fb_request;  // a non-blocking operation

// ---- Errors ----

// The text of this thread's last failed call, such as "fb_open: /a/b: No such file or directory
// (ENOENT)". Never NULL; empty before the first error. Valid until this thread's next call.
const char* fb_error(void);

// How many bytes, from the start of its stream, the write that this thread's last error is about
// had put into the file before it failed (a full disk, for example). Otherwise 0.
uint64_t fb_error_done(void);

// 1 if the operation that this thread's last error is about may or may not have happened, because
// the server was lost while it was under way; 0 if it did not happen (but see fb_error_done).
int fb_error_outcome_unknown(void);

// The library's version, such as "0.1.0".
const char* fb_version(void);

// ---- Connections ----

// Connects to an export of a server.
//   server        an address ("unix:/path", "tcp:127.0.0.1:4711") or a server's run directory
//   export_name   one of the server's exports
// NULL leaves either to the configuration (file, then FOREBAY_CLIENT_SERVER and the like in the
// environment; see docs/configuration.md), and that to the server found in the usual places and
// its only export. After a lost connection calls wait and try again, for `client.retry_for`.
// Errors: EINVAL (the configuration, or which export is meant), ENOTCONN and ECONNREFUSED (no
// server there), ENOENT (no such export, no server), EPERM (the server is another user's).
int fb_connect(const char* server, const char* export_name, fb_store** store);

// Ends a connection and frees it. Close its files and directories before: EBUSY while any is open.
// Memory of fb_alloc that was not freed is lost. NULL does nothing.
int fb_disconnect(fb_store* store);

// ---- Names ----

typedef struct fb_attr {
  uint32_t mode;  // type and permissions as in st_mode: S_ISDIR(mode), mode & 07777
  uint32_t uid, gid;
  uint32_t block_size;  // good for I/O
  uint64_t links;
  uint64_t size;       // bytes
  uint64_t allocated;  // bytes
  uint64_t file_id;    // st_ino
  uint64_t fs_id;      // one per export
  int64_t atime, mtime, ctime;
  uint32_t atime_nsec, mtime_nsec, ctime_nsec;
} fb_attr;

int fb_stat(fb_store* store, const char* path, fb_attr* attr);   // follows a symbolic link
int fb_lstat(fb_store* store, const char* path, fb_attr* attr);  // of the link itself

// The mode of what is made is `mode` without the bits of this process's umask.
int fb_mkdir(fb_store* store, const char* path, unsigned mode);
int fb_unlink(fb_store* store, const char* path);  // a directory is EISDIR
int fb_rmdir(fb_store* store, const char* path);
int fb_rename(fb_store* store, const char* from, const char* to);  // replaces `to`, atomically
int fb_link(fb_store* store, const char* file, const char* name);
int fb_symlink(fb_store* store, const char* target, const char* name);
// Puts up to `size` bytes of the link's text into `text`, without a NUL, and returns how many.
int64_t fb_readlink(fb_store* store, const char* path, char* text, size_t size);
int fb_truncate(fb_store* store, const char* path, uint64_t size);

typedef struct fb_fs {
  uint64_t block_size, blocks, blocks_free, blocks_available;
  uint64_t files, files_free;
  uint32_t name_max;
} fb_fs;

int fb_statfs(fb_store* store, const char* path, fb_fs* fs);

typedef struct fb_dirent {
  uint64_t file_id;
  uint32_t type;  // S_IFREG, S_IFDIR, ... as in st_mode; 0 if unknown
  char name[256];
} fb_dirent;

int fb_opendir(fb_store* store, const char* path, fb_dir** dir);
// The next entry, without "." and "..", in no order: 1, or 0 at the end, or -1.
int fb_readdir(fb_dir* dir, fb_dirent* entry);
int fb_closedir(fb_dir* dir);

// ---- Files ----

// Opens a file.
//   flags   of <fcntl.h>: one of O_RDONLY, O_WRONLY and O_RDWR, with O_CREAT, O_EXCL, O_TRUNC,
//           O_NOFOLLOW and O_CLOEXEC. Others are EINVAL; O_APPEND is ENOTSUP.
//   mode    permissions of a new file, less the umask
//   hints   "key=value" texts as in fb_set_hint, ended by NULL; or NULL
// A file created read-only may be written by the fb_file that created it.
int fb_open(fb_store* store, const char* path, int flags, unsigned mode, const char* const* hints,
            fb_file** file);

// Waits for the file's requests that are under way, then closes it. Requests that were begun may
// still be waited for afterwards. The file is closed even if an error is returned. Using it again
// is EBADF, as with a file descriptor: until many files later its place is taken by another one.
int fb_close(fb_file* file);

// Advice for one file. EINVAL for an unknown key (fb_error() names the nearest known one) or a
// value that the key does not have. Keys:
//   direct        on, off: does data of this file go around the server's page cache? To fb_open
//                 only (ENOTSUP here); for all who have the file open, until the last closes it.
//                 off is as without the hint: it takes nothing back that the export or another
//                 client wants.
//   write_behind  on, off: may writes be acknowledged before they are in the file system, until the
//                 next fb_fsync or fb_close? Without the hint only if the export is configured so;
//                 on has no effect if the export does not allow it. An error of such a write is
//                 reported once, by a later call on the file or by fb_fsync or fb_close. Writes of
//                 clients on the server's own node to a local file system are not kept (nor
//                 acknowledged early): its page cache does the same for less.
int fb_set_hint(fb_file* file, const char* key, const char* value);

int fb_fstat(fb_file* file, fb_attr* attr);
int fb_ftruncate(fb_file* file, uint64_t size);

// As fallocate(2). With 0: reserves space, and the file is at least offset + length long.
enum {
  FB_KEEP_SIZE = 1,     // the file's size stays
  FB_PUNCH_HOLE = 2,    // gives the space back, and zeros are read there; the size stays
  FB_ZERO_RANGE = 0x10  // zeros are read there
};
int fb_fallocate(fb_file* file, int mode, uint64_t offset, uint64_t length);

// Makes completed writes durable; fb_fdatasync without attributes that reading does not need.
int fb_fsync(fb_file* file);
int fb_fdatasync(fb_file* file);

// ---- Locks ----
//
// Advisory locks on ranges of a file's bytes, among all clients of the server. Their owner is the
// fb_file: another one excludes, also of the same process. A byte is locked in one mode at a time:
// a new lock replaces what this fb_file holds there. length 0: up to the largest offset. They end
// with fb_unlock, fb_close or the connection, whichever comes first; after a restart of the server
// they are had again, and if that is not possible the next of these calls is EIO, once.
enum { FB_SHARED = 1, FB_EXCLUSIVE = 2, FB_WAIT = 4 };

// how: FB_SHARED (the file must be open for reading) or FB_EXCLUSIVE (for writing); with FB_WAIT
// until it is granted. EAGAIN: another's lock is in the way; EDEADLK: its owner waits for one of
// ours; ENOLCK: there are too many.
int fb_lock(fb_file* file, int how, uint64_t offset, uint64_t length);
int fb_unlock(fb_file* file, uint64_t offset, uint64_t length);

typedef struct fb_lock_held {
  uint64_t offset, length;
  int how;
  uint32_t pid;  // of its owner's process, on its own machine
} fb_lock_held;

// Would fb_lock find another's lock in the way? 1: yes, the lowest is *held (which may be NULL); 0:
// no.
int fb_lock_test(fb_file* file, int how, uint64_t offset, uint64_t length, fb_lock_held* held);

// ---- Bytes ----
//
// Reads and writes have a file side and a memory side, which may have different shapes but must
// have the same number of bytes (EINVAL): byte k of the one is byte k of the other, each side taken
// in the order in which it is given. They return how many bytes were moved. A read moves fewer only
// at the end of file: it stops at its first byte that lies there or beyond. A write moves all, or
// fails (see fb_error_done). Offsets and lengths are 64-bit; a file's last byte is below 2^63 - 1.
// Pieces may overlap and go backwards.

int64_t fb_pread(fb_file* file, void* buffer, size_t size, uint64_t offset);
int64_t fb_pwrite(fb_file* file, const void* buffer, size_t size, uint64_t offset);

// A piece of a file and a piece of memory. Memory that is written from is not modified.
typedef struct fb_extent {
  uint64_t offset, length;
} fb_extent;
typedef struct fb_piece {
  void* address;
  size_t length;
} fb_piece;

// List I/O: one request, whatever the number of pieces.
int64_t fb_readv_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                      const fb_piece* pieces, size_t piece_count);
int64_t fb_writev_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                       const fb_piece* pieces, size_t piece_count);

// Blocks of `length` bytes, repeated by nested loops, the outermost first:
//
//   for i in 0 .. counts[0] - 1
//     for j in 0 .. counts[1] - 1 ...
//       the `length` bytes at offset + i * strides[0] + j * strides[1] + ...
//
// A view of a billion pieces costs as much as one of two. dimensions may be 0: one block.
typedef struct fb_strided {
  uint64_t offset, length;
  unsigned dimensions;     // at most 32
  const uint64_t* counts;  // one per dimension
  const int64_t* strides;  // bytes, one per dimension; may be negative
} fb_strided;

// Strided I/O. The offsets of the memory side count from `base`, and none of its bytes may lie
// before that; NULL for `memory` is contiguous memory at `base`.
int64_t fb_read_strided(fb_file* file, const fb_strided* view, void* base,
                        const fb_strided* memory);
int64_t fb_write_strided(fb_file* file, const fb_strided* view, const void* base,
                         const fb_strided* memory);

// ---- Non-blocking ----
//
// Each begins the operation of the same name and returns at once: 0 and a request, or -1 and none
// (*request is NULL) if it could not begin. Lists, strides and hints are copied; the memory itself
// belongs to the operation until the request is done: do not read what is being read into, nor
// change what is being written. Every request must be waited for, or tested until it is done, also
// one that was cancelled: that frees it.

int fb_ipread(fb_file* file, void* buffer, size_t size, uint64_t offset, fb_request** request);
int fb_ipwrite(fb_file* file, const void* buffer, size_t size, uint64_t offset,
               fb_request** request);
int fb_ireadv_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                   const fb_piece* pieces, size_t piece_count, fb_request** request);
int fb_iwritev_list(fb_file* file, const fb_extent* extents, size_t extent_count,
                    const fb_piece* pieces, size_t piece_count, fb_request** request);
int fb_iread_strided(fb_file* file, const fb_strided* view, void* base, const fb_strided* memory,
                     fb_request** request);
int fb_iwrite_strided(fb_file* file, const fb_strided* view, const void* base,
                      const fb_strided* memory, fb_request** request);
// Of the writes that had completed when it began; wait for the others first.
int fb_ifsync(fb_file* file, fb_request** request);
int fb_ifdatasync(fb_file* file, fb_request** request);

// Waits until the request is done, frees it and sets *request to NULL. Returns what the blocking
// function would have: a count or 0, or -1 and errno. In a forked child a request of the parent's
// that was under way is EINVAL; so is a *request that is NULL.
int64_t fb_wait(fb_request** request);

// Is the request done? 0: not yet. 1: it is; *result is its count, or minus its errno (errno and
// fb_error() tell the same), it is freed and *request is NULL. -1: EINVAL as in fb_wait.
int fb_test(fb_request** request, int64_t* result);

// Waits for all of them, frees them and sets them to NULL; entries that are NULL are left out.
// results[i] is the count or minus the errno of the i-th (0 for NULL); results may be NULL.
// Returns 0, or -1 and the errno of the first that failed.
int fb_wait_all(size_t count, fb_request* requests[], int64_t results[]);

// Waits until one of them is done, frees it, sets it to NULL and returns its index; *result is as
// in fb_test. Entries that are NULL are left out; EINVAL if all are.
int64_t fb_wait_any(size_t count, fb_request* requests[], int64_t* result);

// Asks that the request be given up. It still has to be waited for, and ends with ECANCELED, or as
// if nothing had been asked if it was too late. Any thread, until the request is freed.
int fb_cancel(fb_request* request);

// ---- What clients share about a file ----
//
// Attributes are named 64-bit numbers that the server of a file keeps for all its clients; they are
// not in the file system, and not its extended attributes. Whoever has the file open, for reading
// or writing, may use them. Each operation is atomic, and done once: also if the connection is
// lost, or the server is killed and started again, and the call goes on meanwhile. Names have 1 to
// 255 bytes, a file at most 200 attributes (ENOSPC). ENODATA: there is none of that name.

int fb_attr_create(fb_file* file, const char* name, uint64_t value);  // EEXIST
int fb_attr_remove(fb_file* file, const char* name);
int fb_attr_get(fb_file* file, const char* name, uint64_t* value);
int fb_attr_set(fb_file* file, const char* name, uint64_t value);
// Adds, modulo 2^64 (so (uint64_t)-1 subtracts), and tells the value before; before may be NULL.
int fb_attr_fetch_add(fb_file* file, const char* name, uint64_t step, uint64_t* before);
// Sets it to `desired` if it is `expected`. It was if *before is; before may be NULL.
int fb_attr_cas(fb_file* file, const char* name, uint64_t expected, uint64_t desired,
                uint64_t* before);
// Calls each(context, name, value) for every attribute, by name, until it returns something else
// than 0. The name is valid during the call.
typedef int (*fb_attr_each)(void* context, const char* name, uint64_t value);
int fb_attr_list(fb_file* file, fb_attr_each each, void* context);

// Appends: the bytes go to the end of the file, whole and in a place of their own, whoever else
// appends at the same time through whatever connection; *place, unless it is NULL, is where. Done
// once, as attributes are. Returns size, or -1: then their place, if they had one, is left as a
// hole. The end is where appends, writes, resizes and truncations that were made through Forebay
// have left it. Where several servers serve the export, an append has a quarter of its pool at most
// (16 MiB by default) if the file lives at another server than this client's: EMSGSIZE beyond, and
// nothing is written.
int64_t fb_append(fb_file* file, const void* buffer, size_t size, uint64_t* place);

// Non-blocking, as above. *before and *place are set by the call that learns that it is done.
int fb_iattr_fetch_add(fb_file* file, const char* name, uint64_t step, uint64_t* before,
                       fb_request** request);
int fb_iappend(fb_file* file, const void* buffer, size_t size, uint64_t* place,
               fb_request** request);

// ---- Memory ----

// Memory that a server on the same node can reach without a copy; page-aligned, zeroed. Other
// memory may be used for all operations as well. NULL and errno (ENOMEM; EINVAL for size 0) if
// there is none. Freed by fb_free, before fb_disconnect, when no request uses it.
void* fb_alloc(fb_store* store, size_t size);
// NULL does nothing. EINVAL for what is not from fb_alloc.
int fb_free(fb_store* store, void* memory);

#ifdef __cplusplus
}
#endif

#endif  // FOREBAY_FOREBAY_H
