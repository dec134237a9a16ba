// NameFlight: a request that gives, takes or changes a name (create, mkdir, symlink, link, rename,
// remove), so that it is done once, in all lives of the server.
//
// Sent again after a crash, a create that is exclusive would find its own file, and a rename or a
// remove would miss the name that it took away itself. So what it is about to do is written to the
// journal first (shared_state.h), with the identity of the file that it is done to:
//
//   reserve the names -> look -> intend, written -> the Store's call -> outcome -> answer
//
// After a crash the next life looks what became of every intent without an outcome, before it
// serves anybody. It can tell, because of one name one request at a time is under way: the names
// are reserved, as the bytes of their directory (by a hash; names that collide wait for each
// other). Creates that are not exclusive have no intent, and reserve like the others. What somebody
// else does to the names, around this server and in the moment of its crash, may be taken for ours.
//
// Of several servers the one that the client talks to does this, and if the request goes on to the
// home of the file, that one does as well: each may end and come back. The names of those that are
// relayed are reserved apart: whoever holds names and waits for another server waits for such, who
// wait for no server.
//
// If there is no journal, or it cannot be written, names are changed all the same (nobody could
// remove a file from a full disk otherwise), and remembered in this life only.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "attr/record.h"
#include "server/flight.h"

namespace forebay::server {

class NameFlight final : public CallFlight {
 public:
  static bool takes(const Request& request);
  NameFlight(std::shared_ptr<Session> session, wire::RequestMessage&& message);

 private:
  enum Call : unsigned { kDo, kLook, kLookForNone, kLookForTarget, kLookAgain, kLookForRemoved };

  void begin() override;
  void done(unsigned call) override;
  void late(unsigned call) override;
  void let_go() override;
  void reserve_names();
  void reserved();
  void look();
  void look_up(const Handle& dir, const std::string& name, Call call);
  void looked(bool for_none);
  void looked_for_target();
  void intend();
  void do_it();
  void answer_again(const SharedState::Before& before);
  void tell_outcome();
  bool look_for_removed();

  const Once once_;
  attr::Intent intent_;
  bool intended_ = false;  // and without an outcome
  bool again_ = false;
  bool looked_for_removed_ = false;
  Handle loses_name_;  // the file that does, if it is known
  std::string home_;   // of the file that has the name; empty: this server
  std::vector<std::pair<std::string, Extent>> places_;  // of the names: directory and byte
  std::deque<Reservation> held_;
};

}  // namespace forebay::server
