// Carries out this rank's part of a session and compares with what the oracle expects. A difference
// is noted and the session goes on, as the other ranks wait for this one in collective calls.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "buffer.h"
#include "options.h"
#include "race.h"
#include "script.h"
#include "watchdog.h"

namespace fuzz {

class Runner {
 public:
  Runner(MPI_Comm comm, std::string path, const Options& options, Watchdog& watchdog);

  void run(const Session& session);
  // The first difference; empty if there was none.
  const std::string& failure() const { return failure_; }
  void fail(const std::string& what);

  // On rank 0 what every rank has read in the session's race.
  const Reads& race_reads() const { return race_reads_; }

 private:
  struct Flight {
    Flight(const AccessPtr& a) : access(a), type(a->memory), buffer(*a) {}
    AccessPtr access;
    Built type;
    Buffer buffer;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void step(const Step& step);
  void ask(const Step& step, const Turn& turn);
  void change(const Step& step, const Turn& turn);
  void open(const Step& step);
  void set_view(const View& view);
  void access(const AccessPtr& a);
  void wait(const Turn& turn);
  void wait_each(Flight& flight, WaitHow how);
  void finish(Flight& flight, MPI_Status* status);
  void check_status(const Access& a, MPI_Datatype type, const MPI_Status& status);
  void check_number(const char* what, int64_t got, const std::vector<int64_t>& expected);
  void check_view(const View& view);
  void collect_race(const Step& step);
  void fail_access(Flight& flight, const std::string& what);
  bool ok(const char* what, int code);

  MPI_Comm comm_;
  int rank_ = 0;
  std::string path_;
  const Options& options_;
  Watchdog& watchdog_;
  MPI_File file_ = MPI_FILE_NULL;
  std::map<int, std::unique_ptr<Flight>> flights_;
  Reads race_reads_;
  std::string failure_, doing_;
};

}  // namespace fuzz
