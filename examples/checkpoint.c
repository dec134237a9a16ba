// A checkpoint as a parallel program writes one: several ranks, one shared file.
//
//   checkpoint PATH [RANKS [STEPS]]
//
// Each rank (here a thread; in an MPI program a process) holds a slab of a field and owns every
// RANKS-th block of the file:
//
//   | header | rank 0 | rank 1 | rank 2 | rank 0 | rank 1 | rank 2 | ...
//
// It writes its blocks in one request (list I/O) while it computes its next step, then all is made
// durable, read back by strided I/O and checked. The server is the one that FOREBAY_CLIENT_SERVER
// or the configuration names.
#include <fcntl.h>
#include <forebay/forebay.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 64, BLOCK = 4096, BLOCKS = 64, MAX_RANKS = 64 };  // BLOCKS: of a rank in a step

typedef struct {
  fb_store* store;
  fb_file* file;
  unsigned rank, ranks, steps;
  int failed;
} rank_t;

// Says what went wrong and gives up this rank.
static int complain(rank_t* self, const char* doing) {
  fprintf(stderr, "checkpoint: rank %u: %s: %s\n", self->rank, doing, fb_error());
  return self->failed = 1;
}

// What byte i of a rank's slab is in a step.
static unsigned char value(unsigned rank, unsigned step, size_t i) {
  return (unsigned char)(rank * 31 + step * 7 + i / BLOCK + i);
}

static void compute(unsigned char* slab, unsigned rank, unsigned step) {
  for (size_t i = 0; i < (size_t)BLOCKS * BLOCK; ++i) slab[i] = value(rank, step, i);
}

// Where block b of a rank in a step is in the file.
static uint64_t place(const rank_t* self, unsigned step, unsigned b) {
  const uint64_t block = ((uint64_t)step * BLOCKS + b) * self->ranks + self->rank;
  return HEADER + block * BLOCK;
}

// Begins to write a slab: one request, whatever the number of blocks. The list is copied, so it may
// live on the stack; the slab must stay as it is until the request is done.
static int begin_write(rank_t* self, unsigned step, unsigned char* slab, fb_request** request) {
  fb_extent extents[BLOCKS];
  fb_piece piece;
  for (unsigned b = 0; b < BLOCKS; ++b) {
    extents[b].offset = place(self, step, b);
    extents[b].length = BLOCK;
  }
  piece.address = slab;
  piece.length = (size_t)BLOCKS * BLOCK;
  return fb_iwritev_list(self->file, extents, BLOCKS, &piece, 1, request);
}

// Reads a slab back. The blocks are evenly spaced, so a few numbers say where all of them are.
static int check(rank_t* self, unsigned step, unsigned char* slab) {
  const uint64_t count = BLOCKS;
  const int64_t stride = (int64_t)self->ranks * BLOCK;
  const int64_t size = (int64_t)BLOCKS * BLOCK;
  fb_strided view = {0, BLOCK, 1, NULL, NULL};
  view.offset = place(self, step, 0);
  view.counts = &count;
  view.strides = &stride;
  memset(slab, 0, (size_t)size);
  if (fb_read_strided(self->file, &view, slab, NULL) != size) return complain(self, "reading");
  for (size_t i = 0; i < (size_t)size; ++i) {
    if (slab[i] == value(self->rank, step, i)) continue;
    fprintf(stderr, "checkpoint: rank %u: step %u: byte %zu is wrong\n", self->rank, step, i);
    return self->failed = 1;
  }
  return 0;
}

