// MPI_Wait, MPI_Test and their kind, which complete requests of ours before MPI looks at them
// (requests.h). Programs that have none under way go straight through.
//
// An error of an operation is returned as MPI returns errors of communication: by the call, if it
// completes one request; in the statuses, and as MPI_ERR_IN_STATUS, if it completes several. The
// file's error handler runs, not the communicator's.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "mpiio/process.h"
#include "mpiio/report.h"

using namespace forebay::mpiio;

namespace {

using Held = std::shared_ptr<Operation>;

Requests& ours() {
  return Process::get().requests();
}

// Between looks at what may come from two sides: gives the core away, and after a while sleeps. MPI
// moves messages only while it is called, so the sleeps stay short.
class Patience {
 public:
  void pause() {
    constexpr int kYields = 100;
    constexpr auto kLongest = std::chrono::microseconds(200);
    if (++pauses_ <= kYields) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongest);
  }

 private:
  int pauses_ = 0;
  std::chrono::microseconds sleep_{10};
};

// Those of an array of requests that are ours, by index.
class Mine {
 public:
  Mine(int count, const MPI_Request* requests) : requests_(requests) {
    if (!Process::started() || !ours().any() || count <= 0) return;
    for (int i = 0; i < count; ++i)
      if (Held found = ours().find(requests[i]))
        held_.push_back({i, requests[i], std::move(found)});
  }

  bool none() const { return held_.empty(); }
  void forsake() {
    for (const One& one : held_) one.operation->forsake();
  }
  void wait_for_all() {
    for (const One& one : held_)
      while (!one.operation->wait_a_moment()) progress();
  }
  // Completes what has ended; true if that is all.
  bool complete_ended() {
    bool all = true;
    for (const One& one : held_) {
      const bool ended = one.operation->ended();
      if (ended) ours().complete(one.request, *one.operation);
      all &= ended;
    }
    return all;
  }

  // The error of the operation at that index, with its file's handler run, if MPI has handed the
  // request back; MPI_SUCCESS otherwise.
  int judge(int index) {
    const Held ended = let_go(index);
    return ended ? report_on(*ended) : MPI_SUCCESS;
  }
  // Puts errors of ours among `count` completed ones, at `indices` (or 0, 1, 2 ... if null). All
  // are let go first, because a handler need not return.
  int judge_all(int code, int count, const int* indices, MPI_Status* statuses) {
    std::vector<Held> ended;
    for (int i = 0; i < count; ++i) ended.push_back(let_go(indices ? indices[i] : i));
    std::vector<int> codes(ended.size(), MPI_SUCCESS);
    bool bad = false;
    for (size_t i = 0; i < ended.size(); ++i) {
      if (ended[i]) codes[i] = report_on(*ended[i]);
      bad |= codes[i] != MPI_SUCCESS;
    }
    if (!bad) return code;
    if (statuses != MPI_STATUSES_IGNORE)
      for (int i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        if (codes[at] != MPI_SUCCESS || code != MPI_ERR_IN_STATUS)
          statuses[i].MPI_ERROR = codes[at];
      }
    return MPI_ERR_IN_STATUS;
  }

 private:
  struct One {
    int index;
    MPI_Request request;
    Held operation;
  };
  // Null if it is not ours, or MPI keeps it.
  Held let_go(int index) {
    const auto one =
        std::lower_bound(held_.begin(), held_.end(), index,
                         [](const One& held, int wanted) { return held.index < wanted; });
    if (one == held_.end() || one->index != index || requests_[index] != MPI_REQUEST_NULL)
      return nullptr;
    ours().forget(one->request, *one->operation);
    return one->operation;
  }
  static int report_on(Operation& ended) {
    return report(&ended.file(), ended.call(), ended.transfer().fault());
  }
  const MPI_Request* const requests_;
  std::vector<One> held_;  // by rising index
};

// The definition behind ours, under the same of its two names.
enum class Name { mpi, pmpi };
template <class Function>
Function* behind(Name name, const char* of_mpi, const char* of_pmpi) {
  return next<Function>(name == Name::mpi ? of_mpi : of_pmpi);
}

}  // namespace

