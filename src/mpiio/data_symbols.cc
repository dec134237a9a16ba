// The names of the data calls. One line each: the form of its arguments, its name, and what it is.
#include "mpiio/data_calls.h"

using namespace forebay::mpiio;

namespace {

constexpr auto kRead = Direction::read;
constexpr auto kWrite = Direction::write;
constexpr auto kAt = Pointer::explicit_offset;
constexpr auto kOwn = Pointer::individual;
constexpr auto kShared = Pointer::shared;
constexpr auto kOrdered = Pointer::ordered;

void* memory(const void* buf) {
  return const_cast<void*>(buf);  // writes never modify it
}

}  // namespace

#define CALL(name, direction, pointer, all)    \
  static constexpr DataCall call {             \
    "MPI_File_" #name, direction, pointer, all \
  }

#define BLOCKING(NAME, COUNT, name, buf_t, direction, pointer, all)                      \
  extern "C" int MPI_File_##NAME(MPI_File fh, buf_t buf, COUNT count, MPI_Datatype type, \
                                 MPI_Status* status) {                                   \
    CALL(name, direction, pointer, all);                                                 \
    return blocking(call, fh, 0, {memory(buf), count, type}, status);                    \
  }                                                                                      \
  FOREBAY_ALSO_PMPI(File_##NAME)

#define BLOCKING_AT(NAME, COUNT, name, buf_t, direction, all)                            \
  extern "C" int MPI_File_##NAME(MPI_File fh, MPI_Offset offset, buf_t buf, COUNT count, \
                                 MPI_Datatype type, MPI_Status* status) {                \
    CALL(name, direction, kAt, all);                                                     \
    return blocking(call, fh, offset, {memory(buf), count, type}, status);               \
  }                                                                                      \
  FOREBAY_ALSO_PMPI(File_##NAME)

#define NONBLOCKING(NAME, COUNT, name, buf_t, direction, pointer, all)                   \
  extern "C" int MPI_File_##NAME(MPI_File fh, buf_t buf, COUNT count, MPI_Datatype type, \
                                 MPI_Request* request) {                                 \
    CALL(name, direction, pointer, all);                                                 \
    return nonblocking(call, fh, 0, {memory(buf), count, type}, request);                \
  }                                                                                      \
  FOREBAY_ALSO_PMPI(File_##NAME)

#define NONBLOCKING_AT(NAME, COUNT, name, buf_t, direction, all)                         \
  extern "C" int MPI_File_##NAME(MPI_File fh, MPI_Offset offset, buf_t buf, COUNT count, \
                                 MPI_Datatype type, MPI_Request* request) {              \
    CALL(name, direction, kAt, all);                                                     \
    return nonblocking(call, fh, offset, {memory(buf), count, type}, request);           \
  }                                                                                      \
  FOREBAY_ALSO_PMPI(File_##NAME)

#define BEGIN(NAME, COUNT, name, buf_t, direction, pointer)                                \
  extern "C" int MPI_File_##NAME(MPI_File fh, buf_t buf, COUNT count, MPI_Datatype type) { \
    CALL(name, direction, pointer, true);                                                  \
    return begin(call, fh, 0, {memory(buf), count, type});                                 \
  }                                                                                        \
  FOREBAY_ALSO_PMPI(File_##NAME)

#define BEGIN_AT(NAME, COUNT, name, buf_t, direction)                                    \
  extern "C" int MPI_File_##NAME(MPI_File fh, MPI_Offset offset, buf_t buf, COUNT count, \
                                 MPI_Datatype type) {                                    \
    CALL(name, direction, kAt, true);                                                    \
    return begin(call, fh, offset, {memory(buf), count, type});                          \
  }                                                                                      \
  FOREBAY_ALSO_PMPI(File_##NAME)

#define END(name, buf_t)                                                   \
  extern "C" int MPI_File_##name(MPI_File fh, buf_t, MPI_Status* status) { \
    return end("MPI_File_" #name, fh, status);                             \
  }                                                                        \
  FOREBAY_ALSO_PMPI(File_##name)

// With counts of int; and, where the MPI has it, of MPI_Count.
#if MPI_VERSION >= 4
#define EACH(FORM, name, ...)         \
  FORM(name, int, name, __VA_ARGS__); \
  FORM(name##_c, MPI_Count, name##_c, __VA_ARGS__)
#else
#define EACH(FORM, name, ...) FORM(name, int, name, __VA_ARGS__)
#endif

EACH(BLOCKING, read, void*, kRead, kOwn, false);
EACH(BLOCKING, read_all, void*, kRead, kOwn, true);
EACH(BLOCKING, read_shared, void*, kRead, kShared, false);
EACH(BLOCKING, read_ordered, void*, kRead, kOrdered, true);
EACH(BLOCKING_AT, read_at, void*, kRead, false);
EACH(BLOCKING_AT, read_at_all, void*, kRead, true);
EACH(BLOCKING, write, const void*, kWrite, kOwn, false);
EACH(BLOCKING, write_all, const void*, kWrite, kOwn, true);
EACH(BLOCKING, write_shared, const void*, kWrite, kShared, false);
EACH(BLOCKING, write_ordered, const void*, kWrite, kOrdered, true);
EACH(BLOCKING_AT, write_at, const void*, kWrite, false);
EACH(BLOCKING_AT, write_at_all, const void*, kWrite, true);

EACH(NONBLOCKING, iread, void*, kRead, kOwn, false);
EACH(NONBLOCKING, iread_all, void*, kRead, kOwn, true);
EACH(NONBLOCKING, iread_shared, void*, kRead, kShared, false);
EACH(NONBLOCKING_AT, iread_at, void*, kRead, false);
EACH(NONBLOCKING_AT, iread_at_all, void*, kRead, true);
EACH(NONBLOCKING, iwrite, const void*, kWrite, kOwn, false);
EACH(NONBLOCKING, iwrite_all, const void*, kWrite, kOwn, true);
EACH(NONBLOCKING, iwrite_shared, const void*, kWrite, kShared, false);
EACH(NONBLOCKING_AT, iwrite_at, const void*, kWrite, false);
EACH(NONBLOCKING_AT, iwrite_at_all, const void*, kWrite, true);

EACH(BEGIN, read_all_begin, void*, kRead, kOwn);
EACH(BEGIN, read_ordered_begin, void*, kRead, kOrdered);
EACH(BEGIN_AT, read_at_all_begin, void*, kRead);
EACH(BEGIN, write_all_begin, const void*, kWrite, kOwn);
EACH(BEGIN, write_ordered_begin, const void*, kWrite, kOrdered);
EACH(BEGIN_AT, write_at_all_begin, const void*, kWrite);

END(read_all_end, void*);
END(read_ordered_end, void*);
END(read_at_all_end, void*);
END(write_all_end, const void*);
END(write_ordered_end, const void*);
END(write_at_all_end, const void*);
