// ReservationTable: the reservations of one export, file by file, shared by sessions on different
// loops. It keeps the rule "Order" of the design for requests of all clients: extents are reserved
// all at once, in arrival order, and overlapping requests wait unless both are reads. (The paper's
// forwarder, paper 1 section III, leaves overlapping requests to the file system; we do not.)
//
// A file is known by its Store's identity() of its handle.
//
// Threads: any; one lock, never held while somebody else's code runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/callback.h"
#include "core/op.h"
#include "loop/loop.h"
#include "plan/reservations.h"

namespace forebay::server {

class ReservationTable;

// Extents held, waiting or running. Movable; lets go when destroyed. The table must outlive it.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { release(); }

  explicit operator bool() const { return table_ != nullptr; }
  void release();

 private:
  friend class ReservationTable;
  ReservationTable* table_ = nullptr;
  std::string file_;
  plan::Reservations::Id id_ = 0;
};

class ReservationTable {
 public:
  using Mode = plan::Reservations::Mode;

  // Reserves. True: the request may run at once. False: `granted` will be posted to `loop` when it
  // may; not if the reservation is released before, but a task that is already posted still runs.
  bool add(Reservation& out, std::string_view file, Mode mode, Extents extents, Loop& loop,
           Task granted);

  // Reserves for as long as nobody else needs it, if it can be had at once. When somebody who
  // conflicts with it begins to wait for anything of the file, `wanted` runs on `loop`, once, with
  // that one's mode.
  using Wanted = Callback<void(Mode)>;
  bool hold(Reservation& out, std::string_view file, Mode mode, Extents extents, Loop& loop,
            Wanted wanted);

  bool in_use(std::string_view file) const;  // by anybody

  size_t held() const;  // for tests and status

 private:
  friend class Reservation;
  void release(const std::string& file, plan::Reservations::Id id);

  struct Waiter {
    Loop* loop;
    Task granted;
  };
  struct Holder {
    Mode mode;
    Loop* loop;
    Wanted wanted;
  };
  struct File {
    plan::Reservations reservations;
    std::unordered_map<plan::Reservations::Id, Waiter> waiting;
    std::unordered_map<plan::Reservations::Id, Holder> holders;  // that are not asked for it yet
  };
  File& file_of(const std::string& key);
  // Files without reservations are kept up to this many, so that a file in use is not made anew for
  // every request.
  static constexpr size_t kKeptFiles = 256;

  mutable std::mutex mutex_;
  plan::Reservations::Id next_id_ = 1;
  std::unordered_map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace forebay::server
