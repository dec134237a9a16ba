// The data calls of MPI-IO (MPI-4.0, 14.4), which differ in three things: the direction, which
// pointer says where, and whether all ranks take part; and each of those may block, go on in the
// background, or be split in two.
//
// Collective calls that block are the collective engine's business (collective.h), and so are split
// ones, whose begin does all of the work. Non-blocking ones move every rank's data by itself: their
// begin may not wait for others. Every rank takes part whatever its own arguments were, so that an
// error of one never leaves the others waiting; in the end they agree on how it went.
#pragma once

#include "mpiio/file.h"
#include "mpiio/transfer.h"

namespace forebay::mpiio {

enum class Pointer : uint8_t { explicit_offset, individual, shared, ordered };

struct DataCall {
  const char* name;
  Direction direction;
  Pointer pointer;
  bool collective = false;
};

int blocking(DataCall call, MPI_File handle, MPI_Offset offset, const Buffer& buffer,
             MPI_Status* status);
int nonblocking(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer,
                MPI_Request* request);
int begin(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer);
int end(const char* name, MPI_File handle, MPI_Status* status);

}  // namespace forebay::mpiio
