// A trace of a parallel program, written as the Open Trace Format writes it through IOFSL: many
// writers append event records of any size to a few files that they share, each at a place of its
// own, and keep an index of the places; a reader merges the records by time.
//
//   tracelog FOLDER [WRITERS [EVENTS [FILES [SERVER...]]]]
//
// Each writer (a process) appends EVENTS records, several at a time, and then its index. Writer w
// talks to the w-th of the servers, in turn; without any, to the one that FOREBAY_CLIENT_SERVER or
// the configuration names. The reader then checks that every event is there, once and whole, that
// the files hold nothing else, and that times go up. The folder must exist.
#include <fcntl.h>
#include <forebay/forebay.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { IN_FLIGHT = 8, MAX_PAYLOAD = 2000, MAX_FILES = 16, MAX_WRITERS = 1024 };

// What a record begins with, and an entry of the index.
typedef struct {
  uint64_t time;
  uint32_t writer, number, size, file;  // size: of the whole record
} event_t;
typedef struct {
  event_t event;
  uint64_t place;
} entry_t;

typedef struct {
  const char* folder;
  unsigned writers, events, files;
  char** servers;
  unsigned server_count;
} trace_t;

static int complain(const char* doing) {
  fprintf(stderr, "tracelog: %s: %s\n", doing, fb_error());
  return 1;
}

static fb_store* connect_to(const trace_t* trace, unsigned writer) {
  fb_store* store = NULL;
  const char* server = trace->server_count ? trace->servers[writer % trace->server_count] : NULL;
  if (fb_connect(server, NULL, &store) != 0) complain("connect");
  return store;
}

static fb_file* open_in(const trace_t* trace, fb_store* store, const char* kind, unsigned number) {
  char path[4096];
  fb_file* file = NULL;
  snprintf(path, sizeof path, "%s/%s.%u", trace->folder, kind, number);
  if (fb_open(store, path, O_CREAT | O_RDWR, 0644, NULL, &file) != 0) complain(path);
  return file;
}

// What byte i behind the head of a record is.
static unsigned char payload(const event_t* event, uint32_t i) {
  return (unsigned char)(event->writer * 131 + event->number * 17 + i);
}

static uint32_t make_record(const trace_t* trace, unsigned writer, unsigned number,
                            unsigned* random, unsigned char* record) {
  event_t event;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  memset(&event, 0, sizeof event);
  event.time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  event.writer = writer;
  event.number = number;
  *random = *random * 1103515245u + 12345u;
  event.size = (uint32_t)sizeof event + (*random >> 8) % MAX_PAYLOAD;
  event.file = (*random >> 20) % trace->files;
  memcpy(record, &event, sizeof event);
  for (uint32_t i = 0; i < event.size - sizeof event; ++i) {
    record[sizeof event + i] = payload(&event, i);
  }
  return event.size;
}

// ---- Writing ----

static int write_events(const trace_t* trace, unsigned writer) {
  static unsigned char records[IN_FLIGHT][sizeof(event_t) + MAX_PAYLOAD];
  fb_file* files[MAX_FILES];
  fb_request* requests[IN_FLIGHT] = {NULL};
  entry_t* index = calloc(trace->events, sizeof *index);
  unsigned random = writer + 1;
  fb_store* store = connect_to(trace, writer);
  if (!store || !index) return 1;
  for (unsigned f = 0; f < trace->files; ++f) {
    if (!(files[f] = open_in(trace, store, "events", f))) return 1;
  }
  for (unsigned n = 0; n < trace->events + IN_FLIGHT; ++n) {
    const unsigned slot = n % IN_FLIGHT;
    if (requests[slot] && fb_wait(&requests[slot]) < 0) return complain("append");
    if (n >= trace->events) continue;
    const uint32_t size = make_record(trace, writer, n, &random, records[slot]);
    memcpy(&index[n].event, records[slot], sizeof index[n].event);
    // The place is known when the append is done, and stays as it is from then on.
    if (fb_iappend(files[index[n].event.file], records[slot], size, &index[n].place,
                   &requests[slot]) != 0) {
      return complain("append");
    }
  }
  fb_file* own = open_in(trace, store, "index", writer);
  if (!own) return 1;
  const size_t size = trace->events * sizeof *index;
  if (fb_pwrite(own, index, size, 0) != (int64_t)size) return complain("index");
  if (fb_close(own) != 0) return complain("index");
  for (unsigned f = 0; f < trace->files; ++f) {
    if (fb_close(files[f]) != 0) return complain("close");
  }
  free(index);
  return fb_disconnect(store) == 0 ? 0 : complain("disconnect");
}

