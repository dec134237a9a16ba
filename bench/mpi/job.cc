#include "job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace bench {
namespace {

constexpr uint64_t kWord = sizeof(uint32_t);
constexpr uint32_t kGap = 0x55555555;        // in memory, where no data belongs
constexpr uint64_t kLimitRequest = 1 << 20;  // of the POSIX calls
constexpr uint64_t kStampsOfARound = 1 << 16;

// What a file holds at a place after a change of it in a round.
uint32_t word_at(uint64_t place, uint64_t stamp) {
  return static_cast<uint32_t>(
      ((place / kWord + 1) * 0x9e3779b97f4a7c15u + stamp * 0xd1b54a32d192ed03u) >> 32);
}

uint64_t stamp_of(uint64_t round, uint64_t change) {
  return (round + 1) * kStampsOfARound + change;
}

// The rank's part of so many bytes.
struct Part {
  uint64_t begin, end;
};
Part part_of(uint64_t bytes, Seat seat) {
  const uint64_t words = bytes / kWord;
  return {words * seat.rank / seat.ranks * kWord, words * (seat.rank + 1) / seat.ranks * kWord};
}

// With the arguments of reading, which differ by a const.
int write_together(MPI_File file, MPI_Offset at, void* data, int count, MPI_Datatype type,
                   MPI_Status* status) {
  return MPI_File_write_at_all(file, at, data, count, type, status);
}
int write_alone(MPI_File file, MPI_Offset at, void* data, int count, MPI_Datatype type,
                MPI_Status* status) {
  return MPI_File_write_at(file, at, data, count, type, status);
}

uint64_t bytes_of(const std::vector<File>& files) {
  uint64_t mine = 0, all = 0;
  for (const File& file : files)
    for (const Call& call : file.calls)
      for (const Nest& nest : call.where) mine += nest.total();
  MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

uint64_t memory_of(const std::vector<File>& files) {
  uint64_t most = 0;
  for (const File& file : files)
    for (const Call& call : file.calls) most = std::max(most, call.memory_end);
  return most;
}

}  // namespace

Job::Job(const JobOptions& options, const std::string& spec, Seat seat)
    : options_(options),
      spec_(spec),
      path_(options.directory + "/mpi_io_bench.data"),
      seat_(seat),
      files_(make_workload(spec, seat, options.mib, types_)),
      moved_(bytes_of(files_)),
      memory_(memory_of(files_) / kWord) {}

void Job::run() {
  for (int round = 0; round < options_.rounds; ++round) {
    if (options_.limit) limit_round();
    one_round(static_cast<uint64_t>(round));
  }
}

void Job::one_round(uint64_t round) {
  write_ = read_ = {};
  for (const File& file : files_) {
    remove();
    file.in_place ? in_place(file, round) : fresh(file, round);
    remove();
  }
  writes_.push_back(write_);
  reads_.push_back(read_);
}

void Job::fresh(const File& file, uint64_t round) {
  clear();
  for (const Call& call : file.calls) fill(call, stamp_of(round, 0));
  MPI_File handle = open(MPI_MODE_CREATE | MPI_MODE_RDWR);
  write_ += measure([&] {
    move_all(handle, file.calls, true);
    must(MPI_File_close(&handle), "close");
  });
  look_at_file(file, round);

  clear();
  handle = open(MPI_MODE_RDONLY);
  const auto pass = [&] { move_all(handle, file.calls, false); };
  read_ += options_.independent ? measure_long(pass) : measure(pass);
  must(MPI_File_close(&handle), "close");
  look_at_memory(file.calls, stamp_of(round, 0));
}

void Job::in_place(const File& file, uint64_t round) {
  prepare(file, round);
  MPI_File handle = open(MPI_MODE_RDWR);
  for (size_t i = 0; i < file.calls.size(); ++i) {
    const Call& call = file.calls[i];
    const View* before = i == 0 ? nullptr : &file.calls[i - 1].view;
    clear();
    read_ += measure([&] { move(handle, call, before, false); });
    look_at_memory({call}, stamp_of(round, call.finds));
    fill(call, stamp_of(round, call.makes));
    write_ += measure([&] { move(handle, call, &call.view, true); });
  }
  write_ += measure([&] { must(MPI_File_close(&handle), "close"); });
  look_at_file(file, round);
}

// What is in the file before the first change.
void Job::prepare(const File& file, uint64_t round) {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT, 0666);
  const Part part = part_of(file.bytes, seat_);
  std::vector<uint32_t> words(kLimitRequest / kWord);
  for (uint64_t at = part.begin; at < part.end; at += kLimitRequest) {
    const uint64_t bytes = std::min(kLimitRequest, part.end - at);
    for (uint64_t i = 0; i < bytes / kWord; ++i)
      words[i] = word_at(at + i * kWord, stamp_of(round, 0));
    if (pwrite(fd, words.data(), bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes))
      give_up("cannot write " + path_);
  }
  if (::close(fd) != 0) give_up("cannot write " + path_);
  MPI_Barrier(MPI_COMM_WORLD);
}

