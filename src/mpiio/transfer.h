// Transfer: one data call of one rank, from the program's arguments to requests of the Store.
//
// Three steps, so that the middle one can run on a thread that may not call MPI:
//   prepare()  decodes the types, checks, converts what is to be written   (the program's thread)
//   run()      moves the bytes, a part after the other                      (any thread)
//   finish()   converts what was read                                       (the program's thread)
// The program's memory must stay until run() has ended; types and view may go after prepare().
#pragma once

#include <new>
#include <optional>
#include <vector>

#include "mpiio/file.h"
#include "mpiio/shared_state.h"
#include "plan/view_part.h"

namespace forebay::mpiio {

enum class Direction : uint8_t { read, write };

class Transfer {
 public:
  Transfer(File& file, Direction direction) : file_(file), direction_(direction) {}
  Transfer(const Transfer&) = delete;

  // How many etypes the buffer takes. MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_BUFFER, or what the
  // file's mode forbids; then nothing moves.
  Fault measure(const Buffer& buffer);
  MPI_Offset etypes() const { return static_cast<MPI_Offset>(length_ / view_etype_); }
  // After measure(): where in the view, in etypes.
  Fault prepare(MPI_Offset position);

  void run();
  // Instead, together with other ranks. False: that cannot be.
  bool write_record();
  void finish();

  // Runs `body`; out of memory is a fault of the transfer, so that nobody waits for this rank.
  template <class Body>
  void guarded(Body&& body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      fail({MPI_ERR_NO_MEM, "out of memory"});
    }
  }

  // After prepare(), for who moves the bytes instead of run(): where they lie in the file (nowhere,
  // if there is a fault) and in memory.
  Direction direction() const { return direction_; }
  plan::ViewPart part() const {
    return fault_ ? plan::ViewPart() : plan::ViewPart{view_, from_, Length(length_)};
  }
  const plan::TiledMap& memory() const { return memory_; }
  const plan::TypeMap::Outline& memory_type() const { return memory_type_; }  // of the program's
  void set_moved(uint64_t bytes) { moved_ = bytes; }

  const Fault& fault() const { return fault_; }
  void fail(Fault fault) { fault_ = std::move(fault); }
  // Bytes of the program's type that have moved: what MPI_Get_count counts.
  uint64_t moved() const { return moved_; }

 private:
  void move_all();
  void convert_in();
  Fault convert_part(uint64_t items, uint64_t bytes);
  Result<SharedState::Held> lock();
  Result<uint64_t> move_part(plan::TransferCursor::Part part);
  Fault convert_out();

  File& file_;
  const Direction direction_;
  Buffer buffer_;
  OwnType type_;  // the buffer's, if it is converted once more at the end
  RepresentationRef representation_;
  uint64_t view_etype_ = 1;
  uint64_t length_ = 0;  // bytes in the file
  uint64_t memory_length_ = 0;
  plan::TiledMap view_, memory_;
  plan::TypeMap::Outline memory_type_;
  Length from_;
  std::vector<std::byte> converted_;
  Fault fault_;
  uint64_t moved_ = 0;
};

}  // namespace forebay::mpiio
