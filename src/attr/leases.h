// Leases: which clients may keep copies of a file's bytes, and how they are asked to drop them.
//
// A read lease says that its client hears of every change that another client makes, before that
// change completes: the client is asked for the lease (recalled), and gives it back when its copies
// are dropped. One that does not answer has its time: a lease ends by itself `term` after it was
// taken or renewed, on the client's own clock as on ours. So a client that cannot be reached keeps
// nobody waiting longer than that, and uses no copy afterwards.
//
// A renewal is of all that a client holds, but never of what it was asked for: if it renews then,
// it has heard (the recall goes out before the answer, server/lease_table.h).
//
// Leases are of whole files, and shared. There is no lease to write: nobody may keep what is not in
// the file yet.
//
// A value: no threads, no clock, no network.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/result.h"

namespace forebay::attr {

class Leases {
 public:
  using Number = uint64_t;  // of a lease; never used again
  struct Limits {
    size_t in_all = 1 << 20;
    size_t per_client = 1 << 16;
  };
  struct Held {
    uint64_t client = 0;
    Number lease = 0;
    bool operator==(const Held&) const = default;
  };

  explicit Leases(Duration term) : Leases(term, Limits()) {}
  Leases(Duration term, Limits limits) : term_(term), limits_(limits) {}
  Leases(const Leases&) = delete;

  // A lease of the file, and all that the client holds renewed. It takes the place of one that the
  // client has of that file, so that giving that one back does not end this one. ENOLCK beyond a
  // limit.
  Result<Number> take(std::string_view file, uint64_t client, Time now);
  // Renews all that the client holds. False: it does not hold this one (any more).
  bool renew(uint64_t client, Number lease, Time now);

  // A file has changed by `changer`: all that other clients hold of it is recalled.
  struct Recalled {
    std::vector<Held> now;      // those who are to be told
    std::vector<Number> until;  // those that must be gone before the change completes, and
    Time at_most{};             // will be then
  };
  Recalled recall(std::string_view file, uint64_t changer, Time now);

  // True: it held it.
  bool give_back(uint64_t client, Number lease);
  // The client's copies are gone, whatever it held: returns that.
  std::vector<Number> forget(uint64_t client);
  // The client cannot be told any more: what it holds runs out.
  void abandon(uint64_t client);
  // Those of a file that were recalled, and have run out.
  std::vector<Held> lapse(std::string_view file, Time now);

  bool holds(uint64_t client, Number lease) const;
  size_t held() const { return leases_.size(); }
  Duration term() const { return term_; }

 private:
  struct Lease {
    const std::string* file;  // the key in files_
    uint64_t client;
    bool recalled = false;
    Time until{};  // once recalled; before that it is the client's
  };
  struct Client {
    std::set<Number> leases;
    Time until{};
  };
  struct File {
    std::map<uint64_t, Number> holders;  // that were not recalled, by client
    std::set<Number> recalled;
  };

  void drop(Number number);
  void mark(Number number);

  const Duration term_;
  const Limits limits_;
  std::map<std::string, File, std::less<>> files_;
  std::unordered_map<uint64_t, Client> clients_;
  std::unordered_map<Number, Lease> leases_;
  Number last_ = 0;
};

}  // namespace forebay::attr
