// The data calls of MPI-IO (MPI-4.0, 14.4), which differ in three things: the direction, which
// pointer says where, and whether all ranks take part; and each of those may block, go on in the
// background, or be split in two.
//
// Collective calls move every rank's data by itself and then agree on how it went; what ranks have
// in common is the collective engine's business, which is not here yet. Every rank takes part in
// the agreement whatever its own arguments were, so that an error of one never leaves the others
// waiting.
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

int blocking(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer,
             MPI_Status* status);
int nonblocking(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer,
                MPI_Request* request);
int begin(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer);
int end(const char* name, MPI_File handle, MPI_Status* status);

}  // namespace forebay::mpiio
