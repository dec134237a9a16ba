// RelayedLeases: the read leases that this server holds at another one for its own clients, over
// the connection of one loop. What the other server asks for, the clients are asked for first, and
// its answer is theirs; so nobody here uses a copy when a change there completes.
//
// Our clients hold leases of this server's own table (lease_table.h), which says who they are. The
// lease at the home covers all of them, and is given back when none of them has the file any more.
// The home takes this server for one client, and recalls nothing for what that changes itself: what
// our clients change through us is recalled here (Flight::changed()).
//
// Time. A client counts any answer about a lease for all that it holds. So whoever takes a lease of
// a file that lives elsewhere has the home asked anew, which is good for longer than anything that
// was promised before; and no answer of this server promises more than the homes have promised to
// it (left()); a home that takes long to answer gives nothing, because clients may have been
// promised more by others meanwhile. If a home, this server or a connection is gone, the clients'
// time is over before the home's.
//
// A lease takes the place of the one before at the home. So whatever comes of asking for one, that
// one is not counted with any more: what is asked for in vain ends what was held.
//
// They are a bounded number, which the clients of the loop share: beyond it, whoever has most of
// them lets go of the one that it asked for first.
//
// On its loop only; shared with what it has asked the table for.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "server/lease_table.h"
#include "store/store.h"

namespace forebay::server {

class RelayedLeases final : public LeaseHolder, public std::enable_shared_from_this<RelayedLeases> {
 public:
  // Less than the home gives one client (attr/leases.h), because what is let go is gone there
  // later.
  static constexpr size_t kMost = 60'000;
  RelayedLeases(Store& store, Loop& loop, std::shared_ptr<LeaseTable> table, size_t most = kMost);

  // `ask` is a client's request for a read lease. Then it may be given one by our table, at once.
  using Taken = Callback<void(Result<void>)>;
  struct Asker {
    uint64_t client;
    std::string identity;  // of the file
  };
  void take(Request&& ask, Asker asker, Taken then);
  // How long all that is held here is still good; nothing: nothing is.
  std::optional<Duration> left() const;
  // Before the Store goes.
  void close() { store_ = nullptr; }

  size_t held() const { return files_.size(); }

 private:
  using Number = LeaseTable::Number;
  using Line = std::list<std::string>;  // files by the handles' bytes, the first first
  struct File {
    std::string identity;
    Number number = 0;
    uint64_t client = 0;  // the last that asked
    Line::iterator place = {};
  };
  using Files = std::map<std::string, File>;

  void recalled(Number lease) override;
  void lost() override;
  Result<void> taken(const Handle& handle, Asker asker, const Result<Reply>& reply, Duration took);
  Result<void> usable(const Result<Reply>& reply, Duration took) const;
  void note(const Handle& handle, Asker asker, Number number);
  File forget(Files::iterator file);
  void make_room();
  void drop(const Handle& handle);
  void drop(const Handle& handle, const File& file);
  void give_back(Number lease);
  void sweep_later();
  void sweep();

  Store* store_;  // null: closed
  Loop& loop_;
  const std::shared_ptr<LeaseTable> table_;
  const size_t most_;
  Files files_;                               // by the handle's bytes
  std::unordered_map<uint64_t, Line> lines_;  // of each client
  std::map<Number, std::string> by_number_;   // the same
  size_t asks_ = 0;                           // under way
  std::set<Number> early_;                    // recalled before we heard of them
  bool sweeping_ = false;
};

}  // namespace forebay::server
