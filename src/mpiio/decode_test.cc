// Decoding compared with MPI_Pack, on random datatypes. One rank.
#include "mpiio/decode.h"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "core/testing.h"
#include "mpiio/random_type.h"
#include "plan/tiled_map.h"

namespace forebay::mpiio {
namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  fmt::print("FAILED: {}\n", what);
}

struct Sizes {
  MPI_Count size = 0, lb = 0, extent = 0, true_lb = 0, true_extent = 0;
  bool operator==(const Sizes&) const = default;
};

std::string text(const Sizes& s) {
  return fmt::format("size {} lb {} extent {} true {}+{}", s.size, s.lb, s.extent, s.true_lb,
                     s.true_extent);
}

Sizes sizes_of(MPI_Datatype type) {
  Sizes s;
  MPI_Type_size_x(type, &s.size);
  MPI_Type_get_extent_x(type, &s.lb, &s.extent);
  MPI_Type_get_true_extent_x(type, &s.true_lb, &s.true_extent);
  if (s.size == 0) s.true_lb = s.true_extent = 0;  // of nothing, each MPI says something else
  return s;
}

Sizes sizes_of(const plan::TypeMap& map) {
  return {map.size(), map.lb(), map.extent(), map.true_lb(), map.true_extent()};
}

void expect_sizes(const RandomType& t, const plan::TypeMap& map) {
  const Sizes theirs = sizes_of(t.type);
  Sizes ours = sizes_of(map);
  // MPICH counts the place of what is empty into the true extent, and all of some darrays.
  const bool within = ours.true_lb >= theirs.true_lb &&
                      ours.true_lb + ours.true_extent <= theirs.true_lb + theirs.true_extent;
  const std::string what = fmt::format("{} is {}, not {}", t.made, text(theirs), text(ours));
  if (!t.wild) expect(within, what);
  ours.true_lb = theirs.true_lb;
  ours.true_extent = theirs.true_extent;
  expect(ours == theirs, what);
}

// MPICH copies long doubles as numbers, not as bytes, of which they use ten.
void mask_padding(const RandomType& t, std::vector<std::byte>& stream) {
  for (size_t at = 0; at + 1 < stream.size();) {
    for (const MPI_Datatype element : t.elements) {
      int size = 0;
      MPI_Type_size(element, &size);
      if (element == MPI_LONG_DOUBLE) std::memset(&stream[at + 10], 0, 6);
      at += static_cast<size_t>(size);
    }
  }
}

// The bytes of `count` copies by MPI_Pack, and by the decoded map.
void expect_same_bytes(const RandomType& t, const plan::TypeMap& map, int count,
                       RandomTypes& random) {
  const int64_t span = int64_t{count - 1} * map.extent();
  const int64_t low = map.true_lb() + std::min<int64_t>(span, 0);
  const int64_t high = map.true_ub() + std::max<int64_t>(span, 0);
  std::vector<std::byte> memory(static_cast<size_t>(high - low) + 1);
  for (std::byte& b : memory) b = static_cast<std::byte>(random.pick(0, 255));
  std::byte* const base = memory.data() - low;

  const size_t total = static_cast<size_t>(map.size()) * static_cast<size_t>(count);
  std::vector<std::byte> packed(total + 1), walked(total + 1);
  int position = 0;
  MPI_Pack(base, count, t.type, packed.data(), static_cast<int>(packed.size()), &position,
           MPI_COMM_SELF);
  expect(position == static_cast<int>(total), "packed size of " + t.made);
  const auto tiled = plan::TiledMap::buffer(base, static_cast<uint64_t>(count), map);
  expect(tiled.has_value() && tiled->total().value == total, "buffer of " + t.made);
  if (!tiled) return;
  std::byte* to = walked.data();
  for (plan::TiledCursor cursor(*tiled, Length(0), tiled->total()); !cursor.done();) {
    const Memory part{nullptr, cursor.next(Length(UINT64_MAX), 64)};
    to += copy_out(part, std::span(to, part.shape.total().value));
  }
  mask_padding(t, packed);
  mask_padding(t, walked);
  expect(packed == walked, fmt::format("bytes of {} x {}", count, t.made));
}

