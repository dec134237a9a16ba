// What the ranks of a node took together for something, and how a program of MPI ends that cannot
// go on.
#pragma once

#include <mpi.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace bench {

[[noreturn]] inline void give_up(const std::string& why) {
  std::fprintf(stderr, "mpi_io_bench: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();
}

inline void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  give_up(std::string(what) + ": " + text);
}

struct Measured {
  double seconds = 0;  // on the clock
  double cpu = 0;      // of all
  Measured& operator+=(const Measured& other) {
    seconds += other.seconds, cpu += other.cpu;
    return *this;
  }
};

inline double cpu_now() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The node's clock, the same for all ranks.
inline double time_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// From when the first rank leaves a barrier until the last one is done. A rank's own time would not
// do: with more ranks than cores, some begin when others have ended.
template <class Work>
Measured measure(Work&& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double cpu = cpu_now(), begin = time_now();
  work();
  const double ends[2] = {-begin, time_now()}, used = cpu_now() - cpu;
  double last[2];
  Measured all;
  MPI_Allreduce(ends, last, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(&used, &all.cpu, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  all.seconds = last[0] + last[1];
  return all;
}

// The same, again and again until it takes long enough, as often on every rank; what one pass took.
// A few milliseconds of more ranks than cores say more about how the kernel spreads them than about
// what they do.
template <class Work>
Measured measure_long(Work&& work) {
  constexpr double kLongEnough = 0.1;
  constexpr int kMost = 31;
  Measured all = measure(work);  // the same on every rank
  const int more = std::min(kMost, static_cast<int>(kLongEnough / all.seconds));
  if (more == 0) return all;
  all += measure([&] {
    for (int i = 0; i < more; ++i) work();
  });
  return {all.seconds / (more + 1), all.cpu / (more + 1)};
}

// A member of a JSON object: the figures of all rounds.
template <class Figure>
std::string json_list(const char* key, const std::vector<Measured>& rounds, Figure&& figure) {
  std::string text;
  for (const Measured& one : rounds) {
    char number[32];
    std::snprintf(number, sizeof number, "%s%.4g", text.empty() ? "" : ", ", figure(one));
    text += number;
  }
  return std::string("\"") + key + "\": [" + text + "]";
}

}  // namespace bench
