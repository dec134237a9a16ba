// Leases: which clients may keep copies of a file's bytes, and how they are asked to drop them.
//
// A read lease says that its client hears of every change that another client makes, before that
// change completes: the client is asked for the lease (recalled), and gives it back when its copies
// are dropped. One that does not answer has its time: a lease ends by itself `term` after it was
// taken or renewed, on the client's own clock as on ours. So a client that cannot be reached keeps
// nobody waiting longer than that, and uses no copy afterwards.
//
// A write lease says more: that nobody else looks at the file before the client was asked, so that
// it may keep what it writes. It is the only lease of its file, and is given only if there is no
// other. Who wants to see the file or to change it recalls it first; the holder writes what it has,
// and gives it back. What it writes names the lease, and is refused once that is gone (writes()):
// what others have done since stays.
//
// A renewal is of all that a client holds, but never of what it was asked for: if it renews then,
// it has heard (the recall goes out before the answer, server/lease_table.h).
//
// A client may know one file by several names (handles), and does not know that they are one file:
// so each name has a lease of its own, and a change by one name recalls what is kept under another.
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
  enum class Kind : uint8_t { read, write };
  struct Who {
    uint64_t client = 0;
    uint64_t name = 0;  // by which it knows the file
    auto operator<=>(const Who&) const = default;
  };
  struct Held {
    uint64_t client = 0;
    Number lease = 0;
    bool operator==(const Held&) const = default;
  };

  // Numbers follow `before`: so that those of another life mean nothing.
  explicit Leases(Duration term, Number before = 0) : Leases(term, Limits(), before) {}
  Leases(Duration term, Limits limits, Number before = 0)
      : term_(term), limits_(limits), last_(before) {}
  Leases(const Leases&) = delete;

  // A lease of the file, and all that the client holds renewed. It takes the place of one that the
  // client has of that file by that name, so that giving that one back does not end this one.
  // EAGAIN: somebody else has one that it cannot be beside, or has not given it back yet. ENOLCK
  // beyond a limit.
  // `most`: what the client holds must not last longer than that from now on, unless it was told
  // so before.
  Result<Number> take(std::string_view file, const Who& who, Kind kind, Time now,
                      Duration most = Duration::max());
  // Renews all that the client holds. False: it does not hold this one (any more).
  bool renew(uint64_t client, Number lease, Time now, Duration most = Duration::max());

  struct Recalled {
    std::vector<Held> now;      // those who are to be told
    std::vector<Number> until;  // those that must be gone before it goes on, and
    Time at_most{};             // will be then
    std::vector<Held> lapsed;   // had been recalled before, and have run out
  };
  // A file has changed by `changer`: all that is held of it by others is recalled.
  Recalled recall(std::string_view file, const Who& changer, Time now);
  // A file is about to be looked at or changed: the same, of another's write lease only.
  Recalled recall_writer(std::string_view file, const Who& user, Time now);

  // True: it held it.
  bool give_back(uint64_t client, Number lease);
  // The client's copies are gone, whatever it held: returns that.
  std::vector<Number> forget(uint64_t client);
  // The same, but it may still have written what is not in the file: write leases run out.
  std::vector<Number> forget_copies(uint64_t client);
  // The client cannot be told any more: what it holds runs out.
  void abandon(uint64_t client);
  // Those of a file, of a client, that were recalled, and have run out.
  std::vector<Held> lapse(std::string_view file, Time now);
  std::vector<Held> lapse(uint64_t client, Time now);

  bool holds(uint64_t client, Number lease) const;
  // May the client write to the file what it has kept under this lease?
  bool writes(uint64_t client, Number lease, std::string_view file) const;
  bool written_by(std::string_view file, const Who& who) const;  // under a write lease
  bool held_of(std::string_view file) const;                     // by anybody, recalled or not
  size_t held() const { return leases_.size(); }
  size_t held_to_write() const { return writers_; }
  Duration term() const { return term_; }

 private:
  struct Lease {
    const std::string* file;  // the key in files_
    Who who;
    Kind kind;
    bool recalled = false;
    Time until{};  // once recalled; before that it is the client's
  };
  struct Client {
    std::set<Number> leases;
    Time until{};
  };
  struct File {
    std::map<Who, Number> holders;  // that were not recalled
    std::set<Number> recalled;
    Number writer = 0;  // the write lease, recalled or not
  };

  bool may_take(const File& file, const Who& who, Kind kind) const;
  void drop(Number number);
  void mark(Number number);
  void ask_for(Number number, Time now, Recalled& out);
  void wait_for(Number number, Recalled& out) const;

  const Duration term_;
  const Limits limits_;
  std::map<std::string, File, std::less<>> files_;
  std::unordered_map<uint64_t, Client> clients_;
  std::unordered_map<Number, Lease> leases_;
  size_t writers_ = 0;
  Number last_;
};

}  // namespace forebay::attr