// Two slabs: while one is being written, the next step is computed in the other.
static int write_steps(rank_t* self, unsigned char* slabs[2]) {
  fb_request* under_way[2] = {NULL, NULL};
  int bad = 0;
  for (unsigned step = 0; step < self->steps && !bad; ++step) {
    const unsigned turn = step % 2;
    if (under_way[turn] && fb_wait(&under_way[turn]) < 0) bad = complain(self, "writing");
    if (bad) break;
    compute(slabs[turn], self->rank, step);
    if (begin_write(self, step, slabs[turn], &under_way[turn]) != 0)
      bad = complain(self, "beginning to write");
  }
  // Also after an error: until a request is done, its memory is not ours.
  if (fb_wait_all(2, under_way, NULL) != 0) bad = complain(self, "writing");
  if (!bad && fb_fdatasync(self->file) != 0) bad = complain(self, "syncing");
  return bad;
}

static void* run_rank(void* argument) {
  rank_t* self = argument;
  unsigned char* slabs[2];
  // Memory that a server on this node reaches without a copy; malloc's would do as well.
  slabs[0] = fb_alloc(self->store, (size_t)BLOCKS * BLOCK);
  slabs[1] = fb_alloc(self->store, (size_t)BLOCKS * BLOCK);
  if (!slabs[0] || !slabs[1]) {
    complain(self, "allocating");
  } else if (write_steps(self, slabs) == 0) {
    for (unsigned step = 0; step < self->steps && !self->failed; ++step)
      check(self, step, slabs[0]);
  }
  fb_free(self->store, slabs[0]);
  fb_free(self->store, slabs[1]);
  return NULL;
}

static int run_ranks(fb_store* store, fb_file* file, unsigned ranks, unsigned steps) {
  rank_t all[MAX_RANKS];
  pthread_t threads[MAX_RANKS];
  unsigned started = 0;
  int failed = 0;
  for (; started < ranks && !failed; ++started) {
    rank_t rank = {store, file, started, ranks, steps, 0};
    all[started] = rank;
    failed = pthread_create(&threads[started], NULL, run_rank, &all[started]);
    if (failed) break;
  }
  for (unsigned i = 0; i < started; ++i) {
    pthread_join(threads[i], NULL);
    failed |= all[i].failed;
  }
  return failed;
}

static int write_header(fb_file* file, unsigned ranks, unsigned steps) {
  char header[HEADER] = "";
  snprintf(header, sizeof header, "checkpoint ranks=%u steps=%u block=%d\n", ranks, steps, BLOCK);
  return fb_pwrite(file, header, sizeof header, 0) == HEADER ? 0 : -1;
}

static int complain_of_all(const char* doing) {
  fprintf(stderr, "checkpoint: %s: %s\n", doing, fb_error());
  return 1;
}

int main(int argc, char** argv) {
  const int ranks = argc > 2 ? atoi(argv[2]) : 4, steps = argc > 3 ? atoi(argv[3]) : 8;
  fb_store* store = NULL;
  fb_file* file = NULL;
  fb_attr attr;
  int failed = 0;
  if (argc < 2 || ranks < 1 || ranks > MAX_RANKS || steps < 1) {
    fprintf(stderr, "usage: %s PATH [RANKS (1 to %d) [STEPS]]\n", argv[0], MAX_RANKS);
    return 2;
  }
  if (fb_connect(NULL, NULL, &store) != 0) return complain_of_all("connecting");
  if (fb_open(store, argv[1], O_CREAT | O_TRUNC | O_RDWR, 0644, NULL, &file) != 0) {
    failed = complain_of_all("opening");
  } else {
    if (write_header(file, (unsigned)ranks, (unsigned)steps) != 0)
      failed = complain_of_all("writing the header");
    else
      failed = run_ranks(store, file, (unsigned)ranks, (unsigned)steps);
    if (!failed && fb_fstat(file, &attr) != 0) failed = complain_of_all("looking at the size");
    if (fb_close(file) != 0) failed = complain_of_all("closing");
  }
  if (!failed)
    printf("%d ranks wrote %d steps to %s, %" PRIu64 " bytes, and read them back: all good\n",
           ranks, steps, argv[1], attr.size);
  return fb_disconnect(store) != 0 || failed ? 1 : 0;
}
