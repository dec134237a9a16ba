// RelayFlight: bulk data of a file that lives at another server. It goes there as one request,
// whose home reserves all of it, so that no request of another server's client comes in between:
// the data is gathered from the client, or comes from the home, as a whole, in memory that is
// charged to the export's pool for what it relays. Requests that are larger than one charge may be,
// or have a list to be pulled, go in chunks, as to a Store (bulk.h): then each chunk is whole, but
// not the request.
//
// Invariants:
//  1. The memory is there until nobody can write to it or read it: as long as the flight.
//  2. The client sends in order, so what has landed is the beginning of the stream, without a gap.
#pragma once

#include <memory>
#include <optional>

#include "server/flight.h"

namespace forebay::server {

class RelayFlight final : public Flight {
 public:
  RelayFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message);
  ~RelayFlight() override;

  // Is the request one for it?
  static bool takes(const Session& session, const wire::RequestMessage& message);

  void detached() override;
  void attached() override;
  void repeated() override;
  bool waits_for_client() const override;

 private:
  void begin() override;
  void keep(unsigned call, Result<Reply>&& result) override;
  void done(unsigned call) override;
  void fail(Error error) override;
  void let_go() override;
  Memory stream_landing(const wire::Pull& pull) override;
  void stream_landed(const wire::Pull& pull) override;

  void charged(BufferPool::Charge charge);
  void ask();
  void send_on();
  void push();
  void pushed(uint32_t round, uint64_t bytes);

  std::optional<BufferPool::Charge> charge_;
  uint64_t ticket_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  uint64_t asked_ = 0, landed_ = 0;  // of a write
  std::optional<Result<Reply>> result_;
  bool pushing_ = true;             // of a read: the client has asked on this connection
  uint32_t round_ = 0;              // one more with each start from the beginning
  uint64_t given_ = 0, taken_ = 0;  // to the connection, by the client
};

}  // namespace forebay::server
