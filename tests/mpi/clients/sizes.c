/* Data calls of sizes around and beyond 2^31 bytes, and offsets beyond 2^40:
 *   sizes FILE short      every call at every size; a read meets the end of the file, a write the
 *                         process's limit of file sizes, after a few MiB, which are counted exactly
 *   sizes FILE full       some calls, and all bytes
 *   sizes FILE far        a few bytes beyond 2^40
 *   sizes FILE every      every call at every size, and all bytes: many minutes, by hand
 *   sizes FILE forgotten  the plain calls, on a server that forgets: counts only
 *   sizes FILE registered the plain calls just beyond 2^31, in a representation of the program's
 * own without functions that convert; takes as much memory
 *
 * Memory is one block that is there many times over, by a datatype that repeats it in place and,
 * for the calls with long counts, by mapping it again and again; so 5 GiB cost a MiB. What was
 * written is looked at by pread, and what is read ends in the block. Of the file only what is
 * looked at is kept: a thread makes holes of the rest all the time, which on a tmpfs frees memory
 * at once. Rank 0 has the data, the others take part. */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define GIB ((int64_t)1 << 30)
enum { kBlock = 1 << 20 };
static const int64_t kSizes[] = {2 * GIB - 1, 2 * GIB, 2 * GIB + 1, 5 * GIB};
enum { kFirstBeyond = 2, kGreatest = 3 };
static const int64_t kShort = 4 * kBlock;

static int rank;
static int every, forgotten, short_of_it, registered;
static const char* path;
static MPI_File file;
static unsigned char* memory; /* the block, again and again */

#define FAIL(...)                       \
  do {                                  \
    fprintf(stderr, "rank %d: ", rank); \
    fprintf(stderr, __VA_ARGS__);       \
    fputc('\n', stderr);                \
    MPI_Abort(MPI_COMM_WORLD, 1);       \
  } while (0)

static unsigned char pattern(int64_t at) {
  return (unsigned char)(at * 7 + (at >> 8) * 13 + 5);
}

