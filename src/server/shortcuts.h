// Shortcuts: a client on this node that is alone with a file reads and writes it itself, by a
// descriptor of its own, until somebody else needs the file. (Paper 1 forwards everything. Within a
// node that costs a copy and two turns on a core, and gains nothing where there is nobody to merge
// with.)
//
// To everybody else a shortcut is one long request on the whole file: it holds a reservation
// (reserve.h), for reading or for writing. Whoever has to wait for that, the client's own requests
// included, makes the table ask for it back: the shortcut's word is closed (shared_shortcut.h), and
// when nobody is in any more, the reservation goes. So no request is torn by what a client does
// itself, and each comes before or after the other. One who stays in for `stall` without moving
// anything, or for `deadline` longer in any case, is cut off, as a client that owes data,
// and its session has no shortcuts for a while.
//
// Nothing is kept at the client: its bytes are in the file system when its call returns, as they
// would be in the server's hands. So nothing is lost with it, or with the server.
//
// Clients that write to one file at the same time have it in common, where they write only pieces
// that the file system writes as a whole, each by one call (kInCommon): every local one does, with
// its inode locked. Those of the server (small_writes.h) may be among them. A read, or any other
// write, ends it for all of them. Those of one user are given memory in which they gather their
// small pieces, to write them together (store/gathered_writes.h). They could all write the file
// anyhow, so nobody has more rights by that; the server never looks into it. What a client has left
// there when it ended within a write must not come over what is written later: then all of them go
// on with other memory.
//
// A file that is around the page cache is nobody's in common, because direct writes are not done as
// a whole; and the client does whole blocks of it only.
//
// Only where nothing else is to be gained or known of its requests: files of a local file system,
// not at another server; while nothing of the file waits in
// memory (behind_store.h; what is acknowledged early from now on takes the file back first),
// nobody has a lease of the file (lease_table.h) and nobody has appended to it lately, because the
// place of the next append is kept in memory (shared_state.h). A file that is wanted back is not
// given again for a while, but in common.
//
// Invariants:
//  1. While a word is open, or somebody is in, the reservation is held.
//  2. A connection's shortcuts are closed when it ends, before anything else of it goes.
//
// Threads: a Shortcut and a session's Shortcuts on the session's loop; the others any.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "core/clock.h"
#include "core/counters.h"
#include "core/op.h"
#include "loop/loop.h"
#include "server/reserve.h"
#include "transport/shared_shortcut.h"

namespace forebay {
class SharedPages;
class SharedRegion;
}  // namespace forebay

namespace forebay::server {

class Export;
class Session;

// What clients say that they have done by shortcuts: for people.
struct ShortcutUse {
  uint64_t reads = 0, writes = 0, bytes_read = 0, bytes_written = 0;

  static ShortcutUse said_in(const SharedRegion& region);
  ShortcutUse& operator+=(const ShortcutUse& more) {
    reads += more.reads, writes += more.writes;
    bytes_read += more.bytes_read, bytes_written += more.bytes_written;
    return *this;
  }
};

class Shortcut;

// Of an export.
class ShortcutTable {
 public:
  // Who has wanted the file back lately? (Of several, one who cannot have it in common.)
  enum class Lately { nobody, a_writer, others };
  Lately wanted_by(const std::string& file, Time now);
  void wanted(const std::string& file, ReservationTable::Mode by, Time now);

  bool any() const { return out_.load() != 0; }
  size_t out() const { return out_.load(); }
  void used(const ShortcutUse& by);  // over a connection that is gone
  ShortcutUse used() const;
  void end_all();  // the server has ended: no loop runs any more

  Counter granted, recalled;

 private:
  friend class Shortcut;
  static constexpr Duration kQuiet = std::chrono::milliseconds(250);
  static constexpr size_t kMost = 4096;  // files that are remembered
  static constexpr size_t kMostSpaces = 64;

  using Space = std::shared_ptr<SharedPages>;
  bool give_space(Shortcut& to, uint32_t user, uint64_t layout);
  void take_space(Shortcut& from, bool for_good);

  std::atomic<size_t> out_{0};  // that are not ended
  mutable std::mutex mutex_;
  ShortcutUse used_;
  struct Wanted {
    std::optional<Time> by_writer, by_others;
    Lately lately(Time now) const;
  };
  std::unordered_map<std::string, Wanted> wanted_;
  // Where those of one user who have a file in common gather what they write.
  using SpaceOf = std::tuple<std::string, uint32_t, uint64_t>;  // file, user, layout
  std::map<SpaceOf, std::weak_ptr<SharedPages>> spaces_;
  std::unordered_map<const Shortcut*, std::weak_ptr<Shortcut>> all_;  // that are open
};

class Shortcut : public std::enable_shared_from_this<Shortcut> {
  friend class ShortcutTable;

 public:
  Shortcut(Session& session, size_t number, uint32_t generation, const Request& request,
           bool direct);
  ~Shortcut() { end(); }
  Shortcut(const Shortcut&) = delete;

  // Takes what it needs of the file; an error says what is in the way.
  Result<void> reserve(const Handle& handle);
  void open();
  // Hands over memory for writes in common, if it can be had, of that layout. 0: none.
  void gather(Session& session, uint32_t user, uint64_t layout);
  // Closes the word; the rest follows when nobody is in any more.
  void recall();
  void end();  // whoever is in: the server goes, or it was never opened

  uint64_t space_inode() const { return space_inode_; }  // of the memory that was handed over
  bool ended() const { return !reservation_; }
  const std::string& right() const { return right_; }
  uint64_t value() const {
    return uint64_t(generation_) << 32 | (common_ ? kInCommon : 0) | (direct_ ? kAroundCache : 0) |
           (space_ ? kGathering : 0) | number_;
  }

 private:
  ShortcutWord& word() const;
  bool hold(ReservationTable::Mode mode);
  void look();

  const std::shared_ptr<Export> export_;  // before the reservation, which is of it
  const std::shared_ptr<SharedRegion> region_;
  const std::weak_ptr<Session> session_;
  Loop& loop_;
  const uint32_t pid_;
  const size_t number_;
  const uint32_t generation_;
  const bool writes_, direct_;
  const bool amid_writes_;  // of its session
  const std::string right_;
  const Duration stall_, most_;
  std::string file_;
  Reservation reservation_;
  bool common_ = false;
  std::shared_ptr<SharedPages> space_;  // as long as one of them has the file; the table's mutex
  uint64_t space_inode_ = 0;
  bool lent_ = false;  // nobody is given a lease meanwhile
  bool opened_ = false, recalled_ = false;
  uint32_t progress_ = 0;
  Time asked_{}, moved_{};
  Duration pause_;
};

// Of a session.
class Shortcuts {
 public:
  explicit Shortcuts(Session& session) : session_(session) {}

  // For a request of the client's (Op::shortcut). EAGAIN: not now.
  Result<Reply> take(const Request& request);
  void close(std::string_view right);  // the client has closed it
  void recall_all();
  void bar();         // it has not let go of one
  void drop();        // the server is gone
  bool none() const;  // out

 private:
  Result<size_t> room(const Request& request);

  static constexpr Duration kBarred = std::chrono::seconds(60);

  Session& session_;
  std::optional<Time> barred_until_;
  std::array<std::shared_ptr<Shortcut>, kShortcuts> all_;
  uint32_t generation_ = 0;
  size_t next_ = 0;
};

}  // namespace forebay::server
