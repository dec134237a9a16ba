// LentFlight: a read or write whose memory the client lends: the Store works on it directly, and
// nothing is copied (paper 1, section III.A, moves bulk data through the server's buffers; a client
// on the same node need not).
//
// In parts, so that no request holds the loop for long: on a Store that works inline one at a time,
// a write's of a few chunks; else of a chunk, up to `in_flight`. What the client does to its memory
// meanwhile is its own loss: bytes of it are data, never anything else. The memory stays mapped
// until the last Store call has ended, whatever becomes of the client.
#pragma once

#include <limits>

#include "server/flight.h"
#include "transport/shared_pages.h"

namespace forebay::server {

class LentFlight final : public Flight {
 public:
  // The place is checked.
  LentFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message,
             std::shared_ptr<SharedPages> lent);

 private:
  struct Part {
    bool busy = false;
    uint64_t position = 0, length = 0;  // in the stream
    std::optional<Result<Reply>> result;
  };

  void begin() override;
  void keep(unsigned call, Result<Reply>&& result) override;
  void done(unsigned call) override;
  void fail(Error error) override;
  uint64_t written() const override;
  bool one_call() const override;

  void advance();
  void issue(unsigned call);
  void advance_soon();
  void finish();

  const std::shared_ptr<SharedPages> lent_;
  std::byte* const at_;
  std::optional<ExtentCursor> cursor_;
  std::vector<Part> parts_;
  std::optional<Error> error_;
  uint64_t verifier_ = 0;                                // not 0: some of it is acknowledged only
  uint64_t end_ = std::numeric_limits<uint64_t>::max();  // first byte of the stream not moved
  uint64_t behind_ = std::numeric_limits<uint64_t>::max();  // first byte acknowledged only
  uint64_t part_size_ = 0;
  uint64_t issued_ = 0;  // bytes, in this task of the loop
  bool advancing_ = false, again_ = false;
};

}  // namespace forebay::server