// The same bytes by POSIX calls, each rank in a part of its own, to a new file.
void Job::limit_round() {
  const Part part = part_of(moved_, seat_);
  HugeVector<char> memory(part.end - part.begin, 'x');
  const auto each = [&](int fd, auto call) {
    for (uint64_t at = part.begin; at < part.end; at += kLimitRequest) {
      const uint64_t bytes = std::min(kLimitRequest, part.end - at);
      if (call(fd, memory.data() + (at - part.begin), bytes, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(bytes))
        give_up("POSIX calls on " + path_ + " fail");
    }
  };
  remove();
  int fd = ::open(path_.c_str(), O_RDWR | O_CREAT, 0666);
  limit_writes_.push_back(measure([&] {
    each(fd, ::pwrite);
    ::close(fd);
  }));
  fd = ::open(path_.c_str(), O_RDONLY);
  limit_reads_.push_back(measure([&] { each(fd, ::pread); }));
  ::close(fd);
}

MPI_File Job::open(int mode) const {
  MPI_File file;
  must(MPI_File_open(MPI_COMM_WORLD, path_.c_str(), mode, MPI_INFO_NULL, &file), "open");
  return file;
}

void Job::move(MPI_File file, const Call& call, const View* before, bool write) {
  if (!before || !(*before == call.view)) {
    must(MPI_File_set_view(file, call.view.displacement, call.view.etype, call.view.filetype,
                           "native", MPI_INFO_NULL),
         "set_view");
  }
  const auto mover = write ? (options_.independent ? write_alone : write_together)
                           : (options_.independent ? MPI_File_read_at : MPI_File_read_at_all);
  MPI_Status status;
  must(mover(file, call.at, reinterpret_cast<char*>(memory_.data()) + call.memory, call.count,
             call.type, &status),
       write ? "write" : "read");
  int moved = 0;
  MPI_Get_count(&status, call.type, &moved);
  if (moved != call.count) give_up(spec_ + ": not all was moved");
}

void Job::move_all(MPI_File file, const std::vector<Call>& calls, bool write) {
  const View* before = nullptr;
  for (const Call& call : calls) {
    move(file, call, before, write);
    before = &call.view;
  }
}

void Job::clear() {
  std::fill(memory_.begin(), memory_.end(), kGap);
}

void Job::fill(const Call& call, uint64_t stamp) {
  for (const Nest& nest : call.where) {
    nest.each([&](uint64_t file, uint64_t memory) {
      for (uint64_t i = 0; i < nest.bytes; i += kWord)
        memory_[(memory + i) / kWord] = word_at(file + i, stamp);
    });
  }
}

// Everything where it belongs, and gaps as they were.
void Job::look_at_memory(const std::vector<Call>& calls, uint64_t stamp) {
  bool good = true;
  for (const Call& call : calls) {
    for (const Nest& nest : call.where) {
      nest.each([&](uint64_t file, uint64_t memory) {
        for (uint64_t i = 0; i < nest.bytes; i += kWord) {
          uint32_t& word = memory_[(memory + i) / kWord];
          good &= word == word_at(file + i, stamp);
          word = kGap;
        }
      });
    }
  }
  good = good && std::all_of(memory_.begin(), memory_.end(), [](uint32_t w) { return w == kGap; });
  expect(good, "what was read is not what was written");
}

// A part of each rank, with POSIX calls.
void Job::look_at_file(const File& file, uint64_t round) {
  const int fd = ::open(path_.c_str(), O_RDONLY);
  bool good = fd >= 0 && lseek(fd, 0, SEEK_END) == static_cast<off_t>(file.bytes);
  const Part part = part_of(file.bytes, seat_);
  std::vector<uint32_t> words(kLimitRequest / kWord);
  Stretch stretch{file.stretch_at ? 0 : file.bytes, true, 0};
  for (uint64_t at = part.begin; good && at < part.end; at += kLimitRequest) {
    const uint64_t bytes = std::min(kLimitRequest, part.end - at);
    good = pread(fd, words.data(), bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
    for (uint64_t i = 0; i < bytes; i += kWord) {
      if (at + i >= stretch.end) stretch = file.stretch_at(at + i);
      good &= !stretch.data || words[i / kWord] == word_at(at + i, stamp_of(round, stretch.stamp));
    }
  }
  if (fd >= 0) ::close(fd);
  expect(good, "the file does not hold what was written");
}

// Also keeps the ranks together.
void Job::expect(bool good, const char* what) {
  bool all = true;
  MPI_Allreduce(&good, &all, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
  if (!all && verified_ && seat_.rank == 0)
    std::fprintf(stderr, "mpi_io_bench: %s: %s\n", spec_.c_str(), what);
  verified_ = verified_ && all;
}

void Job::remove() const {
  MPI_Barrier(MPI_COMM_WORLD);
  if (seat_.rank == 0) ::unlink(path_.c_str());
  MPI_Barrier(MPI_COMM_WORLD);
}

void Job::print() const {
  if (seat_.rank != 0) return;
  const auto rate = [&](const Measured& one) {
    return static_cast<double>(moved_) * 1e-6 / one.seconds;
  };
  const auto cpu = [&](const Measured& one) {
    return one.cpu / (static_cast<double>(moved_) * 1e-9);
  };
  std::printf("{\"workload\": \"%s\", \"ranks\": %llu, \"bytes\": %llu, \"independent\": %s",
              spec_.c_str(), static_cast<unsigned long long>(seat_.ranks),
              static_cast<unsigned long long>(moved_), options_.independent ? "true" : "false");
  const auto both = [&](const std::string& way, const std::vector<Measured>& rounds) {
    if (rounds.empty()) return;
    std::printf(", %s, %s", json_list((way + "_mb_s").c_str(), rounds, rate).c_str(),
                json_list((way + "_cpu_s_gb").c_str(), rounds, cpu).c_str());
  };
  both("write", writes_);
  both("read", reads_);
  both("limit_write", limit_writes_);
  both("limit_read", limit_reads_);
  std::printf(", \"verified\": %s}\n", verified_ ? "true" : "false");
  std::fflush(stdout);
}

}  // namespace bench
