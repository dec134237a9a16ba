/* A preload for MPICH with more ranks than cores. MPICH polls without ever giving the core away, so
 * that a rank waits out another's whole time slice; here the poll yields once it has found nothing
 * a few times. For tests and benchmarks, of us and of others alike. */
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>

typedef unsigned (*progress_fn)(void*);

/* Polls in a row without an event; more than a few are a wait, not a look. */
enum { idle_polls = 20 };

static progress_fn find_real(void) {
  void* symbol = dlsym(RTLD_NEXT, "ucp_worker_progress");
  /* An interpreter opens the MPI with local scope. */
  void* ucp = symbol ? NULL : dlopen("libucp.so.0", RTLD_LAZY);
  if (ucp) symbol = dlsym(ucp, "ucp_worker_progress");
  progress_fn real;
  *(void**)&real = symbol;
  return real;
}

unsigned ucp_worker_progress(void* worker) {
  static progress_fn real;
  static __thread int idle;
  if (!real) real = find_real();
  unsigned events = real(worker);
  if (events) {
    idle = 0;
  } else if (++idle >= idle_polls) {
    idle = 0;
    sched_yield();
  }
  return events;
}
