// Asynchronous I/O as libc has it (aio_read and so on), which calls the kernel from threads of
// libc's own. On a served file it is done at once, by the caller: aio_error(3), aio_return(3) and
// aio_suspend(3) look at the control block and find it finished.
#include <aio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

void notify(const sigevent& how) {
  if (how.sigev_notify == SIGEV_SIGNAL) ::sigqueue(::getpid(), how.sigev_signo, how.sigev_value);
  if (how.sigev_notify == SIGEV_THREAD) how.sigev_notify_function(how.sigev_value);
}

void settle(aiocb64* one, ssize_t result) {
  one->__return_value = result;
  one->__error_code = result < 0 ? errno : 0;
}

void transfer(aiocb64* one, bool write) {
  auto* const bytes = const_cast<void*>(one->aio_buf);
  settle(one, write ? ::pwrite64(one->aio_fildes, bytes, one->aio_nbytes, one->aio_offset)
                    : ::pread64(one->aio_fildes, bytes, one->aio_nbytes, one->aio_offset));
}

bool is_ours(const aiocb64* one) {
  return one && is_served(one->aio_fildes);
}

}  // namespace

extern "C" {

int fb_aio_read(aiocb64* one) {
  if (!is_ours(one)) return next<"aio_read64", int>(one);
  transfer(one, false);
  notify(one->aio_sigevent);
  return 0;
}
int fb_aio_write(aiocb64* one) {
  if (!is_ours(one)) return next<"aio_write64", int>(one);
  transfer(one, true);
  notify(one->aio_sigevent);
  return 0;
}
int fb_aio_fsync(int how, aiocb64* one) {
  if (!is_ours(one)) return next<"aio_fsync64", int>(how, one);
  if (how != O_DSYNC && how != O_SYNC) return errno = EINVAL, -1;
  settle(one, how == O_SYNC ? ::fsync(one->aio_fildes) : ::fdatasync(one->aio_fildes));
  notify(one->aio_sigevent);
  return 0;
}
int fb_aio_cancel(int fd, aiocb64* one) {
  return is_served(fd) ? AIO_ALLDONE : next<"aio_cancel64", int>(fd, one);
}
// Ours are done first; the others are libc's, with its own way to wait.
int fb_lio_listio(int mode, aiocb64* const list[], int count, sigevent* event) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += is_ours(list[i]);
  if (found == 0) return next<"lio_listio64", int>(mode, list, count, event);
  auto** const others = static_cast<aiocb64**>(::malloc(sizeof(aiocb64*) * unsigned(count)));
  if (!others) return errno = EAGAIN, -1;
  bool failed = false;
  for (int i = 0; i < count; ++i) {
    others[i] = is_ours(list[i]) ? nullptr : list[i];
    if (others[i] == list[i] || list[i]->aio_lio_opcode == LIO_NOP) continue;
    transfer(list[i], list[i]->aio_lio_opcode == LIO_WRITE);
    notify(list[i]->aio_sigevent);
    failed = failed || list[i]->__error_code != 0;
  }
  const int done = next<"lio_listio64", int>(mode, others, count, event);
  ::free(others);
  return failed && mode == LIO_WAIT ? (errno = EIO, -1) : done;
}

FOREBAY_EXPORT(aio_read, fb_aio_read);
FOREBAY_EXPORT(aio_read64, fb_aio_read);
FOREBAY_EXPORT(aio_write, fb_aio_write);
FOREBAY_EXPORT(aio_write64, fb_aio_write);
FOREBAY_EXPORT(aio_fsync, fb_aio_fsync);
FOREBAY_EXPORT(aio_fsync64, fb_aio_fsync);
FOREBAY_EXPORT(aio_cancel, fb_aio_cancel);
FOREBAY_EXPORT(aio_cancel64, fb_aio_cancel);
FOREBAY_EXPORT(lio_listio, fb_lio_listio);
FOREBAY_EXPORT(lio_listio64, fb_lio_listio);
}
