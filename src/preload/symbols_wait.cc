// Waiting for descriptors: a file is always ready.
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/select.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

bool any_served(const pollfd* all, nfds_t count) {
  for (nfds_t i = 0; active() && i < count; ++i)
    if (is_served(all[i].fd)) return true;
  return false;
}

short wanted(const pollfd& one) {
  constexpr int kReady = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
  return is_served(one.fd) ? static_cast<short>(one.events & kReady) : short{0};
}

// The kernel hears of the others only; `wait` is told whether one of ours is ready already.
template <class Wait>
int poll_others(pollfd* all, nfds_t count, Wait&& wait) {
  auto* const others = static_cast<pollfd*>(::malloc(count * sizeof(pollfd)));
  if (!others) return errno = ENOMEM, -1;
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    others[i] = all[i];
    if (is_served(all[i].fd)) others[i].fd = -1;
    if (wanted(all[i])) ++ready;
  }
  const int done = wait(others, ready > 0);
  for (nfds_t i = 0; done >= 0 && i < count; ++i)
    all[i].revents = is_served(all[i].fd) ? wanted(all[i]) : others[i].revents;
  ::free(others);
  return done < 0 ? done : done + ready;
}

// The sets of what is ours, taken out; how many.
int take_out(int count, fd_set* set, fd_set* ours) {
  int found = 0;
  FD_ZERO(ours);
  for (int fd = 0; set && fd < count && fd < FD_SETSIZE; ++fd)
    if (FD_ISSET(fd, set) && is_served(fd)) {
      FD_CLR(fd, set);
      FD_SET(fd, ours);
      ++found;
    }
  return found;
}
void put_back(int count, fd_set* set, const fd_set* ours) {
  for (int fd = 0; set && fd < count && fd < FD_SETSIZE; ++fd)
    if (FD_ISSET(fd, ours)) FD_SET(fd, set);
}

template <class Wait>
int select_others(int count, fd_set* in, fd_set* out, fd_set* other, Wait&& wait) {
  fd_set ready_in, ready_out, ignored;
  const int found = take_out(count, in, &ready_in) + take_out(count, out, &ready_out);
  take_out(count, other, &ignored);
  const int done = wait(found > 0);
  if (done < 0) return done;
  put_back(count, in, &ready_in);
  put_back(count, out, &ready_out);
  return done + found;
}

}  // namespace

extern "C" {

int fb_poll(pollfd* all, nfds_t count, int timeout) {
  if (!any_served(all, count)) return next<"poll", int>(all, count, timeout);
  return poll_others(all, count, [&](pollfd* others, bool ready) {
    return next<"poll", int>(others, count, ready ? 0 : timeout);
  });
}
int fb_poll_chk(pollfd* all, nfds_t count, int timeout, size_t size) {
  if (size / sizeof *all < count) ::abort();
  return fb_poll(all, count, timeout);
}
int fb_ppoll(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!any_served(all, count)) return next<"ppoll", int>(all, count, timeout, mask);
  const timespec now = {0, 0};
  return poll_others(all, count, [&](pollfd* others, bool ready) {
    return next<"ppoll", int>(others, count, ready ? &now : timeout, mask);
  });
}
int fb_ppoll_chk(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask,
                 size_t size) {
  if (size / sizeof *all < count) ::abort();
  return fb_ppoll(all, count, timeout, mask);
}
int fb_select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* timeout) {
  if (!active()) return next<"select", int>(count, in, out, other, timeout);
  timeval now = {0, 0};
  return select_others(count, in, out, other, [&](bool ready) {
    return next<"select", int>(count, in, out, other, ready ? &now : timeout);
  });
}
int fb_pselect(int count, fd_set* in, fd_set* out, fd_set* other, const timespec* timeout,
               const sigset_t* mask) {
  if (!active()) return next<"pselect", int>(count, in, out, other, timeout, mask);
  const timespec now = {0, 0};
  return select_others(count, in, out, other, [&](bool ready) {
    return next<"pselect", int>(count, in, out, other, ready ? &now : timeout, mask);
  });
}
int fb_epoll_ctl(int poll, int how, int fd, epoll_event* event) {
  if (is_served(fd)) return errno = EPERM, -1;
  return next<"epoll_ctl", int>(poll, how, fd, event);
}
// As if there were no watches left: then programs look again and again by themselves.
int fb_inotify_add_watch(int watch, const char* path, uint32_t mask) {
  const Route route(AT_FDCWD, path, !(mask & IN_DONT_FOLLOW));
  if (route.served()) return refuse("inotify", "a served file cannot be watched", ENOSPC);
  return next<"inotify_add_watch", int>(watch, route.path, mask);
}

FOREBAY_EXPORT(poll, fb_poll);
FOREBAY_EXPORT(__poll_chk, fb_poll_chk);
FOREBAY_EXPORT(ppoll, fb_ppoll);
FOREBAY_EXPORT(__ppoll_chk, fb_ppoll_chk);
FOREBAY_EXPORT(select, fb_select);
FOREBAY_EXPORT(pselect, fb_pselect);
FOREBAY_EXPORT(epoll_ctl, fb_epoll_ctl);
FOREBAY_EXPORT(inotify_add_watch, fb_inotify_add_watch);
}
