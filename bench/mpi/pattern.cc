#include "pattern.h"

#include <array>
#include <cmath>
#include <numeric>

namespace bench {
namespace {

constexpr uint64_t kCell = 5;  // doubles, the five variables of a fluid

// Calls visit(z, y, x, word) for all words of a box of cells.
template <class Visit>
void each_word(uint64_t side, Visit&& visit) {
  for (uint64_t z = 0; z < side; ++z)
    for (uint64_t y = 0; y < side; ++y)
      for (uint64_t x = 0; x < side; ++x)
        for (uint64_t word = 0; word < kCell; ++word) visit(z, y, x, word);
}

MPI_Datatype box(std::array<int, 3> whole, std::array<int, 3> part, std::array<int, 3> first,
                 MPI_Datatype cell) {
  MPI_Datatype type;
  MPI_Type_create_subarray(3, whole.data(), part.data(), first.data(), MPI_ORDER_C, cell, &type);
  return type;
}

}  // namespace

const std::vector<std::string>& Pattern::names() {
  static const std::vector<std::string> all = {"contiguous", "strided-4k", "strided-64",
                                               "block-3d",   "ghosted",    "memory-8-of-16"};
  return all;
}

Pattern Pattern::make(const std::string& name, const Sizes& sizes) {
  Pattern pattern(sizes);
  if (name == "contiguous") pattern.contiguous();
  if (name == "strided-4k" || name == "memory-8-of-16") pattern.interleaved(512);
  if (name == "strided-64") pattern.interleaved(8);
  if (name == "block-3d" || name == "ghosted") pattern.blocks_3d(name == "ghosted");
  if (name == "memory-8-of-16") pattern.every_second_in_memory();
  pattern.file_words = pattern.in_file.size() * static_cast<uint64_t>(sizes.ranks) * sizes.steps;
  return pattern;
}

Pattern::Pattern(Pattern&& other) noexcept = default;

Pattern::~Pattern() {
  for (MPI_Datatype& type : made_) MPI_Type_free(&type);
}

MPI_Datatype Pattern::keep(MPI_Datatype type) {
  MPI_Type_commit(&type);
  made_.push_back(type);
  return type;
}

void Pattern::dense_in_memory() {
  in_memory.resize(in_file.size());
  std::iota(in_memory.begin(), in_memory.end(), uint64_t{0});
  memory_words = in_file.size();
  memory_count = static_cast<int>(memory_words);
}

// Each rank has a part of the file of its own.
void Pattern::contiguous() {
  in_file.resize(sizes_.words);
  const uint64_t first = static_cast<uint64_t>(sizes_.rank) * sizes_.words * sizes_.steps;
  std::iota(in_file.begin(), in_file.end(), first);
  file_step = sizes_.words;
  displacement = static_cast<MPI_Offset>(first * sizeof(double));
  step_etypes = static_cast<MPI_Offset>(sizes_.words);
  dense_in_memory();
}

// Blocks of so many words, of each rank in turn.
void Pattern::interleaved(uint64_t block) {
  const auto rank = static_cast<uint64_t>(sizes_.rank), ranks = static_cast<uint64_t>(sizes_.ranks);
  const uint64_t blocks = sizes_.words / block;
  for (uint64_t i = 0; i < blocks * block; ++i)
    in_file.push_back((i / block * ranks + rank) * block + i % block);
  file_step = blocks * block * ranks;
  displacement = static_cast<MPI_Offset>(rank * block * sizeof(double));
  MPI_Datatype one, tile;
  MPI_Type_contiguous(static_cast<int>(block), MPI_DOUBLE, &one);
  MPI_Type_create_resized(one, 0, static_cast<MPI_Aint>(block * ranks * sizeof(double)), &tile);
  MPI_Type_free(&one);
  filetype = keep(tile);
  step_etypes = static_cast<MPI_Offset>(blocks * block);
  dense_in_memory();
}

// A field of cells, of which each rank has a cube; in memory perhaps with a layer of its
// neighbours' cells around it.
void Pattern::blocks_3d(bool ghosts) {
  const auto side = static_cast<uint64_t>(std::cbrt(static_cast<double>(sizes_.words / kCell)));
  std::array<int, 3> grid{}, place{};
  MPI_Dims_create(sizes_.ranks, 3, grid.data());
  place = {sizes_.rank / (grid[1] * grid[2]), sizes_.rank / grid[2] % grid[1],
           sizes_.rank % grid[2]};
  const int n = static_cast<int>(side);
  std::array<int, 3> whole{}, first{};
  for (size_t i = 0; i < 3; ++i) whole[i] = grid[i] * n, first[i] = place[i] * n;
  const auto at = [](int value) { return static_cast<uint64_t>(value); };
  each_word(side, [&](uint64_t z, uint64_t y, uint64_t x, uint64_t word) {
    const uint64_t row = (at(first[0]) + z) * at(whole[1]) + at(first[1]) + y;
    in_file.push_back((row * at(whole[2]) + at(first[2]) + x) * kCell + word);
  });
  file_step = side * side * side * kCell * at(sizes_.ranks);
  MPI_Datatype cell;
  MPI_Type_contiguous(kCell, MPI_DOUBLE, &cell);
  etype = keep(cell);
  filetype = keep(box(whole, {n, n, n}, first, cell));
  step_etypes = static_cast<MPI_Offset>(side * side * side);
  dense_in_memory();
  if (!ghosts) return;
  memory_words = (side + 2) * (side + 2) * (side + 2) * kCell;
  memory_type = keep(box({n + 2, n + 2, n + 2}, {n, n, n}, {1, 1, 1}, cell));
  memory_count = 1;
  in_memory.clear();
  each_word(side, [&](uint64_t z, uint64_t y, uint64_t x, uint64_t word) {
    in_memory.push_back((((z + 1) * (side + 2) + y + 1) * (side + 2) + x + 1) * kCell + word);
  });
}

void Pattern::every_second_in_memory() {
  for (uint64_t i = 0; i < in_memory.size(); ++i) in_memory[i] = 2 * i;
  memory_words = 2 * in_memory.size();
  MPI_Datatype spread;
  MPI_Type_vector(static_cast<int>(in_memory.size()), 1, 2, MPI_DOUBLE, &spread);
  memory_type = keep(spread);
  memory_count = 1;
}

}  // namespace bench
