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
// On its loop only; shared with what it has asked the table for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "server/lease_table.h"
#include "store/store.h"

namespace forebay::server {

class RelayedLeases final : public LeaseHolder, public std::enable_shared_from_this<RelayedLeases> {
 public:
  RelayedLeases(Store& store, Loop& loop, std::shared_ptr<LeaseTable> table);

  // `ask` is a client's request for a read lease. Then it may be given one by our table, at once.
  using Taken = Callback<void(Result<void>)>;
  void take(Request&& ask, std::string identity, Taken then);
  // How long all that is held here is still good; nothing: nothing is.
  std::optional<Duration> left() const;
  // Before the Store goes.
  void close() { store_ = nullptr; }

  size_t held() const { return files_.size(); }

 private:
  using Number = LeaseTable::Number;
  struct File {
    std::string identity;
    Number number = 0;
  };

  void recalled(Number lease) override;
  void lost() override;
  void taken(const Handle& handle, std::string identity, Result<Reply>&& reply, Taken then);
  void drop(const Handle& handle, const File& file);
  void give_back(Number lease);
  void sweep_later();
  void sweep();

  Store* store_;  // null: closed
  Loop& loop_;
  const std::shared_ptr<LeaseTable> table_;
  std::map<std::string, File> files_;        // by the handle's bytes
  std::map<Number, std::string> by_number_;  // the same
  size_t asks_ = 0;                          // under way
  std::set<Number> early_;                   // recalled before we heard of them
  bool sweeping_ = false;
};

}  // namespace forebay::server