static void map_memory(void) {
  const int fd = memfd_create("block", MFD_CLOEXEC);
  const size_t times = (size_t)(5 * GIB / kBlock) + 1;
  memory =
      mmap(NULL, times * kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fd < 0 || ftruncate(fd, kBlock) != 0 || memory == MAP_FAILED) FAIL("no memory");
  for (size_t i = 0; i < times; ++i)
    if (mmap(memory + i * kBlock, kBlock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
      FAIL("no memory");
  close(fd);
}

/* `bytes` of memory that all lie in the first block, one repetition upon the other. */
static MPI_Datatype repeated(int64_t bytes) {
  MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE}, type;
  int lengths[2] = {1, (int)(bytes % kBlock)};
  MPI_Aint places[2] = {0, 0};
  MPI_Type_create_hvector((int)(bytes / kBlock), kBlock, 0, MPI_BYTE, &parts[0]);
  MPI_Type_create_struct(2, lengths, places, parts, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&parts[0]);
  return type;
}

struct arguments {
  MPI_Offset offset;
  MPI_Count count;
  MPI_Datatype type;
  MPI_Status status;
};

/* ---- Every data call ---- */

#define MEMORY memory, (COUNT)a->count, a->type
#define SEEK MPI_File_seek(file, a->offset, MPI_SEEK_SET)
#define SEEK_SHARED MPI_File_seek_shared(file, a->offset, MPI_SEEK_SET)
#define THEN_WAIT(call)    \
  MPI_Request request;     \
  const int code = (call); \
  return code == MPI_SUCCESS ? MPI_Wait(&request, &a->status) : code
#define THEN_END(call, end) \
  const int code = (call);  \
  return code == MPI_SUCCESS ? end(file, memory, &a->status) : code

#define AT(f) return MPI_File_##f(file, a->offset, MEMORY, &a->status)
#define OWN(f) return SEEK, MPI_File_##f(file, MEMORY, &a->status)
#define SHARED(f) return SEEK_SHARED, MPI_File_##f(file, MEMORY, &a->status)
#define LATER_AT(f) THEN_WAIT(MPI_File_##f(file, a->offset, MEMORY, &request))
#define LATER_OWN(f) THEN_WAIT((SEEK, MPI_File_##f(file, MEMORY, &request)))
#define LATER_SHARED(f) THEN_WAIT((SEEK_SHARED, MPI_File_##f(file, MEMORY, &request)))
#define SPLIT_AT(f, end) THEN_END(MPI_File_##f(file, a->offset, MEMORY), MPI_File_##end)
#define SPLIT_OWN(f, end) THEN_END((SEEK, MPI_File_##f(file, MEMORY)), MPI_File_##end)
#define SPLIT_SHARED(f, end) THEN_END((SEEK_SHARED, MPI_File_##f(file, MEMORY)), MPI_File_##end)

/* ONE(name, its body); C is empty or _c. */
#define DIRECTION(ONE, read, C)                                                    \
  ONE(read##_at##C, AT(read##_at##C))                                              \
  ONE(i##read##_at##C, LATER_AT(i##read##_at##C))                                  \
  ONE(read##_at_all##C, AT(read##_at_all##C))                                      \
  ONE(i##read##_at_all##C, LATER_AT(i##read##_at_all##C))                          \
  ONE(read##_at_all_begin##C, SPLIT_AT(read##_at_all_begin##C, read##_at_all_end)) \
  ONE(read##C, OWN(read##C))                                                       \
  ONE(i##read##C, LATER_OWN(i##read##C))                                           \
  ONE(read##_all##C, OWN(read##_all##C))                                           \
  ONE(i##read##_all##C, LATER_OWN(i##read##_all##C))                               \
  ONE(read##_all_begin##C, SPLIT_OWN(read##_all_begin##C, read##_all_end))         \
  ONE(read##_shared##C, SHARED(read##_shared##C))                                  \
  ONE(i##read##_shared##C, LATER_SHARED(i##read##_shared##C))                      \
  ONE(read##_ordered##C, SHARED(read##_ordered##C))                                \
  ONE(read##_ordered_begin##C, SPLIT_SHARED(read##_ordered_begin##C, read##_ordered_end))

#define DEFINE(name, body)                      \
  static int call_##name(struct arguments* a) { \
    body;                                       \
  }
#define COUNT int
DIRECTION(DEFINE, write, )
DIRECTION(DEFINE, read, )
#undef COUNT
#if MPI_VERSION >= 4
#define COUNT MPI_Count
DIRECTION(DEFINE, write, _c)
DIRECTION(DEFINE, read, _c)
#endif

struct call {
  const char* name;
  int (*run)(struct arguments*);
  int writes, long_count;
};

#define ROW(name, body) {#name, call_##name, 0, 0},
static struct call calls[] = {DIRECTION(ROW, write, ) DIRECTION(ROW, read, )
#if MPI_VERSION >= 4
                                  DIRECTION(ROW, write, _c) DIRECTION(ROW, read, _c)
#endif
};
enum { kCalls = sizeof calls / sizeof *calls };

static void describe_calls(void) {
  for (int i = 0; i < kCalls; ++i) {
    const char* name = calls[i].name;
    calls[i].writes = strstr(name, "write") != NULL;
    calls[i].long_count = strcmp(name + strlen(name) - 2, "_c") == 0;
  }
}

/* The plain ones move all bytes at every size, or the greatest if nobody keeps them; a few others
 * do at one. */
static int wanted(const struct call* call, int size) {
  static const char* const others[] = {"write_ordered_begin", "iread_all", "iwrite_shared_c",
                                       "read_at_all_c"};
  if (every || short_of_it) return 1;
  if (forgotten && size != kGreatest) return 0;
  if (registered && size != kFirstBeyond) return 0;
  if (strcmp(call->name, "write_at") == 0 || strcmp(call->name, "read_at") == 0) return 1;
  if (registered) return 0;
  for (int i = 0; i < 4; ++i)
    if (strcmp(call->name, others[i]) == 0) return size == kFirstBeyond;
  return 0;
}

/* ---- What is checked ---- */

static void look(const char* name, int64_t bytes) {
  const int fd = open(path, O_RDONLY);
  const int64_t at[] = {0, kBlock - 1, GIB - 1, GIB, 2 * GIB - 2, 2 * GIB - 1, 2 * GIB, bytes - 1};
  if (lseek(fd, 0, SEEK_END) != bytes) FAIL("%s: the file's size is wrong", name);
  for (size_t i = 0; i < sizeof at / sizeof *at; ++i) {
    unsigned char got = 0;
    if (at[i] >= bytes) continue;
    if (pread(fd, &got, 1, at[i]) != 1 || got != pattern(at[i] % kBlock))
      FAIL("%s of %lld bytes: byte %lld is wrong", name, (long long)bytes, (long long)at[i]);
  }
  close(fd);
}

static void check_count(const char* name, int64_t bytes, MPI_Status* status) {
  MPI_Count got = -1;
  MPI_Get_elements_x(status, MPI_BYTE, &got);
  if (got != (rank == 0 ? bytes : 0))
    FAIL("%s of %lld bytes: the status says %lld", name, (long long)bytes, (long long)got);
}

static void check_block(const char* name) {
  for (int64_t i = 0; i < kBlock; ++i)
    if (memory[i] != pattern(i)) FAIL("%s: byte %lld of memory is wrong", name, (long long)i);
}

/* What a read leaves is what was written, from the first byte of the block on. */
static void fill(int writes) {
  for (int64_t i = 0; i < kBlock; ++i) memory[i] = writes ? pattern(i) : 0;
}

/* ---- Holes ---- */

static volatile int holes_wanted = 1;

static void* make_holes(void* nothing) {
  const int64_t kept[] = {0, GIB, 2 * GIB, 5 * GIB}, around = 2 * kBlock;
  const int fd = open(path, O_WRONLY);
  while (holes_wanted) {
    for (int i = 0; i < 3; ++i)
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kept[i] + around,
                kept[i + 1] - kept[i] - 2 * around);
    usleep(20000);
  }
  close(fd);
  return nothing;
}

/* ---- Running ---- */

static int class_of(int code) {
  int class_ = MPI_SUCCESS;
  MPI_Error_class(code, &class_);
  return class_;
}

static void run(const struct call* call, int64_t bytes) {
  struct arguments a = {.offset = 0, .count = 1, .type = MPI_BYTE};
  if (call->long_count)
    a.count = bytes;
  else
    a.type = repeated(bytes);
  if (rank != 0) a.count = 0;
  if (rank == 0) fill(call->writes);
  const int class_ = class_of(call->run(&a));
  /* Without data only a collective call fails, and not all of them. */
  const int fails = short_of_it && call->writes && (rank == 0 || class_ != MPI_SUCCESS);
  if (class_ != (fails ? MPI_ERR_NO_SPACE : MPI_SUCCESS))
    FAIL("%s of %lld bytes: error %d", call->name, (long long)bytes, class_);
  const int64_t moved = short_of_it ? kShort : bytes;
  check_count(call->name, moved, &a.status);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && !forgotten) call->writes ? look(call->name, moved) : check_block(call->name);
  if (!call->long_count) MPI_Type_free(&a.type);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* The writing ones stand first. */
static void all_calls(int size) {
  MPI_File_set_size(file, 0);
  for (int i = 0; i < kCalls; ++i)
    if (wanted(&calls[i], size)) run(&calls[i], kSizes[size]);
}

static void limit_files(void) {
  const struct rlimit limit = {(rlim_t)kShort, (rlim_t)kShort};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) FAIL("setrlimit");
}

/* Through a view, too: offsets in elements of eight bytes, a displacement beyond 2^40. */
static void far_away(void) {
  const MPI_Offset places[] = {((MPI_Offset)1 << 40) - 3, ((MPI_Offset)1 << 40) + 7,
                               ((MPI_Offset)1 << 43) + 5};
  MPI_File_set_size(file, 0);
  for (size_t i = 0; i < 3; ++i) {
    int64_t value = (int64_t)places[i] * 3 + rank, back = 0;
    if (MPI_File_write_at_all(file, places[i] + 8 * rank, &value, 1, MPI_INT64_T,
                              MPI_STATUS_IGNORE))
      FAIL("write_at_all at %lld", (long long)places[i]);
    MPI_File_set_view(file, places[i], MPI_INT64_T, MPI_INT64_T, "native", MPI_INFO_NULL);
    if (MPI_File_read_at_all(file, rank, &back, 1, MPI_INT64_T, MPI_STATUS_IGNORE) || back != value)
      FAIL("read_at_all at %lld: %lld", (long long)places[i], (long long)back);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_Offset size = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &size);
    if (size < places[i] + 8) FAIL("the size is %lld", (long long)size);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static void all_sizes(void) {
  pthread_t holes;
  const int with_holes = rank == 0 && !forgotten && !short_of_it;
  if (with_holes && pthread_create(&holes, NULL, make_holes, NULL) != 0) FAIL("pthread_create");
  for (int size = 0; size < 4; ++size) all_calls(size);
  holes_wanted = 0;
  if (with_holes) pthread_join(holes, NULL);
}

static int as_in_memory(MPI_Datatype type, MPI_Aint* extent, void* state) {
  int size = 0;
  const int code = MPI_Type_size(type, &size);
  *extent = size;
  (void)state;
  return code;
}

static void see_registered(void) {
  if (MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, as_in_memory,
                           NULL) ||
      MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "plain", MPI_INFO_NULL))
    FAIL("a representation of the program's own");
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 3) FAIL("usage: sizes FILE short|full|far|every|forgotten|registered");
  path = argv[1];
  every = strcmp(argv[2], "every") == 0;
  forgotten = strcmp(argv[2], "forgotten") == 0;
  short_of_it = strcmp(argv[2], "short") == 0;
  registered = strcmp(argv[2], "registered") == 0;
  describe_calls();
  map_memory();
  if (short_of_it) limit_files();
  if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file))
    FAIL("open");
  if (registered) see_registered();
  if (strcmp(argv[2], "far") == 0)
    far_away();
  else
    all_sizes();
  if (MPI_File_close(&file)) FAIL("close");
  MPI_Finalize();
  return 0;
}
