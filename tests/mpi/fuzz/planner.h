// Plans the sessions of one case and keeps the oracle's state between them: the file's content, the
// views, the pointers. Pure: no MPI call but for the names of types and constants. Every rank has
// one, with the same seed; the only thing that the run tells it is how a race came out.
#pragma once

#include <optional>

#include "options.h"
#include "rng.h"
#include "script.h"

namespace fuzz {

// How often a kind of case does what; weights, and percentages for how an access is made.
struct Mix {
  const char* name;
  int views, independent, collective, shared, ordered, pointers, sizes, fences;
  int nonblocking, split;  // percent of accesses
  int atomic, race;        // percent of sessions
};
int kind_index(const std::string& name);
int kinds();
const Mix& kind(int index);

class Planner {
 public:
  Planner(const Options& options, uint64_t seed, const Mix& mix, int ranks);

  // The next session; afterwards `model()` is what the file must hold, but for a race.
  Session plan();
  // Of a session that ends with a race of writes: in which order they came.
  void apply(const std::vector<AccessPtr>& order);

  FileModel& model() { return model_; }
  bool exists() const { return exists_; }
  void create(int64_t size);

 private:
  struct Pointer {
    int64_t at = 0;
    // After a read that the end of the file cut short it may have moved by what was asked or by
    // what was read: the standard's words can be taken either way.
    std::optional<int64_t> or_at;
  };

  // planner.cc: the frame of a session
  void plan_open();
  void plan_close();
  void plan_step();
  void plan_size();
  void plan_pointers();
  void plan_seek(int rank, Turn& turn);
  void seek_unknown(const std::vector<int>& ranks);
  void plan_seek_shared();
  void check_pointers();
  void check_size();
  void settle();
  void plan_wait(int percent);
  void fence();
  void barrier_for_shared();
  Step& add(Verb verb);

  // plan_view.cc
  void plan_view(bool same);
  TypePtr random_etype();
  std::vector<TypePtr> partition(const TypePtr& etype);
  TypePtr random_filetype(const TypePtr& etype);

  // plan_access.cc
  void plan_independent();
  void plan_collective();
  void plan_shared();
  void plan_ordered();
  AccessPtr make_access(int rank, bool write, Where where, bool collective, How how);
  bool place(Access& a, int rank);
  int64_t random_offset(int rank, bool write);
  void random_memory(Access& a, const View& view);
  void commit(const AccessPtr& a, int rank);
  How random_how(bool collective);
  bool pick_write();

  // plan_race.cc
  bool plan_race_shared();
  bool plan_race_atomic();

  const Options& options_;
  Rng rng_;
  const Mix& mix_;
  const int ranks_;
  int next_id_ = 1;
  bool exists_ = false;
  FileModel model_;

  Session session_;
  Conflicts conflicts_;
  int amode_ = 0;
  bool readable_ = false, writable_ = false, atomic_ = false;
  bool same_view_ = true;
  bool shared_dirty_ =
      false;           // a rank has used the shared pointer and nobody has waited for it since
  bool over_ = false;  // a race has been planned: only close comes after it
  std::vector<View> views_;
  std::vector<Pointer> own_;
  int64_t shared_ = 0;
  std::vector<std::vector<AccessPtr>> pending_;  // of each rank
  std::vector<AccessPtr> split_;                 // of each rank; empty if none is active
};

}  // namespace fuzz
