// A read of scattered pieces by data sieving in the process that reads (paper 5, section 4.3.3):
// windows are read whole and the pieces copied out of them, where plan/sieve.h finds that cheaper.
// To read holes harms nobody, so it needs no lock. Writes are sieved by servers only.
//
// Blocking; any thread.
#pragma once

#include "plan/sieve.h"
#include "store/store.h"

namespace forebay::mpiio {

// What the hints say: romio_ds_read, ind_rd_buffer_size, romio_cb_ds_threshold.
enum class SieveWanted : uint8_t { automatic, always, never };
struct ReadSieving {
  SieveWanted wanted = SieveWanted::automatic;
  uint64_t window = 4_MiB;
  uint64_t hole = 0;  // not 0: holes up to about this size are read
};

// With these costs, if the request should be sieved at all. Where it is left to us: not on local
// file systems, whose Store has a cheaper way with small pieces, and not through a server, which
// sieves by itself.
std::optional<plan::SieveCosts> sieve_costs(const Extents& file, const ReadSieving& sieving,
                                            bool near);

// The count is short at the end of file only, as of every Store.
Result<uint64_t> read_sieved(Store& store, const Request& request, const plan::SieveCosts& costs);

}  // namespace forebay::mpiio
