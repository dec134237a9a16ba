// mpi_io_bench: plain MPI-IO, whose ever it is. Writes and reads back one shared file in the
// patterns of pattern.h, looks at every byte, and prints a line of JSON for each pattern.
//
// A time is from a barrier until the slowest rank has done its calls; opening, the view and closing
// are outside of it. CPU seconds are those of all ranks between the same points. Every round writes
// a new file, and reads it back as the page cache has it. The file is looked at with POSIX too, so
// that a view that is wrong both ways does not pass.
#include <fcntl.h>
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "pattern.h"

namespace {

struct Options {
  std::string directory = ".";
  std::vector<std::string> patterns = bench::Pattern::names();
  uint64_t mib = 128;
  uint64_t steps = 4;
  int rounds = 3;
  int opens = 100;
  bool collective = false;
};

constexpr const char* kUsage =
    "mpi_io_bench [--dir D] [--patterns A,B,...|open] [--mib N] [--steps N] [--rounds N]\n"
    "             [--opens N] [--collective]\n"
    "Patterns: contiguous strided-4k strided-64 block-3d ghosted memory-8-of-16, and open: one "
    "file\n"
    "opened and closed by all ranks --opens times. --mib is the file's size, written in --steps\n"
    "calls of each rank.\n";

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "mpi_io_bench: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) c == ',' ? parts.emplace_back() : parts.back() += c;
  return parts;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--collective") {
      options.collective = true;
      continue;
    }
    if (i + 1 == argc) give_up(std::string("what is ") + key + "?\n" + kUsage);
    const std::string value = argv[++i];
    if (key == "--dir")
      options.directory = value;
    else if (key == "--patterns")
      options.patterns = split(value);
    else if (key == "--mib")
      options.mib = std::stoull(value);
    else if (key == "--steps")
      options.steps = std::stoull(value);
    else if (key == "--rounds")
      options.rounds = std::stoi(value);
    else if (key == "--opens")
      options.opens = std::stoi(value);
    else
      give_up(std::string("what is ") + key + "?\n" + kUsage);
  }
  return options;
}

void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  give_up(std::string(what) + ": " + text);
}

double cpu_now() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Measured {
  double seconds = 0;  // of the slowest rank
  double cpu = 0;      // of all
};

