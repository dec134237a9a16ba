// What published benchmarks do, as plain MPI-IO.
#include <stdexcept>

#include "workload.h"

namespace bench {
namespace {

constexpr uint64_t kDouble = sizeof(double), kFloat = sizeof(float);

// How a side of n is cut into parts that differ by one at most.
struct Cut {
  uint64_t n, parts;
  uint64_t first(uint64_t i) const { return n / parts * i + std::min(i, n % parts); }
  uint64_t length(uint64_t i) const { return first(i + 1) - first(i); }
};

}  // namespace

// NAS BTIO (NPB, full_mpiio): a cube of cells, five doubles each, in diagonal multi-partitioning:
// of q x q ranks each has q blocks, one in each layer and no two in a row or column. In memory a
// block has two ghost cells on every side. One call for each step.
File btio(Seat seat, uint64_t side, uint64_t steps, Types& types) {
  constexpr uint64_t kCell = 5 * kDouble, kGhosts = 2;
  uint64_t q = 1;
  while (q * q < seat.ranks) ++q;
  if (q * q != seat.ranks) throw std::invalid_argument("btio needs a square number of ranks");
  const Cut cut{side, q};
  const uint64_t room = cut.length(0) + 2 * kGhosts, block = room * room * room * kCell;
  const MPI_Datatype cell = types.bytes(kCell);
  std::vector<MPI_Datatype> in_file, in_memory;
  std::vector<uint64_t> no_shift(q, 0), blocks;
  std::vector<Nest> where;
  uint64_t cells = 0;
  for (uint64_t z = 0; z < q; ++z) {
    const uint64_t y = (seat.rank / q + q - z) % q, x = (seat.rank % q + z) % q;
    const std::vector<uint64_t> size = {cut.length(z), cut.length(y), cut.length(x)},
                                first = {cut.first(z), cut.first(y), cut.first(x)};
    in_file.push_back(types.box({side, side, side}, size, first, cell));
    in_memory.push_back(types.box({room, room, room}, size, {kGhosts, kGhosts, kGhosts}, cell));
    blocks.push_back(z * block);
    where.push_back({((first[0] * side + first[1]) * side + first[2]) * kCell,
                     z * block + ((kGhosts * room + kGhosts) * room + kGhosts) * kCell,
                     size[2] * kCell,
                     {{size[0], side * side * kCell, room * room * kCell},
                      {size[1], side * kCell, room * kCell}}});
    cells += size[0] * size[1] * size[2];
  }
  File file;
  const uint64_t step = side * side * side * kCell;
  file.bytes = step * steps;
  Call call;
  call.view = {0, cell, types.together(in_file, no_shift)};
  call.type = types.together(in_memory, blocks), call.count = 1;
  for (uint64_t i = 0; i < steps; ++i) {
    call.at = static_cast<MPI_Offset>(i * cells);
    call.memory = i * q * block, call.memory_end = call.memory + q * block;
    call.where = where;
    for (Nest& nest : call.where) nest.file += i * step, nest.memory += call.memory;
    file.calls.push_back(call);
  }
  return file;
}

namespace {

// All 24 variables of all blocks by one call. In memory the variables of a cell lie together, and a
// block of 8 x 8 x 8 cells has four guard cells on every side; in the file each variable is an
// array of its own over the blocks of all ranks.
File checkpoint(Seat seat, uint64_t blocks, Types& types) {
  constexpr uint64_t kVariables = 24, kSide = 8, kGuards = 4, kRoom = kSide + 2 * kGuards;
  constexpr uint64_t kCell = kVariables * kDouble, kBlock = kSide * kSide * kSide * kDouble;
  const uint64_t mine = blocks * kBlock, variable = mine * seat.ranks;
  const MPI_Datatype box =
      types.box({blocks, kRoom, kRoom, kRoom}, {blocks, kSide, kSide, kSide},
                {0, kGuards, kGuards, kGuards}, types.resized(MPI_DOUBLE, kCell));
  MPI_Datatype all;
  MPI_Type_create_hvector(kVariables, 1, kDouble, box, &all);
  Call call;
  call.view = {static_cast<MPI_Offset>(seat.rank * mine), MPI_BYTE,
               types.resized(types.bytes(mine), variable)};
  call.type = types.keep(all), call.count = 1;
  call.memory_end = blocks * kRoom * kRoom * kRoom * kCell;
  call.where = {{seat.rank * mine,
                 ((kGuards * kRoom + kGuards) * kRoom + kGuards) * kCell,
                 kDouble,
                 {{kVariables, variable, kDouble},
                  {blocks, kBlock, kRoom * kRoom * kRoom * kCell},
                  {kSide, kSide * kSide * kDouble, kRoom * kRoom * kCell},
                  {kSide, kSide * kDouble, kRoom * kCell},
                  {kSide, kDouble, kCell}}}};
  File file;
  file.bytes = kVariables * variable;
  file.calls = {call};
  return file;
}

// Four variables, a call for each; the program has made floats of them, dense in memory.
File plotfile(Seat seat, uint64_t blocks, uint64_t side) {
  constexpr uint64_t kVariables = 4;
  const uint64_t mine = blocks * side * side * side * kFloat;
  File file;
  file.bytes = kVariables * mine * seat.ranks;
  for (uint64_t i = 0; i < kVariables; ++i) {
    Call call;
    const uint64_t first = (i * seat.ranks + seat.rank) * mine;
    call.view = {static_cast<MPI_Offset>(first), MPI_FLOAT, MPI_FLOAT};
    call.type = MPI_FLOAT, call.count = static_cast<int>(mine / kFloat);
    call.memory = i * mine, call.memory_end = call.memory + mine;
    call.where = {{first, call.memory, mine, {}}};
    file.calls.push_back(call);
  }
  return file;
}

}  // namespace

// FLASH I/O: a checkpoint and two plotfiles, of cells and of their corners, laid out as HDF5 and
// PnetCDF do.
std::vector<File> flash(Seat seat, uint64_t blocks, Types& types) {
  return {checkpoint(seat, blocks, types), plotfile(seat, blocks, 8), plotfile(seat, blocks, 9)};
}

// HPIO: regions of one size, with space between them in memory and in the file, the ranks' regions
// in turn.
File hpio(Seat seat, uint64_t region, uint64_t count, uint64_t spacing, Types& types) {
  const uint64_t pitch = region + spacing, row = pitch * seat.ranks;
  const MPI_Datatype piece = types.bytes(region);
  Call call;
  call.view = {static_cast<MPI_Offset>(seat.rank * pitch), MPI_BYTE, types.resized(piece, row)};
  call.type = types.resized(piece, pitch), call.count = static_cast<int>(count);
  call.memory_end = count * pitch;
  call.where = {{seat.rank * pitch, 0, region, {{count, row, pitch}}}};
  File file;
  file.bytes = count * row - spacing;
  file.calls = {call};
  file.stretch_at = [=](uint64_t place) {
    const uint64_t first = place / pitch * pitch;
    return place - first < region ? Stretch{first + region, true, 0}
                                  : Stretch{first + pitch, false, 0};
  };
  return file;
}

// The sliding window (Coloma's dissertation, section 3.5.2): 8 x 8 tiles; each rank reads and
// writes the tile of its rank, then the next one, until all have had them all.
File sliding(Seat seat, uint64_t width, uint64_t rows, Types& types) {
  constexpr uint64_t kSide = 8, kTiles = kSide * kSide;
  if (seat.ranks > kTiles) throw std::invalid_argument("sliding takes 64 ranks at most");
  const uint64_t line = kSide * width;
  File file;
  file.bytes = kTiles * width * rows;
  file.in_place = true;
  for (uint64_t i = 0; i < kTiles; ++i) {
    const uint64_t tile = (seat.rank + i) % kTiles, y = tile / kSide * rows,
                   x = tile % kSide * width;
    Call call;
    call.view = {0, MPI_BYTE, types.box({kSide * rows, line}, {rows, width}, {y, x}, MPI_BYTE)};
    call.count = static_cast<int>(rows * width);
    call.memory_end = rows * width;
    call.where = {{y * line + x, 0, width, {{rows, line, width}}}};
    // The rank ahead wrote it just before; the first one finds what was there before it all, or
    // comes again to where the last one began.
    const bool ahead = seat.rank + 1 == seat.ranks;
    call.finds = !ahead ? i : i + seat.ranks > kTiles ? i + seat.ranks - kTiles : 0;
    call.makes = i + 1;
    file.calls.push_back(call);
  }
  file.stretch_at = [=](uint64_t place) {
    const uint64_t tile = place / (line * rows) * kSide + place % line / width;
    const bool last = tile + 1 == kTiles || tile + 1 < seat.ranks;  // of the last call
    return Stretch{(place / width + 1) * width, true, last ? kTiles : tile + 1};
  };
  return file;
}

// Time steps (section 4.3.4): data points of 100 elements, 32 bytes each, the ranks' elements in
// turn; all time steps of a point lie together. One call for each time step.
File timestep(Seat seat, uint64_t points, uint64_t steps, Types& types) {
  constexpr uint64_t kElement = 32, kElements = 100;
  const uint64_t mine = (kElements - seat.rank + seat.ranks - 1) / seat.ranks;
  const uint64_t step = kElements * kElement, point = steps * step,
                 total = points * mine * kElement;
  MPI_Datatype elements;
  MPI_Type_vector(static_cast<int>(mine), kElement, static_cast<int>(seat.ranks * kElement),
                  MPI_BYTE, &elements);
  const MPI_Datatype filetype = types.resized(types.keep(elements), point);
  File file;
  file.bytes = points * point;
  for (uint64_t i = 0; i < steps; ++i) {
    Call call;
    const uint64_t first = i * step + seat.rank * kElement;
    call.view = {static_cast<MPI_Offset>(first), MPI_BYTE, filetype};
    call.count = static_cast<int>(total);
    call.memory = i * total, call.memory_end = call.memory + total;
    call.where = {{first,
                   call.memory,
                   kElement,
                   {{points, point, mine * kElement}, {mine, seat.ranks * kElement, kElement}}}};
    file.calls.push_back(call);
  }
  return file;
}

}  // namespace bench
