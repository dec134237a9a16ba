#include "mpiio/file.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "mpiio/collective.h"
#include "mpiio/operation.h"
#include "mpiio/process.h"

namespace forebay::mpiio {

File::~File() {
  FOREBAY_ASSERT(comm == MPI_COMM_NULL, "a file that was not released");
}

void File::release() {
  view = View();
  split = nullptr;
  collective = nullptr;
  kept_realms = nullptr;
  if (lobby)
    lobby->give_back({std::exchange(comm, MPI_COMM_NULL), std::move(meeting)});
  else if (comm != MPI_COMM_NULL)
    PMPI_Comm_free(&comm);
  lobby = nullptr;
  meeting = nullptr;
}

Result<Outcomes> File::outcomes() const {
  auto state = meeting->state();
  if (!state) return state.error();
  return Outcomes(**state, static_cast<uint64_t>(ranks));
}

bool File::tell_outcomes() {
  return arrivals.try_all([this] { return outcomes(); });
}

void File::wait_for_arrivals() {
  constexpr auto kBetweenLooks = std::chrono::microseconds(200);
  while (!tell_outcomes()) {
    progress();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

bool File::several_nodes() const {
  return std::any_of(nodes.begin(), nodes.end(), [](uint32_t node) { return node != 0; });
}

Request File::request(Op op) const {
  return {.op = op, .caller = caller, .handle = opened.handle, .right = opened.right};
}

Result<uint64_t> File::size() const {
  std::shared_lock lock(kept_lock);
  auto size = size_in_store();
  if (size && kept()) *size = std::max(*size, kept()->end());
  return size;
}

Result<uint64_t> File::size_in_store() const {
  auto reply = call({.op = Op::getattr, .caller = caller, .handle = opened.handle});
  if (!reply) return reply.error();
  return reply->attr.size;
}

Result<uint64_t> File::move(Op op, Extents where, Extents memory, Allocate allocate) const {
  std::shared_lock lock(kept_lock);
  if (KeptRealms* realms = kept()) return realms->move(op, where, memory, allocate);
  return move_in_store(op, std::move(where), std::move(memory));
}

Result<uint64_t> File::move_in_store(Op op, Extents where, Extents memory) const {
  Request moving = request(op);
  moving.flags = op == Op::write ? write_flags.load() : 0;
  moving.file = std::move(where);
  moving.memory.shape = std::move(memory);
  if (op == Op::write && !moving.file.contiguous()) {
    moving.flags |= sieve_flags;
    moving.length = Length(sieve_window);
  }
  if (op == Op::read)
    if (const auto costs = sieve_costs(moving.file, sieving, place.local || place.served))
      return read_sieved(*place.store, moving, *costs);
  auto reply = call(std::move(moving));
  if (!reply) return reply.error();
  return reply->count;
}

// Of small pieces on a local file system, where each rank by itself would map every page that all
// of them touch.
bool File::write_jointly(const plan::ViewPart& part, const plan::TiledMap& memory) const {
  constexpr uint64_t kLeastBytes = 128_KiB, kMostPiece = 8_KiB;
  const bool always = joint_writes == JointWanted::always;
  JointWrites* const joint = meeting ? meeting->joint_writes() : nullptr;
  if (!joint || joint_writes == JointWanted::never || !place.local || atomic ||
      !part.view.monotone())
    return false;
  if (!always && (part.length.value < kLeastBytes || part.view.contiguous() ||
                  part.view.mean_piece() > kMostPiece))
    return false;
  std::shared_lock lock(kept_lock);
  if (kept()) return false;
  return joint->write(
      part, memory,
      [this](Extents where, Extents from) {
        return move_in_store(Op::write, std::move(where), std::move(from));
      },
      always ? JointWrites::Patience::much : JointWrites::Patience::sensible);
}

// On a local file system, where the kernel lets one write to a file at a time anyway. Elsewhere
// each would wait for the one before it.
bool File::write_record(const plan::ViewPart& part, const plan::TiledMap& memory) const {
  RecordWrites* const records = meeting ? meeting->record_writes() : nullptr;
  const uint64_t bytes = part.length.value;
  if (!records || joint_writes == JointWanted::never || !place.local || atomic ||
      bytes > NodeRecords::kMostBytes || !part.view.contiguous())
    return false;
  if (joint_writes != JointWanted::always && bytes < RecordWrites::kLeastBytes) return false;
  std::shared_lock lock(kept_lock);
  if (kept()) return false;
  return records->write(part.bounds().offset, memory, [this](Extents where, Extents from) {
    return move_in_store(Op::write, std::move(where), std::move(from));
  });
}

// What collective calls will do, for who asks: no more aggregators than there can be.
void File::settle_hints() {
  // What users get on a local file system who do not say it: what was filled is still in the
  // processor's cache when it is written. Elsewhere few large requests matter more.
  constexpr uint64_t kLocalBuffer = 2_MiB;
  if (place.local) hints.assume("cb_buffer_size", std::to_string(kLocalBuffer));
  const uint64_t wished = std::min<uint64_t>(hints.number("cb_nodes"), UINT32_MAX);
  if (wished == 0 || nodes.empty()) return;
  const uint32_t per_node = plan::per_node_of(hints["cb_config_list"]).value_or(UINT32_MAX);
  const auto chosen = plan::choose_aggregators(nodes, static_cast<uint32_t>(wished), per_node);
  hints.set("cb_nodes", std::to_string(chosen.size()));
}

void File::obey_hints() {
  settle_hints();
  sieving.wanted = hints.is("romio_ds_read", "enable")    ? SieveWanted::always
                   : hints.is("romio_ds_read", "disable") ? SieveWanted::never
                                                          : SieveWanted::automatic;
  sieving.window = std::max<uint64_t>(hints.number("ind_rd_buffer_size"), 1);
  sieving.hole = hints.number("romio_cb_ds_threshold");
  joint_writes = hints.is("forebay_direct", "true")            ? JointWanted::never
                 : hints.is("forebay_joint_writes", "enable")  ? JointWanted::always
                 : hints.is("forebay_joint_writes", "disable") ? JointWanted::never
                                                               : JointWanted::automatic;
  write_flags = !place.served                             ? 0u
                : hints.is("forebay_write_behind", "on")  ? uint32_t{kFlagBehind}
                : hints.is("forebay_write_behind", "off") ? uint32_t{kFlagStable}
                                                          : 0u;
  if (const char* why = why_never_sieved()) {
    if (!hints.is("romio_ds_write", "disable")) hints.ignore("romio_ds_write", why);
    hints.ignore("ind_wr_buffer_size", why);
    return;
  }
  sieve_flags = hints.is("romio_ds_write", "enable")    ? uint32_t{kFlagSieve}
                : hints.is("romio_ds_write", "disable") ? uint32_t{kFlagNoSieve}
                                                        : 0u;
  sieve_window = hints.number("ind_wr_buffer_size");
}

const char* File::why_never_sieved() const {
  if (!place.served) return "writes are sieved by servers only: nobody else excludes other writers";
  return reads() ? nullptr : "to sieve a write is to read too, and the file is not open for that";
}

Fault File::gather(const void* mine, size_t bytes, void* all) const {
  Gathering* near = meeting ? meeting->gathering() : nullptr;
  if (near) {
    near->gather(mine, bytes, all, progress);
    return {};
  }
  const int n = static_cast<int>(bytes);
  if (PMPI_Allgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, comm) == MPI_SUCCESS) return {};
  return {MPI_ERR_IO, "the ranks of the file cannot reach each other"};
}

Fault File::agree(Fault mine) const {
  return agree(std::move(mine), 0);
}

Fault File::agree(Fault mine, long long value) const {
  if (ranks == 1) return mine;
  struct Own {
    long long code, value;
  };
  const Own own{mine.code, value};
  std::vector<Own> all(static_cast<size_t>(ranks));
  if (auto fault = gather(&own, sizeof own, all.data())) return fault;
  int worst = MPI_SUCCESS;
  bool same = true;
  for (const Own& one : all) {
    worst = std::max(worst, static_cast<int>(one.code));
    same = same && one.value == value;
  }
  if (worst != MPI_SUCCESS) {
    if (worst == mine.code) return mine;
    return {worst, mine ? mine.text : "another rank failed"};
  }
  if (same) return {};
  return {MPI_ERR_NOT_SAME, "the ranks give different arguments"};
}

}  // namespace forebay::mpiio
