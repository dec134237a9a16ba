#include "workload.h"

#include <array>
#include <cmath>
#include <stdexcept>

namespace bench {

uint64_t Nest::total() const {
  uint64_t all = bytes;
  for (const Loop& loop : loops) all *= loop.count;
  return all;
}

Types::~Types() {
  for (MPI_Datatype& type : made_) MPI_Type_free(&type);
}

MPI_Datatype Types::keep(MPI_Datatype type) {
  MPI_Type_commit(&type);
  made_.push_back(type);
  return type;
}

MPI_Datatype Types::bytes(uint64_t n) {
  MPI_Datatype type;
  MPI_Type_contiguous(static_cast<int>(n), MPI_BYTE, &type);
  return keep(type);
}

MPI_Datatype Types::resized(MPI_Datatype type, uint64_t extent) {
  MPI_Datatype wide;
  MPI_Type_create_resized(type, 0, static_cast<MPI_Aint>(extent), &wide);
  return keep(wide);
}

MPI_Datatype Types::box(const std::vector<uint64_t>& whole, const std::vector<uint64_t>& part,
                        const std::vector<uint64_t>& first, MPI_Datatype cell) {
  const auto ints = [](const std::vector<uint64_t>& v) {
    return std::vector<int>(v.begin(), v.end());
  };
  MPI_Datatype type;
  MPI_Type_create_subarray(static_cast<int>(whole.size()), ints(whole).data(), ints(part).data(),
                           ints(first).data(), MPI_ORDER_C, cell, &type);
  return keep(type);
}

MPI_Datatype Types::together(const std::vector<MPI_Datatype>& types,
                             const std::vector<uint64_t>& places) {
  const std::vector<int> once(types.size(), 1);
  const std::vector<MPI_Aint> at(places.begin(), places.end());
  MPI_Datatype type;
  MPI_Type_create_struct(static_cast<int>(types.size()), once.data(), at.data(), types.data(),
                         &type);
  return keep(type);
}

namespace {

constexpr uint64_t kCell = 5 * sizeof(double);  // the five variables of a fluid
constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

// Each rank has a part of the file of its own.
File contiguous(Seat seat, uint64_t bytes, uint64_t calls) {
  File file;
  file.bytes = bytes * calls * seat.ranks;
  const uint64_t first = seat.rank * bytes * calls;
  for (uint64_t i = 0; i < calls; ++i) {
    Call call;
    call.view.displacement = static_cast<MPI_Offset>(first);
    call.at = static_cast<MPI_Offset>(i * bytes);
    call.memory = i * bytes, call.memory_end = (i + 1) * bytes;
    call.count = static_cast<int>(bytes);
    call.where = {{first + i * bytes, i * bytes, bytes, {}}};
    file.calls.push_back(call);
  }
  return file;
}

// Blocks of each rank in turn; a call moves several.
File interleaved(Seat seat, uint64_t block, uint64_t bytes, uint64_t calls, Types& types) {
  const uint64_t blocks = std::max<uint64_t>(1, bytes / block), row = block * seat.ranks;
  File file;
  file.bytes = row * blocks * calls;
  const View view{static_cast<MPI_Offset>(seat.rank * block), MPI_BYTE,
                  types.resized(types.bytes(block), row)};
  for (uint64_t i = 0; i < calls; ++i) {
    Call call;
    const uint64_t first = i * blocks * block;  // of this rank's bytes
    call.view = view;
    call.at = static_cast<MPI_Offset>(first);
    call.memory = first, call.memory_end = first + blocks * block;
    call.count = static_cast<int>(blocks * block);
    call.where = {{seat.rank * block + i * blocks * row, first, block, {{blocks, row, block}}}};
    file.calls.push_back(call);
  }
  return file;
}

// Data in memory is every second double.
File every_second(File file, Types& types) {
  constexpr uint64_t kWord = sizeof(double);
  for (Call& call : file.calls) {
    const int words = call.count / static_cast<int>(kWord);
    MPI_Datatype spread;
    MPI_Type_vector(words, 1, 2, MPI_DOUBLE, &spread);
    call.type = types.keep(spread), call.count = 1;
    call.memory *= 2, call.memory_end *= 2;
    for (Nest& nest : call.where) {
      nest.memory *= 2;
      for (Nest::Loop& loop : nest.loops) loop.memory *= 2;
      nest.loops.push_back({nest.bytes / kWord, kWord, 2 * kWord});
      nest.bytes = kWord;
    }
  }
  return file;
}

// A field of cells, of which each rank has a cube; in memory perhaps with a layer of its
// neighbours' cells around it.
File field(Seat seat, uint64_t bytes, uint64_t calls, uint64_t ghosts, Types& types) {
  const auto side = static_cast<uint64_t>(std::cbrt(static_cast<double>(bytes / kCell)));
  const uint64_t room = side + 2 * ghosts, cube = room * room * room * kCell;
  std::array<int, 3> grid{};
  MPI_Dims_create(static_cast<int>(seat.ranks), 3, grid.data());
  const uint64_t gy = static_cast<uint64_t>(grid[1]), gx = static_cast<uint64_t>(grid[2]);
  const std::vector<uint64_t> first = {seat.rank / (gy * gx) * side, seat.rank / gx % gy * side,
                                       seat.rank % gx * side};
  const std::vector<uint64_t> whole = {static_cast<uint64_t>(grid[0]) * side, gy * side, gx * side};
  const MPI_Datatype cell = types.bytes(kCell);
  const View view{0, cell, types.box(whole, {side, side, side}, first, cell)};
  const MPI_Datatype inner =
      types.box({room, room, room}, {side, side, side}, {ghosts, ghosts, ghosts}, cell);
  File file;
  const uint64_t step = whole[0] * whole[1] * whole[2] * kCell, line = whole[2] * kCell;
  file.bytes = step * calls;
  for (uint64_t i = 0; i < calls; ++i) {
    Call call;
    call.view = view;
    call.at = static_cast<MPI_Offset>(i * side * side * side);
    call.memory = i * cube, call.memory_end = call.memory + cube;
    call.type = inner, call.count = 1;
    call.where = {{i * step + (first[0] * whole[1] + first[1]) * line + first[2] * kCell,
                   call.memory + ((ghosts * room + ghosts) * room + ghosts) * kCell,
                   side * kCell,
                   {{side, whole[1] * line, room * room * kCell}, {side, line, room * kCell}}}};
    file.calls.push_back(call);
  }
  return file;
}

struct Spec {
  std::string name;
  std::vector<uint64_t> numbers;