template <class Work>
Measured measure(Work&& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double cpu = cpu_now(), start = MPI_Wtime();
  work();
  const double mine[2] = {MPI_Wtime() - start, cpu_now() - cpu};
  Measured all;
  MPI_Allreduce(&mine[0], &all.seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(&mine[1], &all.cpu, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

// What the file holds at a word, in a round.
uint64_t word_at(uint64_t place, uint64_t round) {
  return (place + 1) * 0x9e3779b97f4a7c15u + round * 0xd1b54a32d192ed03u;
}
constexpr uint64_t kGap = 0x5555555555555555u;  // in memory, where no data belongs

class Job {
 public:
  Job(const Options& options, const std::string& name, int rank, int ranks)
      : options_(options),
        name_(name),
        path_(options.directory + "/mpi_io_bench.data"),
        rank_(rank),
        ranks_(ranks),
        pattern_(bench::Pattern::make(name, {rank, ranks,
                                             options.mib * (1 << 20) / sizeof(uint64_t) /
                                                 static_cast<uint64_t>(ranks) / options.steps,
                                             options.steps})) {}

  void run() {
    memory_.resize(pattern_.memory_words * options_.steps);
    for (int round = 0; round < options_.rounds; ++round) {
      remove();
      one_round(static_cast<uint64_t>(round));
    }
    remove();
    if (rank_ == 0) print();
  }

 private:
  void one_round(uint64_t round) {
    std::fill(memory_.begin(), memory_.end(), kGap);
    each_word([&](uint64_t place, uint64_t& word) { word = word_at(place, round); });
    MPI_File file = open(MPI_MODE_CREATE | MPI_MODE_RDWR);
    writes_.push_back(measure([&] { each_step(file, true); }));
    must(MPI_File_close(&file), "close");
    look_at_file(round);

    std::fill(memory_.begin(), memory_.end(), kGap);
    file = open(MPI_MODE_RDONLY);
    reads_.push_back(measure([&] { each_step(file, false); }));
    must(MPI_File_close(&file), "close");
    look_at_memory(round);
  }

  MPI_File open(int mode) {
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path_.c_str(), mode, MPI_INFO_NULL, &file), "open");
    must(MPI_File_set_view(file, pattern_.displacement, pattern_.etype, pattern_.filetype, "native",
                           MPI_INFO_NULL),
         "set_view");
    return file;
  }

  void each_step(MPI_File file, bool write) {
    const auto call = write ? (options_.collective ? write_together : write_alone)
                            : (options_.collective ? MPI_File_read_at_all : MPI_File_read_at);
    for (uint64_t step = 0; step < options_.steps; ++step) {
      MPI_Status status;
      must(call(file, static_cast<MPI_Offset>(step) * pattern_.step_etypes,
                memory_.data() + step * pattern_.memory_words, pattern_.memory_count,
                pattern_.memory_type, &status),
           write ? "write" : "read");
      int moved = 0;
      MPI_Get_count(&status, pattern_.memory_type, &moved);
      if (moved != pattern_.memory_count) give_up("not all was moved");
    }
  }

  // visit(place in the file, word in memory) for all data of this rank.
  template <class Visit>
  void each_word(Visit&& visit) {
    for (uint64_t step = 0; step < options_.steps; ++step)
      for (uint64_t i = 0; i < pattern_.in_file.size(); ++i)
        visit(pattern_.in_file[i] + step * pattern_.file_step,
              memory_[step * pattern_.memory_words + pattern_.in_memory[i]]);
  }

  void look_at_memory(uint64_t round) {
    bool good = true;
    each_word([&](uint64_t place, uint64_t& word) {
      good = good && word == word_at(place, round);
      word = kGap;
    });
    // Now all of it should be gap.
    good = good && std::count(memory_.begin(), memory_.end(), kGap) ==
                       static_cast<std::ptrdiff_t>(memory_.size());
    if (!good) give_up(name_ + ": what was read is not what was written");
  }

  // A part of each rank.
  void look_at_file(uint64_t round) {
    const int fd = ::open(path_.c_str(), O_RDONLY);
    if (fd < 0 ||
        lseek(fd, 0, SEEK_END) != static_cast<off_t>(pattern_.file_words * sizeof(uint64_t)))
      give_up(name_ + ": the file has not the size that was written");
    const auto rank = static_cast<uint64_t>(rank_), ranks = static_cast<uint64_t>(ranks_);
    const uint64_t end = pattern_.file_words * (rank + 1) / ranks;
    std::vector<uint64_t> part(1 << 17);
    for (uint64_t at = pattern_.file_words * rank / ranks; at < end; at += part.size()) {
      const uint64_t n = std::min<uint64_t>(part.size(), end - at), bytes = n * sizeof(uint64_t);
      bool good = pread(fd, part.data(), bytes, static_cast<off_t>(at * sizeof(uint64_t))) ==
                  static_cast<ssize_t>(bytes);
      for (uint64_t i = 0; good && i < n; ++i) good = part[i] == word_at(at + i, round);
      if (!good) give_up(name_ + ": the file does not hold what was written");
    }
    ::close(fd);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void remove() {
    if (rank_ == 0) ::unlink(path_.c_str());
    MPI_Barrier(MPI_COMM_WORLD);
  }

  std::string list(const std::vector<Measured>& all, bool cpu) const {
    const double mb = static_cast<double>(pattern_.file_words * sizeof(uint64_t)) * 1e-6;
    std::string text;
    for (const Measured& one : all) {
      char number[32];
      std::snprintf(number, sizeof number, "%s%.4g", text.empty() ? "" : ", ",
                    cpu ? one.cpu : mb / one.seconds);
      text += number;
    }
    return "[" + text + "]";
  }

  void print() const {
    std::printf(
        "{\"pattern\": \"%s\", \"ranks\": %d, \"bytes\": %llu, \"steps\": %llu, "
        "\"collective\": %s, \"write_mb_s\": %s, \"read_mb_s\": %s, "
        "\"write_cpu_s\": %s, \"read_cpu_s\": %s, \"verified\": true}\n",
        name_.c_str(), ranks_,
        static_cast<unsigned long long>(pattern_.file_words * sizeof(uint64_t)),
        static_cast<unsigned long long>(options_.steps), options_.collective ? "true" : "false",
        list(writes_, false).c_str(), list(reads_, false).c_str(), list(writes_, true).c_str(),
        list(reads_, true).c_str());
    std::fflush(stdout);
  }

  // With the arguments of reading, which differ by a const.
  static int write_together(MPI_File file, MPI_Offset at, void* data, int count, MPI_Datatype type,
                            MPI_Status* status) {
    return MPI_File_write_at_all(file, at, data, count, type, status);
  }
  static int write_alone(MPI_File file, MPI_Offset at, void* data, int count, MPI_Datatype type,
                         MPI_Status* status) {
    return MPI_File_write_at(file, at, data, count, type, status);
  }

  const Options& options_;
  const std::string name_, path_;
  const int rank_, ranks_;
  const bench::Pattern pattern_;
  std::vector<uint64_t> memory_;
  std::vector<Measured> writes_, reads_;
};

// One file, there already, opened and closed by all.
void run_opens(const Options& options, int rank, int ranks) {
  const std::string path = options.directory + "/mpi_io_bench.open";
  const auto once = [&] {
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                       &file),
         "open");
    must(MPI_File_close(&file), "close");
  };
  once();
  std::string times, cpu;
  for (int round = 0; round < options.rounds; ++round) {
    const Measured all = measure([&] {
      for (int i = 0; i < options.opens; ++i) once();
    });
    const auto each = [&](double seconds) {
      char number[32];
      std::snprintf(number, sizeof number, "%s%.4g", round ? ", " : "",
                    seconds * 1e6 / options.opens);
      return std::string(number);
    };
    times += each(all.seconds);
    cpu += each(all.cpu);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) return;
  ::unlink(path.c_str());
  std::printf(
      "{\"pattern\": \"open\", \"ranks\": %d, \"opens\": %d, \"open_us\": [%s], "
      "\"open_cpu_us\": [%s], \"verified\": true}\n",
      ranks, options.opens, times.c_str(), cpu.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Options options = parse(argc, argv);
  const auto& known = bench::Pattern::names();
  for (const std::string& name : options.patterns) {
    if (name == "open")
      run_opens(options, rank, ranks);
    else if (std::find(known.begin(), known.end(), name) != known.end())
      Job(options, name, rank, ranks).run();
    else
      give_up("no pattern " + name + "\n" + kUsage);
  }
  MPI_Finalize();
}