void expect_elements(const RandomType& t, Decoder& decoder, int count) {
  const Result<Signature> signature = decoder.signature(t.type);
  expect(signature.has_value() && signature->elements() == t.elements.size(),
         "elements of " + t.made);
  if (!signature) return;
  std::vector<MPI_Datatype> expected, walked;
  for (int i = 0; i < count; ++i) {
    expected.insert(expected.end(), t.elements.begin(), t.elements.end());
  }
  signature->for_each_run(static_cast<uint64_t>(count), [&](const Signature::Run& run) {
    walked.insert(walked.end(), run.count, run.primitive);
    return true;
  });
  expect(walked == expected, "signature of " + t.made);
  const bool one = std::set<MPI_Datatype>(expected.begin(), expected.end()).size() == 1;
  expect((signature->uniform() != MPI_DATATYPE_NULL) == one, "uniform " + t.made);
}

void random_types(Decoder& decoder, uint64_t seed) {
  RandomTypes random(seed);
  for (int i = 0; i < 4000 && failures < 1000; ++i) {
    RandomType t = random.make(random.pick(0, 6));
    if (t.owned) MPI_Type_commit(&t.type);
    expect(decoder.check_committed(t.type, MPI_COMM_SELF).has_value(), "committed " + t.made);
    const Result<plan::TypeMap> map = decoder.decode(t.type);
    if (!map) {
      expect(false, map.error().message() + ": " + t.made);
      continue;
    }
    expect_sizes(t, *map);
    const int count = random.pick(1, 3);
    if (!t.wild) expect_same_bytes(t, *map, count, random);
    expect_elements(t, decoder, count);
    const Result<plan::TypeMap> again = decoder.decode(t.type);
    expect(again.has_value() && sizes_of(*again) == sizes_of(*map), "again " + t.made);
  }
}

void huge_types(Decoder& decoder) {
  MPI_Datatype type;
  MPI_Type_vector(1000000000, 1, 2, MPI_DOUBLE, &type);
  const auto map = decoder.decode(type);
  expect(map && map->size() == 8000000000 && map->pieces() == 1000000000, "10^9 doubles");
  const auto signature = decoder.signature(type);
  expect(signature && signature->elements() == 1000000000, "10^9 elements");
  MPI_Type_free(&type);

  const int sizes[] = {100000, 100000}, parts[] = {100000, 50000}, starts[] = {0, 50000};
  MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  const auto half = decoder.decode(type);
  expect(half && half->size() == 40000000000 && half->pieces() == 100000, "half of 80 GB");
  expect(half && half->extent() == 80000000000, "extent of 80 GB");
  MPI_Type_free(&type);

  const int cyclic = MPI_DISTRIBUTE_CYCLIC, three = 3, seven = 7, n = 2000000000;
  MPI_Type_create_darray(7, 6, 1, &n, &cyclic, &three, &seven, MPI_ORDER_C, MPI_INT, &type);
  const auto dealt = decoder.decode(type);
  expect(dealt && sizes_of(*dealt) == sizes_of(type), "a darray of 8 GB");
  MPI_Type_free(&type);
}

// A handle that was freed, and given to another type, is not mistaken for the old one.
void freed_types(Decoder& decoder) {
  for (int i = 1; i < 200; ++i) {
    MPI_Datatype type;
    MPI_Type_contiguous(i, MPI_INT, &type);
    const auto map = decoder.decode(type);
    expect(map && map->size() == 4 * i, "a type of a handle used before");
    MPI_Type_free(&type);
  }
}

int count_drop(MPI_Datatype, int, void*, void* drops) {
  ++*static_cast<int*>(drops);
  return MPI_SUCCESS;
}

// Types that the contents hand out are given back: when all is freed, they are gone.
void nested_types_are_freed(Decoder& decoder) {
  int drops = 0, keyval = MPI_KEYVAL_INVALID;
  MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, count_drop, &keyval, &drops);
  MPI_Datatype inner, middle, outer;
  MPI_Type_vector(3, 1, 2, MPI_INT, &inner);
  MPI_Type_set_attr(inner, keyval, nullptr);
  MPI_Type_contiguous(4, inner, &middle);
  MPI_Type_dup(middle, &outer);
  expect(decoder.decode(outer).has_value() && decoder.signature(outer).has_value(), "nested");
  MPI_Type_free(&inner);
  MPI_Type_free(&middle);
  MPI_Type_free(&outer);
  expect(drops == 1, fmt::format("the nested type was freed {} times", drops));
  MPI_Type_free_keyval(&keyval);
}

