#include "shared_pointer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace bench {
namespace {

constexpr size_t kRecord = 4096, kWords = kRecord / sizeof(uint32_t);
using Record = std::vector<uint32_t>;

// What all records of a rank have in common.
void fill(Record& record, uint64_t round, uint64_t rank) {
  const auto name = static_cast<uint32_t>((round * 64 + rank) * 65536);
  for (size_t i = 0; i < kWords; ++i) record[i] = (name + static_cast<uint32_t>(i)) * 2654435761u;
  record[0] = static_cast<uint32_t>(rank);
}

// Which of them it is, every 512 bytes.
void stamp(Record& record, uint64_t number) {
  for (size_t i = 1; i < kWords; i += 128) record[i] = static_cast<uint32_t>(number);
}

// With POSIX, by one rank.
bool all_there(const std::string& path, uint64_t round, uint64_t ranks, uint64_t records,
               bool ordered) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::vector<uint64_t> next(ranks);
  Record got(kWords), expected(kWords);
  bool good = true;
  for (uint64_t i = 0; good && i < ranks * records; ++i) {
    good = ::read(fd, got.data(), kRecord) == static_cast<ssize_t>(kRecord) && got[0] < ranks;
    if (!good) break;
    const uint64_t rank = got[0];
    good = !ordered || rank == i % ranks;
    fill(expected, round, rank);
    stamp(expected, next[rank]++);  // a rank's own records keep their order
    good = good && got == expected;
  }
  good = good && ::read(fd, got.data(), 1) == 0;
  ::close(fd);
  return good && std::ranges::all_of(next, [&](uint64_t n) { return n == records; });
}

}  // namespace

void run_shared_pointer(const JobOptions& options, const std::string& name, int records,
                        Seat seat) {
  const bool ordered = name == "ordered";
  const std::string path = options.directory + "/mpi_io_bench." + name;
  std::vector<Measured> rounds;
  bool verified = true;
  Record record(kWords);
  for (int round = 0; round < options.rounds; ++round) {
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_CREATE | MPI_MODE_WRONLY,
                       MPI_INFO_NULL, &file),
         "open");
    fill(record, static_cast<uint64_t>(round), seat.rank);
    rounds.push_back(measure([&] {
      for (int i = 0; i < records; ++i) {
        stamp(record, static_cast<uint64_t>(i));
        const auto write = ordered ? MPI_File_write_ordered : MPI_File_write_shared;
        must(write(file, record.data(), static_cast<int>(kRecord), MPI_BYTE, MPI_STATUS_IGNORE),
             name.c_str());
      }
      must(MPI_File_close(&file), "close");
    }));
    MPI_Barrier(MPI_COMM_WORLD);
    if (seat.rank == 0) {
      verified = all_there(path, static_cast<uint64_t>(round), seat.ranks,
                           static_cast<uint64_t>(records), ordered) &&
                 verified;
      ::unlink(path.c_str());
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (seat.rank != 0) return;
  const double megabytes = static_cast<double>(seat.ranks) * records * kRecord / 1e6;
  const auto rate =
      json_list("write_mb_s", rounds, [&](const Measured& m) { return megabytes / m.seconds; });
  const auto cpu = json_list("write_cpu_s_gb", rounds,
                             [&](const Measured& m) { return m.cpu * 1e3 / megabytes; });
  std::printf("{\"workload\": \"%s\", \"ranks\": %llu, %s, %s, \"verified\": %s}\n", name.c_str(),
              static_cast<unsigned long long>(seat.ranks), rate.c_str(), cpu.c_str(),
              verified ? "true" : "false");
  std::fflush(stdout);
}

}  // namespace bench
