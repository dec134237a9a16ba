// Rules of what ranks and aggregators exchange in collective calls, seen from outside: when they
// read and write (watch.c), and what memory they take.
#include "cases.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace cases {

namespace {

// Two ranks, each every second block of so many bytes of a new file: written, and read again.
void blocks_in_turn(const char* name, int block, int blocks, MPI_Info info) {
  MPI_File file = open(MPI_COMM_WORLD, path(name), kNew, info);
  MPI_Datatype one, type;
  MPI_Type_contiguous(block, MPI_BYTE, &one);
  MPI_Type_create_resized(one, 0, 2 * MPI_Aint(block), &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, MPI_Offset(rank) * block, MPI_BYTE, type, "native", MPI_INFO_NULL);
  std::vector<char> mine(size_t(block) * size_t(blocks)), back(mine.size());
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = char((i + size_t(rank)) * i % 251);
  const int bytes = int(mine.size());
  check(MPI_File_write_at_all(file, 0, mine.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS,
        name);
  MPI_File_sync(file);
  check(MPI_File_read_at_all(file, 0, back.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE) ==
                MPI_SUCCESS &&
            back == mine,
        name);
  MPI_File_close(&file);
  MPI_Type_free(&one);
  MPI_Type_free(&type);
}

// What this process may have of address space: so much more than now, while it lives.
class LittleMemory {
 public:
  explicit LittleMemory(rlim_t bytes) {
    malloc_trim(0);
    getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit little = before_;
    little.rlim_cur = pages * 4096 + bytes;
    setrlimit(RLIMIT_AS, &little);
  }
  ~LittleMemory() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// Two ranks, each with a half of the file, which is the realm of one aggregator: a thousand windows
// of each, of which the other rank need not hear.
void own_realms() {
  long (*received)();
  *reinterpret_cast<void**>(&received) = dlsym(RTLD_DEFAULT, "forebay_test_received");
  MPI_Info info = hinted({{"romio_cb_write", "enable"},
                          {"cb_nodes", "2"},
                          {"cb_config_list", "*:*"},
                          {"cb_buffer_size", "8192"}});
  MPI_File file = open(MPI_COMM_WORLD, path("own"), kNew, info);
  const std::vector<char> mine(4 << 20, char('a' + rank));
  std::vector<char> back(mine.size());
  const MPI_Offset at = rank * MPI_Offset(mine.size());
  MPI_File_write_at_all(file, at, mine.data(), 4096, MPI_BYTE, MPI_STATUS_IGNORE);
  const long before = received ? received() : 0;
  MPI_File_write_at_all(file, at, mine.data(), int(mine.size()), MPI_BYTE, MPI_STATUS_IGNORE);
  check(!received || received() - before < 16384, "news of windows that are no concern of a rank");
  MPI_File_read_at(file, at, back.data(), int(back.size()), MPI_BYTE, MPI_STATUS_IGNORE);
  check(back == mine, "what each rank wrote in its own realm");
  MPI_File_close(&file);
  MPI_Info_free(&info);
}

}  // namespace

// Every second rank writes the same small pieces, the others those between them, into one
// aggregator's memory: how much of it that takes is not a matter of how many they are. And who
// sends them needs little memory for it.
void many_writers() {
  constexpr int kPiece = 256, kPieces = 1 << 17;
  MPI_Info info =
      hinted({{"romio_cb_write", "enable"}, {"cb_nodes", "1"}, {"cb_buffer_size", "33554432"}});
  MPI_File file = open(MPI_COMM_WORLD, path("writers"), kNew, info);
  MPI_Datatype piece, type;
  MPI_Type_contiguous(kPiece, MPI_BYTE, &piece);
  MPI_Type_create_resized(piece, 0, 2 * kPiece, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, rank % 2 * kPiece, MPI_BYTE, type, "native", MPI_INFO_NULL);
  std::vector<char> all(kPiece * kPieces), back(all.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = char((i + size_t(rank % 2)) * i % 251);
  MPI_File_write_at_all(file, 0, all.data(), kPiece, MPI_BYTE, MPI_STATUS_IGNORE);  // all is made
  forget_peak();
  const long before = peak_kib();
  {
    const LittleMemory little(rank == 0 ? rlim_t{1} << 30 : rlim_t{7} << 20);
    check(MPI_File_write_at_all(file, 0, all.data(), kPiece * kPieces, MPI_BYTE,
                                MPI_STATUS_IGNORE) == MPI_SUCCESS,
          "what many ranks write, with little memory");
  }
  check(peak_kib() - before < 48 * 1024, "memory for many writers");
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_read_at(file, 0, back.data(), kPiece * kPieces, MPI_BYTE, MPI_STATUS_IGNORE);
  check(back == all, "what many ranks wrote");
  MPI_File_close(&file);
  MPI_Type_free(&piece);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// Two ranks on each of two nodes, all of which aggregate: while one waits for another of its node,
// what it sends to the other node goes on, though there are messages that it has yet to receive.
void writers_on_two_nodes() {
  constexpr int kPiece = 32, kPieces = 1 << 18;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Info info = hinted({{"romio_cb_write", "enable"},
                          {"romio_cb_read", "enable"},
                          {"cb_nodes", "4"},
                          {"cb_config_list", "*:*"}});
  MPI_File file = open(MPI_COMM_WORLD, path("nodes"), kNew, info);
  std::vector<MPI_Aint> places;  // gaps of up to 6 bytes between pieces of the ranks in turn
  MPI_Aint at = 0;
  for (unsigned i = 0; places.size() < kPieces; ++i) {
    if (int(i) % ranks == rank) places.push_back(at);
    at += kPiece + i * 2654435761U / 65536 % 7;
  }
  MPI_Datatype type;
  MPI_Type_create_hindexed_block(kPieces, kPiece, places.data(), MPI_BYTE, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
  std::vector<char> all(size_t{kPiece} * kPieces), back(all.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = char((i + size_t(rank)) * i % 251);
  for (int round = 0; round < 4; ++round) {
    std::fill(back.begin(), back.end(), 0);
    MPI_File_write_at_all(file, 0, all.data(), int(all.size()), MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, 0, back.data(), int(back.size()), MPI_BYTE, MPI_STATUS_IGNORE);
    check(back == all, "what ranks of two nodes wrote");
  }
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// Long pieces that lie in a rank's own realm are moved from and to where they are in its memory;
// not so what two ranks read, which one of them finds in the other's buffer. Blocks of 96 KiB in
// turn, of which the last of rank 1 overlap the first of rank 0.
void own_pieces() {
  constexpr int kBlock = 96 << 10, kBlocks = 24, kOverlap = 4096;
  MPI_Info info = hinted({{"romio_cb_write", "enable"},
                          {"romio_cb_read", "enable"},
                          {"cb_nodes", "2"},
                          {"cb_config_list", "*:*"},
                          {"cb_buffer_size", "1048576"}});
  MPI_File file = open(MPI_COMM_WORLD, path("pieces_of_own"), kNew, info);
  MPI_Datatype block, type;
  MPI_Type_contiguous(kBlock, MPI_BYTE, &block);
  MPI_Type_create_resized(block, 0, 2 * kBlock - kOverlap, &type);
  MPI_Type_commit(&type);
  const auto view = [&](int first) {
    MPI_File_set_view(file, first, MPI_BYTE, type, "native", MPI_INFO_NULL);
  };
  // The same bytes by whoever writes them.
  std::vector<char> mine(size_t(kBlock) * kBlocks), back(mine.size());
  const auto fill = [&](size_t first) {
    for (size_t i = 0; i < mine.size(); ++i) {
      const size_t at = first + i / kBlock * (2 * kBlock - kOverlap) + i % kBlock;
      mine[i] = char(at % 251 + at / 65536);
    }
  };
  view(rank % 2 * kBlock);
  fill(size_t(rank % 2 * kBlock));
  const std::vector<char> written = mine;
  MPI_File_write_all(file, mine.data(), int(mine.size()), MPI_BYTE, MPI_STATUS_IGNORE);
  check(mine == written, "memory that was written stays as it is");
  MPI_File_read_at_all(file, 0, back.data(), int(back.size()), MPI_BYTE, MPI_STATUS_IGNORE);
  check(back == mine, "blocks in turn that overlap");
  MPI_File_read_at(file, 0, back.data(), int(back.size()), MPI_BYTE, MPI_STATUS_IGNORE);
  check(back == mine, "blocks in turn that overlap, as each rank reads them");
  for (const int first : {0, rank % 2 * (kBlock / 2)}) {  // all read the same, or half of it
    view(first);
    fill(size_t(first));
    std::fill(back.begin(), back.end(), 0);
    const int bytes = int(back.size()) - kBlock;
    MPI_File_read_at_all(file, 0, back.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    check(std::equal(back.begin(), back.begin() + bytes, mine.begin()), "what all ranks read");
  }
  // The file ends in the midst of what is read.
  view(rank % 2 * kBlock);
  fill(size_t(rank % 2 * kBlock));
  MPI_File_set_size(file, (kBlocks - 2) * (2 * kBlock - kOverlap) + kBlock / 2);
  std::fill(back.begin(), back.end(), 'x');
  MPI_Status status;
  int count = 0;
  MPI_File_read_at_all(file, 0, back.data(), int(back.size()), MPI_BYTE, &status);
  MPI_Get_count(&status, MPI_BYTE, &count);
  check(count == (kBlocks - 2) * kBlock + (rank % 2 == 0 ? kBlock / 2 : 0),
        "how much there is before the end");
  check(std::equal(back.begin(), back.begin() + count, mine.begin()), "what is before the end");
  check(std::all_of(back.begin() + count, back.end(), [](char c) { return c == 'x'; }),
        "memory behind what was read");
  MPI_File_close(&file);
  MPI_Type_free(&block);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

// File "targets": two windows of each of two aggregators, in the order of two targets. "stored":
// eight windows of each, half of what they hold from the other rank.
void watched_files() {
  MPI_Info targets = hinted({{"romio_cb_write", "enable"},
                             {"romio_cb_read", "enable"},
                             {"cb_nodes", "2"},
                             {"cb_config_list", "*:*"},
                             {"cb_buffer_size", "131072"},
                             {"striping_unit", "65536"},
                             {"striping_factor", "2"},
                             {"forebay_order", "target"}});
  blocks_in_turn("targets", 4096, 32, targets);
  MPI_Info stored = hinted({{"romio_cb_write", "enable"},
                            {"romio_cb_read", "enable"},
                            {"cb_nodes", "2"},
                            {"cb_config_list", "*:*"},
                            {"cb_buffer_size", "1048576"}});
  blocks_in_turn("stored", 65536, 64, stored);
  MPI_Info_free(&targets);
  MPI_Info_free(&stored);
  own_realms();
}

}  // namespace cases