// What MPI 3 removed, and old programs use.
#ifndef OPEN_MPI
void removed_types(Decoder& decoder) {
  int lengths[] = {1, 2, 1};
  MPI_Aint at[] = {-8, 4, 40};
  MPI_Datatype members[] = {MPI_LB, MPI_INT, MPI_UB}, type, loop, list;
  MPI_Type_struct(3, lengths, at, members, &type);
  const auto map = decoder.decode(type);
  expect(map && sizes_of(*map) == Sizes{8, -8, 48, 4, 8}, "a struct with marked bounds");
  const auto signature = decoder.signature(type);
  expect(signature && signature->elements() == 2, "markers are no elements");
  MPI_Type_hvector(3, 1, 100, type, &loop);
  const auto three = decoder.decode(loop);
  expect(three && sizes_of(*three) == sizes_of(loop), "an old hvector");
  MPI_Type_hindexed(2, lengths, at, type, &list);
  const auto two = decoder.decode(list);
  expect(two && sizes_of(*two) == sizes_of(list), "an old hindexed");
  MPI_Type_free(&type);
  MPI_Type_free(&loop);
  MPI_Type_free(&list);
}
#else
void removed_types(Decoder&) {}  // its header hides them
#endif

void wrong_types(Decoder& decoder) {
  expect(decoder.decode(MPI_DATATYPE_NULL).error().code() == EINVAL, "no type");
  expect(decoder.signature(MPI_DATATYPE_NULL).error().code() == EINVAL, "no type's signature");
  expect(!decoder.check_committed(MPI_DATATYPE_NULL, MPI_COMM_SELF), "no type is committed");
  MPI_Datatype type;
  MPI_Type_contiguous(3, MPI_INT, &type);
  expect(!decoder.check_committed(type, MPI_COMM_SELF), "not committed");
  MPI_Type_commit(&type);
  expect(decoder.check_committed(type, MPI_COMM_SELF).has_value(), "committed");
  MPI_Type_free(&type);
  expect(decoder.check_committed(MPI_INT, MPI_COMM_SELF).has_value(), "MPI_INT is committed");
}

// Displacements in elements count the file's elements; those in bytes do not.
void types_in_files(Decoder& decoder) {
  const PrimitiveSize half = [](MPI_Datatype primitive) -> Result<int64_t> {
    int size = 0;
    MPI_Type_size(primitive, &size);
    return size / 2;
  };
  MPI_Datatype vector, bytes;
  MPI_Type_vector(3, 2, 5, MPI_DOUBLE, &vector);
  const auto scaled = decoder.decode_in_file(vector, half);
  expect(scaled && scaled->size() == 24 && scaled->extent() == 48, "a vector of halves");
  MPI_Type_create_hvector(3, 2, 80, MPI_DOUBLE, &bytes);
  const auto kept = decoder.decode_in_file(bytes, half);
  expect(kept && kept->size() == 24 && kept->extent() == 168, "an hvector of halves");
  MPI_Type_free(&vector);
  MPI_Type_free(&bytes);
}

void threads(Decoder& decoder, uint64_t seed) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE) return;
  RandomTypes random(seed);
  std::vector<RandomType> types;
  for (int i = 0; i < 200; ++i) types.push_back(random.make(4));
  std::vector<std::thread> readers;
  std::atomic<int> wrong = 0;
  for (int k = 0; k < 4; ++k) {
    readers.emplace_back([&] {
      for (const RandomType& t : types) {
        const auto map = decoder.decode(t.type);
        wrong += !map || map->size() != sizes_of(t.type).size;
        wrong += !decoder.signature(t.type);
      }
    });
  }
  for (std::thread& t : readers) t.join();
  expect(wrong == 0, "decoded by several threads");
}

void run_all() {
  const uint64_t seed = test_seed();
  Result<std::unique_ptr<Decoder>> decoder = Decoder::make();
  random_types(**decoder, seed);
  huge_types(**decoder);
  freed_types(**decoder);
  nested_types_are_freed(**decoder);
  removed_types(**decoder);
  wrong_types(**decoder);
  types_in_files(**decoder);
  threads(**decoder, seed);
}

}  // namespace
}  // namespace forebay::mpiio

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  forebay::mpiio::run_all();
  MPI_Finalize();
  fmt::print("{}\n", forebay::mpiio::failures ? "FAILED" : "passed");
  return forebay::mpiio::failures ? 1 : 0;
}