// NEXT(Wait): the function behind, looked up once for each name.
#define FOREBAY_NEXT(name)                                                                 \
  ([](Name which) {                                                                        \
    static auto* const mpi = behind<decltype(MPI_##name)>(Name::mpi, "MPI_" #name, "");    \
    static auto* const pmpi = behind<decltype(MPI_##name)>(Name::pmpi, "", "PMPI_" #name); \
    return which == Name::mpi ? mpi : pmpi;                                                \
  })

namespace {

int wait(Name name, MPI_Request* request, MPI_Status* status) {
  auto* const real = FOREBAY_NEXT(Wait)(name);
  Mine mine(request ? 1 : 0, request);
  if (mine.none()) return real(request, status);
  mine.wait_for_all();
  mine.complete_ended();
  const int code = real(request, status);
  return code != MPI_SUCCESS ? code : mine.judge(0);
}

int test(Name name, MPI_Request* request, int* flag, MPI_Status* status) {
  auto* const real = FOREBAY_NEXT(Test)(name);
  Mine mine(request ? 1 : 0, request);
  mine.complete_ended();
  const int code = real(request, flag, status);
  return mine.none() || code != MPI_SUCCESS || !*flag ? code : mine.judge(0);
}

int get_status(Name name, MPI_Request request, int* flag, MPI_Status* status) {
  auto* const real = FOREBAY_NEXT(Request_get_status)(name);
  Mine mine(1, &request);
  mine.complete_ended();
  return real(request, flag, status);
}

int wait_all(Name name, int count, MPI_Request requests[], MPI_Status* statuses) {
  auto* const real = FOREBAY_NEXT(Waitall)(name);
  Mine mine(count, requests);
  if (mine.none()) return real(count, requests, statuses);
  mine.wait_for_all();
  mine.complete_ended();
  return mine.judge_all(real(count, requests, statuses), count, nullptr, statuses);
}

int test_all(Name name, int count, MPI_Request requests[], int* flag, MPI_Status* statuses) {
  auto* const real = FOREBAY_NEXT(Testall)(name);
  Mine mine(count, requests);
  if (mine.none()) return real(count, requests, flag, statuses);
  if (!mine.complete_ended()) {
    progress();
    *flag = 0;
    return MPI_SUCCESS;
  }
  const int code = real(count, requests, flag, statuses);
  return *flag ? mine.judge_all(code, count, nullptr, statuses) : code;
}

int test_any(Name name, int count, MPI_Request requests[], int* index, int* flag,
             MPI_Status* status) {
  auto* const real = FOREBAY_NEXT(Testany)(name);
  Mine mine(count, requests);
  mine.complete_ended();
  const int code = real(count, requests, index, flag, status);
  const bool one = *flag && *index != MPI_UNDEFINED;
  return mine.none() || code != MPI_SUCCESS || !one ? code : mine.judge(*index);
}

int test_some(Name name, int count, MPI_Request requests[], int* done, int indices[],
              MPI_Status* statuses) {
  auto* const real = FOREBAY_NEXT(Testsome)(name);
  Mine mine(count, requests);
  mine.complete_ended();
  const int code = real(count, requests, done, indices, statuses);
  const bool looked = code == MPI_SUCCESS || code == MPI_ERR_IN_STATUS;  // or `done` says nothing
  if (mine.none() || !looked || *done == MPI_UNDEFINED) return code;
  return mine.judge_all(code, *done, indices, statuses);
}

// Both wait for whatever comes first, of ours or of MPI's, by looking at both in turns.
int wait_any(Name name, int count, MPI_Request requests[], int* index, MPI_Status* status) {
  if (Mine(count, requests).none())
    return FOREBAY_NEXT(Waitany)(name)(count, requests, index, status);
  for (Patience patience;;) {
    int flag = 0;
    const int code = test_any(name, count, requests, index, &flag, status);
    if (flag || code != MPI_SUCCESS) return code;
    patience.pause();
  }
}

int wait_some(Name name, int count, MPI_Request requests[], int* done, int indices[],
              MPI_Status* statuses) {
  if (Mine(count, requests).none())
    return FOREBAY_NEXT(Waitsome)(name)(count, requests, done, indices, statuses);
  for (Patience patience;;) {
    const int code = test_some(name, count, requests, done, indices, statuses);
    if (*done != 0 || code != MPI_SUCCESS) return code;
    patience.pause();
  }
}

// MPI lets go of the request at once, and of the operation when it has ended: so it ends first.
int free_request(Name name, MPI_Request* request) {
  auto* const real = FOREBAY_NEXT(Request_free)(name);
  Mine mine(request ? 1 : 0, request);
  mine.forsake();
  mine.wait_for_all();
  mine.complete_ended();
  const int code = real(request);
  return code != MPI_SUCCESS ? code : mine.judge(0);
}

}  // namespace

#define FOREBAY_BOTH(name, parameters, call) \
  extern "C" int MPI_##name parameters {     \
    constexpr Name which = Name::mpi;        \
    return call;                             \
  }                                          \
  extern "C" int PMPI_##name parameters {    \
    constexpr Name which = Name::pmpi;       \
    return call;                             \
  }

FOREBAY_BOTH(Wait, (MPI_Request * request, MPI_Status* status), wait(which, request, status))
FOREBAY_BOTH(Test, (MPI_Request * request, int* flag, MPI_Status* status),
             test(which, request, flag, status))
FOREBAY_BOTH(Request_get_status, (MPI_Request request, int* flag, MPI_Status* status),
             get_status(which, request, flag, status))
FOREBAY_BOTH(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]),
             wait_all(which, count, requests, statuses))
FOREBAY_BOTH(Testall, (int count, MPI_Request requests[], int* flag, MPI_Status statuses[]),
             test_all(which, count, requests, flag, statuses))
FOREBAY_BOTH(Waitany, (int count, MPI_Request requests[], int* index, MPI_Status* status),
             wait_any(which, count, requests, index, status))
FOREBAY_BOTH(Testany,
             (int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status),
             test_any(which, count, requests, index, flag, status))
FOREBAY_BOTH(Waitsome,
             (int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]),
             wait_some(which, count, requests, done, indices, statuses))
FOREBAY_BOTH(Testsome,
             (int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]),
             test_some(which, count, requests, done, indices, statuses))
FOREBAY_BOTH(Request_free, (MPI_Request * request), free_request(which, request))
