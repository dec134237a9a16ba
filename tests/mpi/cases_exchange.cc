// Rules of what ranks and aggregators exchange in collective calls, seen from outside: when they
// read and write (watch.c), and what memory they take.
#include <vector>

#include "cases.h"

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

}  // namespace

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
}

}  // namespace cases