  uint64_t number(size_t i, uint64_t usual) const {
    return i < numbers.size() ? numbers[i] : usual;
  }
};

Spec parse(const std::string& text) {
  Spec spec;
  size_t at = text.find(':');
  spec.name = text.substr(0, at);
  while (at != std::string::npos) {
    const size_t end = text.find(':', at + 1);
    spec.numbers.push_back(std::stoull(text.substr(at + 1, end - at - 1)));
    at = end;
  }
  return spec;
}

}  // namespace

const char* const kWorkloads =
    "contiguous strided-4k strided-64 block-3d ghosted memory-8-of-16\n"
    "ior-seg[:TRANSFER] ior-strided[:BLOCK] coll64 btio[:SIDE:STEPS] flash[:BLOCKS]\n"
    "hpio[:REGION:COUNT:SPACING] sliding[:WIDTH:ROWS] timestep[:POINTS:STEPS]";

std::vector<File> make_workload(const std::string& text, Seat seat, uint64_t mib, Types& types) {
  const Spec spec = parse(text);
  const std::string& name = spec.name;
  const uint64_t share = mib * kMiB / seat.ranks, steps = 4, step = share / steps;
  if (name == "contiguous") return {contiguous(seat, step, steps)};
  if (name == "strided-4k") return {interleaved(seat, 4 * kKiB, step, steps, types)};
  if (name == "strided-64") return {interleaved(seat, 64, step, steps, types)};
  if (name == "block-3d") return {field(seat, step, steps, 0, types)};
  if (name == "ghosted") return {field(seat, step, steps, 1, types)};
  if (name == "memory-8-of-16")
    return {every_second(interleaved(seat, 4 * kKiB, step, steps, types), types)};
  if (name == "ior-seg") {
    const uint64_t transfer = spec.number(0, kMiB);
    return {contiguous(seat, transfer, std::max<uint64_t>(1, share / transfer))};
  }
  if (name == "ior-strided") {
    const uint64_t block = spec.number(0, 4 * kKiB);
    return {interleaved(seat, block, step, block > step ? 1 : steps, types)};
  }
  if (name == "coll64") return {interleaved(seat, 64, step / 4, steps, types)};
  if (name == "btio") return {btio(seat, spec.number(0, 64), spec.number(1, 5), types)};
  if (name == "flash") return flash(seat, spec.number(0, 40), types);
  if (name == "hpio")
    return {hpio(seat, spec.number(0, 512), spec.number(1, 4096), spec.number(2, 128), types)};
  if (name == "sliding")
    return {sliding(seat, spec.number(0, 4 * kKiB), spec.number(1, 64), types)};
  if (name == "timestep") return {timestep(seat, spec.number(0, 256), spec.number(1, 32), types)};
  throw std::invalid_argument("there is no workload " + name);
}

}  // namespace bench