static int run_writers(const trace_t* trace) {
  int failed = 0, status;
  for (unsigned w = 0; w < trace->writers; ++w) {
    const pid_t pid = fork();
    if (pid == 0) _exit(write_events(trace, w));
    if (pid < 0) return perror("tracelog: fork"), 1;
  }
  while (wait(&status) > 0) failed |= status;
  return failed != 0;
}

// ---- Reading ----

static int by_time(const void* a, const void* b) {
  const uint64_t x = ((const entry_t*)a)->event.time, y = ((const entry_t*)b)->event.time;
  return x < y ? -1 : x > y;
}

static entry_t* read_indices(const trace_t* trace, fb_store* store) {
  const size_t size = trace->events * sizeof(entry_t);
  entry_t* all = calloc(trace->writers, size);
  for (unsigned w = 0; all && w < trace->writers; ++w) {
    fb_file* file = open_in(trace, store, "index", w);
    if (!file || fb_pread(file, all + (size_t)w * trace->events, size, 0) != (int64_t)size) {
      complain("an index");
      return free(all), NULL;
    }
    fb_close(file);
  }
  return all;
}

static int good_record(const entry_t* entry, const unsigned char* record) {
  if (memcmp(record, &entry->event, sizeof entry->event) != 0) return 0;
  for (uint32_t i = 0; i < entry->event.size - sizeof entry->event; ++i) {
    if (record[sizeof entry->event + i] != payload(&entry->event, i)) return 0;
  }
  return 1;
}

static int check(const trace_t* trace) {
  static unsigned char record[sizeof(event_t) + MAX_PAYLOAD];
  const size_t count = (size_t)trace->writers * trace->events;
  uint64_t bytes[MAX_FILES] = {0};
  fb_file* files[MAX_FILES];
  fb_store* store = connect_to(trace, 0);
  entry_t* all = store ? read_indices(trace, store) : NULL;
  unsigned char* seen = calloc(count, 1);
  if (!all || !seen) return 1;
  for (unsigned f = 0; f < trace->files; ++f) {
    if (!(files[f] = open_in(trace, store, "events", f))) return 1;
  }
  qsort(all, count, sizeof *all, by_time);
  for (size_t i = 0; i < count; ++i) {
    const event_t* event = &all[i].event;
    unsigned char* mark = &seen[(size_t)event->writer * trace->events + event->number];
    if (fb_pread(files[event->file], record, event->size, all[i].place) != event->size) {
      return complain("a record");
    }
    if ((*mark)++ || !good_record(&all[i], record)) {
      fprintf(stderr, "tracelog: event %u of writer %u is there twice, or damaged\n", event->number,
              event->writer);
      return 1;
    }
    bytes[event->file] += event->size;
  }
  for (unsigned f = 0; f < trace->files; ++f) {
    fb_attr attr;
    if (fb_fstat(files[f], &attr) != 0) return complain("stat");
    if (attr.size != bytes[f]) {
      fprintf(stderr, "tracelog: file %u has %" PRIu64 " bytes, its records %" PRIu64 "\n", f,
              attr.size, bytes[f]);
      return 1;
    }
    fb_close(files[f]);
  }
  free(all);
  free(seen);
  printf("%zu events of %u writers in %u files, each once and whole, in the order of time\n", count,
         trace->writers, trace->files);
  return fb_disconnect(store) == 0 ? 0 : complain("disconnect");
}

static unsigned number_of(int argc, char** argv, int i, unsigned otherwise, unsigned most) {
  const long given = argc > i ? strtol(argv[i], NULL, 10) : (long)otherwise;
  return given < 1 ? 1 : given > (long)most ? most : (unsigned)given;
}

int main(int argc, char** argv) {
  trace_t trace;
  if (argc < 2) {
    fprintf(stderr, "usage: tracelog FOLDER [WRITERS [EVENTS [FILES [SERVER...]]]]\n");
    return 2;
  }
  trace.folder = argv[1];
  trace.writers = number_of(argc, argv, 2, 64, MAX_WRITERS);
  trace.events = number_of(argc, argv, 3, 200, 1000000);
  trace.files = number_of(argc, argv, 4, 4, MAX_FILES);
  trace.servers = argv + 5;
  trace.server_count = argc > 5 ? (unsigned)(argc - 5) : 0;
  if (run_writers(&trace) != 0) return 1;
  return check(&trace);
}
