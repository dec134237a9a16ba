// Rules of collective calls that go together: what persistent realms keep, limits and errors in the
// middle, progress of MPI meanwhile. Two ranks.
#include "cases.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

namespace cases {

namespace {

// Two ranks, each every second int of the file.
MPI_Datatype every_second() {
  MPI_Datatype tile, resized;
  MPI_Type_contiguous(1, MPI_INT, &tile);
  MPI_Type_create_resized(tile, 0, 2 * sizeof(int), &resized);
  MPI_Type_commit(&resized);
  MPI_Type_free(&tile);
  return resized;
}

}  // namespace

// Figure 3.1 of paper 5: all of the file is read, its first half written through another view, and
// all of it read again. And what persistent realms keep is seen by everybody, at once.
void persistent_realms() {
  constexpr int kInts = 100'000;  // of each rank
  MPI_Info info = hinted({{"romio_cb_pfr", "enable"}, {"cb_nodes", "2"}});
  MPI_File file = open(MPI_COMM_WORLD, path("realms"), kNew, info);
  std::vector<int> mine(kInts), back(kInts);
  const MPI_Offset at = MPI_Offset(rank) * kInts * MPI_Offset(sizeof(int));
  for (int i = 0; i < kInts; ++i) mine[size_t(i)] = rank * kInts + i;
  MPI_File_write_at_all(file, at, mine.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_read_at_all(file, at, back.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
  check(back == mine, "a collective read of what was written");
  MPI_Datatype type = every_second();
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                    MPI_INFO_NULL);
  std::vector<int> half(kInts / 2, -1 - rank);
  MPI_File_write_at_all(file, 0, half.data(), kInts / 2, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  for (const bool alone : {false, true}) {
    (alone ? MPI_File_read_at : MPI_File_read_at_all)(file, at, back.data(), kInts, MPI_INT,
                                                      MPI_STATUS_IGNORE);
    bool good = true;
    for (int i = 0; i < kInts; ++i)
      good = good && back[size_t(i)] == (rank == 0 ? -1 - i % 2 : mine[size_t(i)]);
    check(good, alone ? "an independent read of what realms keep" : "figure 3.1");
  }
  MPI_Offset size = 0;
  MPI_File_get_size(file, &size);
  check(size == MPI_Offset(2 * kInts) * MPI_Offset(sizeof(int)), "the size of what realms keep");
  MPI_File_set_size(file, 1000);
  MPI_Status status;
  int count = 0;
  MPI_File_read_at_all(file, 0, back.data(), kInts, MPI_INT, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  check(count == 250 && back[0] == -1, "what is left of a file that was cut");
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}
void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

// A view of 10^8 pieces is a few numbers, also for those who aggregate.
void many_pieces() {
  MPI_Info info = hinted({{"romio_cb_write", "enable"}, {"cb_buffer_size", "4194304"}});
  MPI_File file = open(MPI_COMM_WORLD, path("pieces"), kNew, info);
  MPI_Datatype column, type;
  MPI_Type_vector(100'000'000, 1, 16, MPI_INT, &column);
  MPI_Type_create_resized(column, 0, MPI_Aint(6'400'000'000), &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&column);
  std::vector<int> some(1 << 20, 7 + rank), back(1 << 20);
  forget_peak();
  const long before = peak_kib();
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                    MPI_INFO_NULL);
  const MPI_Offset far = 99'000'000 - (1 << 20);
  check(MPI_File_write_at_all(file, far, some.data(), 1 << 20, MPI_INT, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS,
        "a collective write of a million pieces");
  check(peak_kib() - before < 64 * 1024, "memory for a view of a hundred million pieces");
  MPI_File_read_at_all(file, far, back.data(), 1 << 20, MPI_INT, MPI_STATUS_IGNORE);
  check(back == some, "a million of a hundred million pieces");
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// Between two pieces lie millions of an aggregator's persistent realms: nobody lists them.
void pieces_far_apart() {
  MPI_Info info = hinted({{"romio_cb_write", "enable"},
                          {"romio_cb_read", "enable"},
                          {"romio_cb_pfr", "enable"},
                          {"romio_cb_fr_type", "65536"}});
  MPI_File file = open(MPI_COMM_WORLD, path("apart"), kNew, info);
  const int lengths[2] = {1, 1};
  const MPI_Aint places[2] = {0, MPI_Aint(1) << 40};
  MPI_Datatype type;
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                    MPI_INFO_NULL);
  const std::vector<int> both = {rank, rank + 7};
  std::vector<int> back(2);
  forget_peak();
  const long before = peak_kib();
  MPI_File_write_at_all(file, 0, both.data(), 2, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_read_at_all(file, 0, back.data(), 2, MPI_INT, MPI_STATUS_IGNORE);
  check(back == both, "two pieces far apart");
  check(peak_kib() - before < 64 * 1024, "memory for two pieces far apart");
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// Every rank reads the same small pieces, out of one aggregator's memory: how much of it that takes
// is not a matter of how many they are.
void many_readers() {
  constexpr int kPiece = 256, kPieces = 1 << 17;
  MPI_Info info =
      hinted({{"romio_cb_read", "enable"}, {"cb_nodes", "1"}, {"cb_buffer_size", "33554432"}});
  MPI_File file = open(MPI_COMM_WORLD, path("readers"), kNew, info);
  std::vector<char> all(2 * kPiece * kPieces), expected(kPiece * kPieces), back(expected.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * i % 251);
  for (size_t i = 0; i < kPieces; ++i)
    std::memcpy(&expected[i * kPiece], &all[2 * i * kPiece], kPiece);
  if (rank == 0)
    MPI_File_write_at(file, 0, all.data(), static_cast<int>(all.size()), MPI_BYTE,
                      MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Datatype piece, type;
  MPI_Type_contiguous(kPiece, MPI_BYTE, &piece);
  MPI_Type_create_resized(piece, 0, 2 * kPiece, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
  forget_peak();
  const long before = peak_kib();
  MPI_File_read_at_all(file, 0, back.data(), kPiece * kPieces, MPI_BYTE, MPI_STATUS_IGNORE);
  check(back == expected, "what many ranks read");
  check(peak_kib() - before < 96 * 1024, "memory for many readers");
  MPI_File_close(&file);
  MPI_Type_free(&piece);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// A limit on files comes between calls of other buffers, and goes: nobody dies of it, and all that
// was written is there.
void buffers_beyond_a_limit() {
  constexpr int kInts = 64;
  MPI_Info info = hinted({{"romio_cb_write", "enable"}, {"romio_cb_read", "enable"}});
  MPI_File file = open(MPI_COMM_WORLD, path("buffers"), kNew, info);
  MPI_Datatype column, type;
  MPI_Type_vector(kInts, 1, 2, MPI_INT, &column);
  MPI_Type_create_resized(column, 0, MPI_Aint(2 * kInts * sizeof(int)), &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                    MPI_INFO_NULL);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 65536;
  const auto handler = std::signal(SIGXFSZ, SIG_DFL);
  std::vector<int> mine(kInts), back(kInts);
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    if (round == 2) {
      MPI_Info other = hinted({{"cb_buffer_size", "2097152"}});
      MPI_File_set_info(file, other);
      MPI_Info_free(&other);
    }
    ::setrlimit(RLIMIT_FSIZE, round == 2 ? &small : &before);
    std::fill(mine.begin(), mine.end(), 10 * round + rank);
    check(MPI_File_write_at_all(file, round * kInts, mine.data(), kInts, MPI_INT,
                                MPI_STATUS_IGNORE) == MPI_SUCCESS,
          "a collective write, whatever there is for its buffers");
  }
  std::signal(SIGXFSZ, handler);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < kRounds; ++round) {
    MPI_File_read_at(file, round * kInts, back.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
    check(back == std::vector<int>(kInts, 10 * round + rank), "what was written so");
  }
  MPI_File_close(&file);
  MPI_Type_free(&column);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// An aggregator cannot write: every rank learns of it, and the next call works.
void full_disk_together() {
  MPI_Info info = hinted({{"romio_cb_write", "enable"}, {"cb_buffer_size", "65536"}});
  MPI_File file = open(MPI_COMM_WORLD, path("limited"), kNew, info);
  const rlimit before = [] {
    rlimit now{};
    getrlimit(RLIMIT_FSIZE, &now);
    return now;
  }();
  std::signal(SIGXFSZ, SIG_IGN);
  MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE);  // makes buffers
  if (rank == 0) {
    rlimit small = before;
    small.rlim_cur = 300'000;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  MPI_Datatype type = every_second();
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                    MPI_INFO_NULL);
  std::vector<int> data(200'000, rank);
  check(MPI_File_write_at_all(file, 0, data.data(), 200'000, MPI_INT, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS,
        "one aggregator's failure is everybody's");
  if (rank == 0) setrlimit(RLIMIT_FSIZE, &before);
  check(MPI_File_write_at_all(file, 0, data.data(), 200'000, MPI_INT, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS,
        "the call after one that failed");
  std::vector<int> back(200'000);
  MPI_File_read_at_all(file, 0, back.data(), 200'000, MPI_INT, MPI_STATUS_IGNORE);
  check(back == data, "what it wrote");
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// An aggregator has no memory for what hints ask of it, a sieving buffer larger than any: likewise.
void no_memory_together() {
  MPI_Info info = hinted({{"romio_cb_read", "enable"},
                          {"cb_nodes", "1"},
                          {"romio_ds_read", "enable"},
                          {"ind_rd_buffer_size", "4611686018427387904"}});
  MPI_File file = open(MPI_COMM_WORLD, path("memory"), kNew, info);
  const int lengths[2] = {1, 1};
  const MPI_Aint places[2] = {0, MPI_Aint(1) << 60};
  MPI_Datatype type;
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                    MPI_INFO_NULL);
  int both[2] = {rank, rank};
  check(MPI_File_read_at_all(file, 0, both, 2, MPI_INT, MPI_STATUS_IGNORE) == MPI_ERR_NO_MEM,
        "one aggregator's lack of memory is everybody's");
  MPI_File_write_at_all(file, 0, both, 1, MPI_INT, MPI_STATUS_IGNORE);
  both[0] = -1;
  check(MPI_File_read_at_all(file, 0, both, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            both[0] == rank,
        "the call after it");
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// What is known of stripes decides about realms and their order, and never about data. Files
// "reported" (no hint of stripes), "wide" (and windows that reach all targets), "hinted" (a hint of
// their size) and "kept" (persistent realms).
void striped_files() {
  constexpr int kInts = 300'000;  // of each rank
  const std::pair<const char*, MPI_Info> files[] = {
      {"reported", hinted({{"cb_nodes", "2"}, {"cb_buffer_size", "262144"}})},
      {"wide", hinted({{"cb_nodes", "2"}, {"cb_buffer_size", "1048576"}})},
      {"hinted", hinted({{"cb_nodes", "2"}, {"striping_unit", "32768"}})},
      {"kept", hinted({{"cb_nodes", "2"}, {"romio_cb_pfr", "enable"}})}};
  MPI_Datatype type = every_second();
  for (auto [name, info] : files) {
    MPI_File file = open(MPI_COMM_WORLD, path(name), kNew, info);
    MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                      MPI_INFO_NULL);
    std::vector<int> mine(kInts), back(kInts);
    for (int i = 0; i < kInts; ++i) mine[size_t(i)] = 2 * i + rank;
    MPI_File_write_at_all(file, 0, mine.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, 0, back.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
    check(back == mine, name);
    MPI_File_close(&file);
    MPI_Info_free(&info);
    std::ifstream whole(path(name), std::ios::binary);
    std::vector<int> all(2 * kInts);
    whole.read(reinterpret_cast<char*>(all.data()), std::streamsize(all.size() * sizeof(int)));
    bool good = bool(whole);
    for (int i = 0; i < 2 * kInts; ++i) good = good && all[size_t(i)] == i;
    check(good, "the file itself");
  }
  MPI_Type_free(&type);
}

// Realms as the user gives them: in file "given" after a first call, and with a last call that
// nobody has data for; in file "ends" such that the call goes on after them.
void realms_given() {
  constexpr int kInts = 10'000;  // of each rank
  MPI_Info later = hinted({{"forebay_realm_list", "0:4096/8192,4096:4096/8192"}});
  const std::pair<const char*, MPI_Info> files[] = {
      {"given",
       hinted({{"cb_nodes", "2"}, {"romio_cb_write", "enable"}, {"forebay_realms", "given"}})},
      {"ends", hinted({{"cb_nodes", "2"},
                       {"romio_cb_write", "enable"},
                       {"forebay_realms", "given"},
                       {"forebay_realm_list", "0:4096,4096:4096"}})}};
  MPI_Datatype type = every_second();
  for (auto [name, info] : files) {
    const bool given = std::string(name) == "given";
    MPI_File file = open(MPI_COMM_WORLD, path(name), kNew, info);
    MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, type, "native",
                      MPI_INFO_NULL);
    std::vector<int> mine(kInts), back(kInts);
    for (int call = 0; call < 2; ++call) {
      for (int i = 0; i < kInts; ++i) mine[size_t(i)] = 2 * i + rank + call;
      MPI_File_write_at_all(file, 0, mine.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
      MPI_File_read_at(file, 0, back.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
      check(back == mine, name);
      if (given && call == 0) MPI_File_set_info(file, later);
    }
    if (given) MPI_File_write_at_all(file, 0, mine.data(), 0, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Info_free(&info);
  }
  MPI_Info_free(&later);
  MPI_Type_free(&type);
}

// Section 3.4.4 of paper 5: realms get another size when a rank's type in memory changes, be it
// that of one rank only, and every byte that was kept for their old owners is still seen: by
// collective and independent calls, and in the file in the end.
void changing_types() {
  constexpr int kInts = 300'000;  // of each rank in the first call; twice as many in the second
  MPI_Info info =
      hinted({{"romio_cb_pfr", "enable"}, {"romio_cb_fr_type", "dynamic"}, {"cb_nodes", "2"}});
  MPI_File file = open(MPI_COMM_WORLD, path("types"), kNew, info);
  MPI_Datatype view = every_second(), pairs = every_second();
  MPI_File_set_view(file, MPI_Offset(rank * int(sizeof(int))), MPI_INT, view, "native",
                    MPI_INFO_NULL);
  std::vector<int> plain(2 * kInts), spread(4 * kInts), back(2 * kInts);
  for (int i = 0; i < 2 * kInts; ++i) plain[size_t(i)] = 2 * i + rank;
  MPI_File_write_at_all(file, 0, plain.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
  // The second half of what is there, and as much again beyond; rank 0 from every second int.
  const int from = kInts / 2;
  for (int i = 0; i < 2 * kInts - from; ++i) {
    plain[size_t(from + i)] = -plain[size_t(from + i)];
    spread[2 * size_t(i)] = plain[size_t(from + i)];
  }
  const void* second = rank == 0 ? spread.data() : plain.data() + from;
  MPI_File_write_at_all(file, from, second, 2 * kInts - from, rank == 0 ? pairs : MPI_INT,
                        MPI_STATUS_IGNORE);
  MPI_File_read_at_all(file, 0, back.data(), 2 * kInts, MPI_INT, MPI_STATUS_IGNORE);
  check(back == plain, "a collective read after types have changed");
  back.assign(back.size(), 0);
  MPI_File_read_at(file, 0, back.data(), 2 * kInts, MPI_INT, MPI_STATUS_IGNORE);
  check(back == plain, "an independent read after types have changed");
  MPI_File_close(&file);
  std::ifstream whole(path("types"), std::ios::binary);
  std::vector<int> all(4 * kInts);
  whole.read(reinterpret_cast<char*>(all.data()), std::streamsize(all.size() * sizeof(int)));
  bool good = bool(whole);
  for (int i = 0; i < 2 * kInts; ++i) good = good && all[size_t(2 * i + rank)] == plain[size_t(i)];
  check(good, "the file after types have changed");
  MPI_Type_free(&view);
  MPI_Type_free(&pairs);
  MPI_Info_free(&info);
}

// A thread's own calls beside the other one's first collective call, which makes persistent realms:
// what the thread has written stays, whether it went to the file or to what realms keep. Rank 1's
// thread writes much, rank 0's has an int next to the end of it, in the same page.
void realms_beside_a_thread() {
  constexpr int kBlock = 250, kTimes = 30;
  constexpr size_t kMuch = 200'000;
  const auto at = [](size_t ints) { return MPI_Offset((1000 + ints) * sizeof(int)); };
  MPI_Info info = hinted({{"romio_cb_pfr", "enable"}, {"cb_nodes", "2"}});
  for (int round = 0; round < 40; ++round) {
    MPI_File file = open(MPI_COMM_WORLD, path("threads"), kNew, info);
    std::atomic<bool> begun = false, stale = false;
    std::thread other([&] {
      std::vector<int> data(rank ? kMuch : 1);
      const MPI_Offset begin = at(rank ? 0 : kMuch), last = at(rank ? kMuch - 1 : kMuch);
      for (int i = 0; i < kTimes; ++i, begun = true) {
        int back = -1;
        std::fill(data.begin(), data.end(), round * kTimes + i);
        MPI_File_write_at(file, begin, data.data(), int(data.size()), MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, last, &back, 1, MPI_INT, MPI_STATUS_IGNORE);
        if (back != data.back()) stale = true;
      }
    });
    while (!begun) std::this_thread::yield();
    std::vector<int> block(kBlock, round + rank), back(kBlock);
    const MPI_Offset mine = rank * MPI_Offset(sizeof(int)) * kBlock;
    MPI_File_write_at_all(file, mine, block.data(), kBlock, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, mine, back.data(), kBlock, MPI_INT, MPI_STATUS_IGNORE);
    check(back == block, "a collective write beside a thread's");
    other.join();
    check(!stale, "a thread reads what it has written");
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    std::vector<int> all(kMuch + 1);
    MPI_File_read_at(file, at(0), all.data(), int(all.size()), MPI_INT, MPI_STATUS_IGNORE);
    check(all == std::vector<int>(kMuch + 1, round * kTimes + kTimes - 1),
          "what both ranks' threads have written");
    MPI_File_close(&file);
    if (rank == 0) MPI_File_delete(path("threads").c_str(), MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Info_free(&info);
}

// Threads that write without a pause do not keep collective calls waiting, the first of which makes
// persistent realms: they go on until these have ended.
void realms_beside_busy_threads() {
  constexpr int kThreads = 4, kBytes = 4 << 20, kMany = 2000;
  MPI_Info info = hinted({{"romio_cb_pfr", "enable"}, {"cb_nodes", "2"}});
  MPI_File file = open(MPI_COMM_WORLD, path("busy"), kNew, info);
  std::atomic<bool> over = false;
  std::atomic<int> calls = 0;
  const std::vector<char> data(kBytes, static_cast<char>('a' + rank));
  std::vector<std::thread> others;
  for (int i = 0; i < kThreads; ++i)
    others.emplace_back([&, at = MPI_Offset(1 + rank * kThreads + i) * kBytes] {
      for (; !over; ++calls)
        MPI_File_write_at(file, at, data.data(), kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
    });
  while (calls < kThreads) std::this_thread::yield();
  const int before = calls;
  check(MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE) == MPI_SUCCESS,
        "a collective write beside busy threads");
  for (const int atomic : {1, 0})
    check(MPI_File_set_atomicity(file, atomic) == MPI_SUCCESS, "atomic mode beside busy threads");
  check(calls - before < kMany, "they wait for what is under way, and not for what comes after");
  over = true;
  for (std::thread& other : others) other.join();
  std::vector<char> back(kBytes * kThreads);
  MPI_File_read_at(file, MPI_Offset(1 + rank * kThreads) * kBytes, back.data(), kBytes * kThreads,
                   MPI_BYTE, MPI_STATUS_IGNORE);
  check(std::count(back.begin(), back.end(), data.front()) == kBytes * kThreads,
        "what busy threads have written");
  MPI_File_close(&file);
  MPI_Info_free(&info);
}

// MPI goes on while a rank waits for others: in a collective call, for one that does not block, and
// when it closes.
void progress_while_waiting() {
  MPI_Info info = hinted({{"romio_cb_write", "enable"}});
  MPI_File file = open(MPI_COMM_WORLD, path("progress"), kNew, info);
  std::vector<char> big(8 << 20, 'x'), other(8 << 20);
  MPI_Request message = MPI_REQUEST_NULL, write;
  const auto send_to_a_late_rank = [&] {
    MPI_Wait(&message, MPI_STATUS_IGNORE);
    if (rank == 0) MPI_Isend(big.data(), 8 << 20, MPI_CHAR, 1, 5, MPI_COMM_WORLD, &message);
    if (rank == 1)
      MPI_Recv(other.data(), 8 << 20, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  };
  send_to_a_late_rank();
  check(MPI_File_write_at_all(file, rank * 10, "0123456789", 10, MPI_CHAR, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS,
        "a collective call while a message is under way");
  send_to_a_late_rank();
  MPI_File_iwrite_at_all(file, rank * 10, "0123456789", 10, MPI_CHAR, &write);
  check(MPI_Wait(&write, MPI_STATUS_IGNORE) == MPI_SUCCESS,
        "a collective request while a message is under way");
  send_to_a_late_rank();
  MPI_File_close(&file);
  MPI_Wait(&message, MPI_STATUS_IGNORE);
  MPI_Info_free(&info);
}

}  // namespace cases
