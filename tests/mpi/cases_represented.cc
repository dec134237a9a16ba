// Rules of data representations: external32, and those of the program's own.
#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "cases.h"

namespace cases {
namespace {

struct External {
  MPI_Datatype type;
  const char* name;
  int size;  // in the file
};

// Of MPI-4.0, 14.5.2; pairs are two values.
std::vector<External> externals() {
#define ONE(type, size) \
  { type, #type, size }
  return {ONE(MPI_CHAR, 1),
          ONE(MPI_SHORT, 2),
          ONE(MPI_INT, 4),
          ONE(MPI_LONG, 4),
          ONE(MPI_UNSIGNED_LONG, 4),
          ONE(MPI_LONG_LONG, 8),
          ONE(MPI_FLOAT, 4),
          ONE(MPI_DOUBLE, 8),
          ONE(MPI_LONG_DOUBLE, 16),
          ONE(MPI_WCHAR, 2),
          ONE(MPI_C_BOOL, 1),
          ONE(MPI_INT64_T, 8),
          ONE(MPI_AINT, 8),
          ONE(MPI_OFFSET, 8),
          ONE(MPI_COUNT, 8),
          ONE(MPI_C_DOUBLE_COMPLEX, 16),
          ONE(MPI_C_LONG_DOUBLE_COMPLEX, 32),
          ONE(MPI_BYTE, 1),
          ONE(MPI_2INT, 8),
          ONE(MPI_FLOAT_INT, 8),
          ONE(MPI_DOUBLE_INT, 12),
          ONE(MPI_LONG_INT, 8),
          ONE(MPI_SHORT_INT, 6),
          ONE(MPI_LONG_DOUBLE_INT, 20),
          ONE(MPI_INTEGER, 4),
          ONE(MPI_REAL, 4),
          ONE(MPI_DOUBLE_COMPLEX, 16),
          ONE(MPI_LOGICAL, 4),
          ONE(MPI_2INTEGER, 8),
          ONE(MPI_2REAL, 8)};
#undef ONE
}

std::vector<char> packed(const std::vector<char>& memory, int count, MPI_Datatype type) {
  std::vector<char> bytes(memory.size());
  int at = 0;
  MPI_Pack(memory.data(), count, type, bytes.data(), static_cast<int>(bytes.size()), &at,
           MPI_COMM_SELF);
  bytes.resize(static_cast<size_t>(at));
  return bytes;
}

bool has_long_doubles(MPI_Datatype type) {
  return type == MPI_LONG_DOUBLE || type == MPI_LONG_DOUBLE_INT ||
         type == MPI_C_LONG_DOUBLE_COMPLEX;
}

// Small numbers in the first bytes of every value; of long doubles, real ones.
std::vector<char> some_values(MPI_Datatype type, int count) {
  MPI_Aint lb, extent;
  MPI_Type_get_extent(type, &lb, &extent);
  std::vector<char> memory(static_cast<size_t>(extent * count));
  for (int i = 0; i < count; ++i) {
    const MPI_Aint at = i * extent;
    const long double real = 0.5L + i;
    if (!has_long_doubles(type))
      memory[size_t(at)] = static_cast<char>(type == MPI_C_BOOL ? i % 2 : i + 1);
    else
      std::memcpy(&memory[size_t(at)], &real, 10);  // of 16, the rest is padding
  }
  return memory;
}

void every_type(MPI_File file) {
  constexpr int kCount = 10;
  for (const auto& [type, name, size] : externals()) {
    const std::string what = std::string("external32, ") + name + ": ";
    MPI_File_set_size(file, 0);
    check(MPI_File_set_view(file, 0, type, type, "external32", MPI_INFO_NULL) == MPI_SUCCESS,
          (what + "a view").c_str());
    MPI_Aint extent = 0;
    MPI_File_get_type_extent(file, type, &extent);
    check(extent == size, (what + "its size").c_str());
    const auto values = some_values(type, kCount);
    std::vector<char> back(values.size());
    MPI_Status status;
    int written = 0, read = 0;
    check(MPI_File_write_at(file, 0, values.data(), kCount, type, &status) == MPI_SUCCESS,
          (what + "written").c_str());
    MPI_Get_count(&status, type, &written);
    check(MPI_File_read_at(file, 0, back.data(), kCount, type, &status) == MPI_SUCCESS,
          (what + "read").c_str());
    MPI_Get_count(&status, type, &read);
    check(written == kCount && read == kCount, (what + "how many").c_str());
    check(packed(back, kCount, type) == packed(values, kCount, type), (what + "values").c_str());
    MPI_Offset end = 0;
    MPI_File_get_size(file, &end);
    check(end == size * kCount, (what + "the file's size").c_str());
  }
}

// A value is there whole, or the call says that it cannot be.
void values_that_do_not_fit(MPI_File file) {
  const auto fails = [&](auto value, MPI_Datatype type) {
    MPI_File_set_view(file, 0, type, type, "external32", MPI_INFO_NULL);
    const int code = MPI_File_write_at(file, 0, &value, 1, type, MPI_STATUS_IGNORE);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    return error_class == MPI_ERR_CONVERSION;
  };
  check(fails((1L << 40) + 7, MPI_LONG), "external32: a long of more than 32 bits");
  check(fails(ULONG_MAX, MPI_UNSIGNED_LONG), "external32: an unsigned long of 64 bits");
  check(fails(wchar_t(0x1f600), MPI_WCHAR), "external32: a character of more than 16 bits");
  check(!fails(-5L, MPI_LONG), "external32: a long that fits");
}

// A struct with gaps, in memory and through a view with gaps.
void structures(MPI_File file) {
  struct One {
    char tag;
    long number;
    short low;
    double real;
  };
  const int lengths[] = {1, 1, 1, 1};
  const MPI_Aint places[] = {offsetof(One, tag), offsetof(One, number), offsetof(One, low),
                             offsetof(One, real)};
  const MPI_Datatype parts[] = {MPI_CHAR, MPI_LONG, MPI_SHORT, MPI_DOUBLE};
  MPI_Datatype packed_type, type, tile;
  MPI_Type_create_struct(4, lengths, places, parts, &packed_type);
  MPI_Type_create_resized(packed_type, 0, sizeof(One), &type);
  MPI_Type_commit(&type);
  MPI_Type_create_resized(MPI_BYTE, 0, 3, &tile);
  MPI_Type_commit(&tile);
  MPI_File_set_size(file, 0);
  MPI_File_set_view(file, 0, MPI_BYTE, tile, "external32", MPI_INFO_NULL);
  std::vector<One> all(100), back(100);
  for (int i = 0; i < 100; ++i) all[size_t(i)] = {char(i), -i, short(i * 3), i / 4.0};
  check(MPI_File_write_at(file, 0, all.data(), 100, type, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            MPI_File_read_at(file, 0, back.data(), 100, type, MPI_STATUS_IGNORE) == MPI_SUCCESS,
        "external32: structures");
  bool same = true;
  for (size_t i = 0; i < 100; ++i)
    same = same && all[i].tag == back[i].tag && all[i].number == back[i].number &&
           all[i].low == back[i].low && all[i].real == back[i].real;
  check(same, "external32: structures come back");
  unsigned char first[22] = {};
  MPI_File_read_at(file, 15, first, 15, MPI_BYTE, MPI_STATUS_IGNORE);
  check(first[0] == 1 && first[1] == 255 && first[4] == 255 && first[5] == 0 && first[6] == 3 &&
            first[7] == 0x3f && first[8] == 0xd0,
        "external32: the bytes of a structure");
  MPI_Type_free(&packed_type);
  MPI_Type_free(&type);
  MPI_Type_free(&tile);
}

// "twice": each int is there a second time, with some bits changed.
constexpr int kChanged = 0x55;
int called = 0;  // through the state that the functions get

int twice_extent(MPI_Datatype type, MPI_Aint* extent, void* state) {
  int size = 0;
  const int code = MPI_Type_size(type, &size);
  *extent = 2 * size;
  ++*static_cast<int*>(state);
  return code;
}

int write_twice(void* memory, MPI_Datatype type, int count, void* file, MPI_Offset at,
                void* state) {
  int size = 0, end = 0;
  MPI_Type_size(type, &size);
  std::vector<int> ints(static_cast<size_t>(size * count) / sizeof(int));
  MPI_Pack(memory, count, type, ints.data(), size * count, &end, MPI_COMM_SELF);
  int* const to = static_cast<int*>(file) + 2 * at * (size / int(sizeof(int)));
  for (size_t i = 0; i < ints.size(); ++i) to[2 * i] = ints[i], to[2 * i + 1] = ints[i] ^ kChanged;
  ++*static_cast<int*>(state);
  return MPI_SUCCESS;
}

int read_twice(void* memory, MPI_Datatype type, int count, void* file, MPI_Offset at, void*) {
  int size = 0, end = 0;
  MPI_Type_size(type, &size);
  std::vector<int> ints(static_cast<size_t>(size * count) / sizeof(int));
  const int* const from = static_cast<int*>(file) + 2 * at * (size / int(sizeof(int)));
  for (size_t i = 0; i < ints.size(); ++i) {
    ints[i] = from[2 * i];
    if (from[2 * i + 1] != (ints[i] ^ kChanged)) return MPI_ERR_OTHER;
  }
  MPI_Unpack(ints.data(), size * count, &end, memory, count, type, MPI_COMM_SELF);
  return MPI_SUCCESS;
}

int class_of(int code) {
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  return error_class;
}

void twice(MPI_File file) {
  constexpr int kBlock = 4, kInts = 40;
  check(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "twice", MPI_INFO_NULL) == MPI_SUCCESS,
        "a representation of the program's own");
  MPI_Aint each = 0;
  MPI_File_get_type_extent(file, MPI_INT, &each);
  check(each == 2 * MPI_Aint(sizeof(int)) && called > 0, "its extents");
  MPI_Datatype block, tile, sparse;
  MPI_Type_contiguous(kBlock, MPI_INT, &block);
  MPI_Type_create_resized(block, 0, 2 * kBlock * each, &tile);
  MPI_Type_commit(&tile);
  MPI_File_set_view(file, rank * kBlock * each, MPI_INT, tile, "twice", MPI_INFO_NULL);
  std::vector<int> mine(kInts), back(2 * kInts);
  for (int i = 0; i < kInts; ++i) mine[size_t(i)] = 1000 * rank + i;
  MPI_Status status;
  int count = 0;
  check(MPI_File_write_at_all(file, 0, mine.data(), kInts, MPI_INT, &status) == MPI_SUCCESS,
        "what is written through it");
  MPI_Get_count(&status, MPI_INT, &count);
  check(count == kInts, "its count");
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  MPI_Type_vector(kInts, 1, 2, MPI_INT, &sparse);
  MPI_Type_commit(&sparse);
  MPI_Request request;
  MPI_File_iread_at_all(file, 0, back.data(), 1, sparse, &request);
  check(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "what is read through it");
  bool same = true;
  for (size_t i = 0; i < kInts; ++i) same = same && back[2 * i] == mine[i];
  check(same, "values there and back");
  MPI_File_read_at(file, kInts - 2, back.data(), 10, MPI_INT, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  check(count == 2 && back[0] == mine[kInts - 2] && back[1] == mine[kInts - 1], "a short read");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  int pair[2] = {};
  MPI_File_read_at(file, 0, pair, 2, MPI_INT, MPI_STATUS_IGNORE);
  check(pair[0] == 0 && pair[1] == kChanged, "what lies in the file");
  pair[1] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_write_at_all(file, 0, pair, rank ? 0 : 2, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "twice", MPI_INFO_NULL);
  check(class_of(MPI_File_read_at_all(file, 0, pair, 1, MPI_INT, MPI_STATUS_IGNORE)) ==
            MPI_ERR_CONVERSION,
        "a function that fails");
  MPI_Type_free(&block);
  MPI_Type_free(&tile);
  MPI_Type_free(&sparse);
}

}  // namespace

void external32() {
  MPI_File file = open(MPI_COMM_SELF, path(rank ? "external1" : "external0"), kNew);
  every_type(file);
  values_that_do_not_fit(file);
  structures(file);
  MPI_File_close(&file);
}

void registered_representations() {
  check(
      MPI_Register_datarep("twice", read_twice, write_twice, twice_extent, &called) == MPI_SUCCESS,
      "a representation is registered");
  check(class_of(MPI_Register_datarep("twice", read_twice, write_twice, twice_extent, &called)) ==
            MPI_ERR_DUP_DATAREP,
        "a second one of its name");
  check(MPI_Register_datarep("grown", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, twice_extent,
                             &called) == MPI_SUCCESS,
        "one that converts nothing");
  MPI_File file = open(MPI_COMM_WORLD, path("twice"), kNew);
  twice(file);
  MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "grown", MPI_INFO_NULL);
  const int one = 1;
  check(class_of(MPI_File_write_at_all(file, 0, &one, 1, MPI_INT, MPI_STATUS_IGNORE)) ==
            MPI_ERR_CONVERSION,
        "one that converts nothing, with sizes of its own");
  check(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "unheard", MPI_INFO_NULL)) ==
            MPI_ERR_UNSUPPORTED_DATAREP,
        "one that nobody registered");
  MPI_File_close(&file);
}

}  // namespace cases
