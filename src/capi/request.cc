#include "capi/request.h"

#include "capi/error.h"

using namespace forebay;
using namespace forebay::capi;

namespace forebay::capi {

void Waiter::arrived() {
  std::lock_guard lock(mutex_);
  ++arrived_;
  changed_.notify_one();  // under the lock: the waiter may be gone as soon as it is free
}

bool Waiter::has(unsigned many) {
  std::lock_guard lock(mutex_);
  return arrived_ >= many;
}

void Waiter::wait_for(unsigned many) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return arrived_ >= many; });
}

fb_request* begin(const char* function, Use use, Request request, uint64_t* value) {
  auto made = std::make_unique<fb_request>(function, use);
  made->value = value;
  request.stop = made->stop.get_token();
  Store& store = use.store();
  fb_request* const out = made.get();
  store.submit(std::move(request), [out, held = std::move(use)](Result<Reply>&& how) mutable {
    // First the result, then the file: once a close has waited, a test finds the request done.
    out->arrive(std::move(how));
    held.end();
  });
  return made.release();
}

fb_request* begin_nothing(const char* function, const Use& use) {
  auto made = std::make_unique<fb_request>(function, use);
  made->arrive(Reply{});
  return made.release();
}

}  // namespace forebay::capi

fb_request::Watch fb_request::watch(Waiter& waiter) {
  Waiter* now = nullptr;
  if (state_.compare_exchange_strong(now, &waiter)) return Watch::watching;
  return now == done_mark() ? Watch::done : Watch::taken;
}

bool fb_request::unwatch(Waiter& waiter) {
  Waiter* now = &waiter;
  return state_.compare_exchange_strong(now, nullptr);
}

void fb_request::arrive(Result<Reply>&& how) {
  result.emplace(std::move(how));
  // From here on the request may be gone.
  if (Waiter* waiter = state_.exchange(done_mark())) waiter->arrived();
}

namespace {

Result<void> usable(const fb_request* request) {
  if (!request) return Error(EINVAL, "the request is NULL");
  if (request->done() || !request->life->over()) return {};
  return Error(EINVAL, "the request is the parent process's");
}

// How a request that is done ended; frees it.
Result<uint64_t> take(fb_request*& request) {
  const std::unique_ptr<fb_request> mine(std::exchange(request, nullptr));
  if (*mine->result && mine->value) *mine->value = (*mine->result)->value;
  if (*mine->result) return (*mine->result)->count;
  return std::move(*mine->result).error().at(mine->function);
}

// A count, or minus the errno, which is told as this thread's last error too.
int64_t told(const char* function, const Result<uint64_t>& result) {
  if (result) return static_cast<int64_t>(*result);
  fail({function}, result.error());
  return -result.error().code();
}

// Until the waiter has had its arrival, or somebody else is at work and will see to it.
void help(const fb_request& request, Waiter& waiter) {
  request.helpers->help(
      *request.life, [&] { return waiter.has(1); }, true);
}

Result<void> wait_until_done(fb_request& request) {
  Waiter waiter;
  switch (request.watch(waiter)) {
    case fb_request::Watch::done:
      return {};
    case fb_request::Watch::taken:
      return Error(EINVAL, "somebody waits for this request already");
    case fb_request::Watch::watching:
      break;
  }
  help(request, waiter);
  waiter.wait_for(1);
  return {};
}

Result<uint64_t> wait_and_take(fb_request*& request) {
  if (auto ok = usable(request); !ok) return ok.error();
  if (auto ok = wait_until_done(*request); !ok) return ok.error();
  return take(request);
}

// Waits for one of several. Whatever it returns, no request knows the waiter any more.
class AnyOf {
 public:
  explicit AnyOf(std::span<fb_request*> requests) : requests_(requests) {}

  Result<uint64_t> wait() {
    Result<void> good = watch_all();
    if (good && watched_ == 0 && !found_) good = Error(EINVAL, "every request is NULL");
    if (good && !found_) {
      if (!several_) help(*last_, waiter_);  // else each has its own thread
      waiter_.wait_for(1);
    }
    unwatch_all();
    if (!good) return good.error();
    for (size_t i = 0; i < requests_.size() && !found_; ++i)
      if (requests_[i] && requests_[i]->done()) found_ = i;
    return *found_;
  }

 private:
  Result<void> watch_all() {
    for (size_t i = 0; i < requests_.size() && !found_; ++i, ++end_) {
      if (!requests_[i]) continue;
      if (auto ok = usable(requests_[i]); !ok) return ok;
      several_ = several_ || (watched_ != 0 && last_->helpers != requests_[i]->helpers);
      last_ = requests_[i];
      switch (requests_[i]->watch(waiter_)) {
        case fb_request::Watch::done:
          found_ = i;
          break;
        case fb_request::Watch::taken:
          return Error(EINVAL, "somebody waits for one of them already, or it stands there twice");
        case fb_request::Watch::watching:
          ++watched_;
      }
    }
    return {};
  }

  // Those that cannot be called off have arrived or are about to.
  void unwatch_all() {
    unsigned to_come = watched_;
    for (size_t i = 0; i < end_; ++i)
      if (requests_[i] && requests_[i]->unwatch(waiter_)) --to_come;
    waiter_.wait_for(to_come);
  }

  const std::span<fb_request*> requests_;
  Waiter waiter_;
  size_t end_ = 0;                    // those before it may be watched
  unsigned watched_ = 0;              // how many
  const fb_request* last_ = nullptr;  // the last one that was looked at
  bool several_ = false;              // they are of several stores
  std::optional<size_t> found_;
};

}  // namespace

int64_t fb_wait(fb_request** request) {
  return count({"fb_wait"}, [&]() -> Result<uint64_t> {
    if (auto ok = given({request}); !ok) return ok.error();
    return wait_and_take(*request);
  });
}

int fb_test(fb_request** request, int64_t* result) {
  const int good = status({"fb_test"}, [&]() -> Result<void> {
    if (auto ok = given({request, result}); !ok) return ok;
    return usable(*request);
  });
  if (good != 0) return -1;
  if (!(*request)->done()) {
    (*request)->helpers->help(
        *(*request)->life, [&] { return (*request)->done(); }, false);
    if (!(*request)->done()) return 0;
  }
  *result = told("fb_test", caught([&] { return take(*request); }));
  return 1;
}

int fb_wait_all(size_t count, fb_request* requests[], int64_t results[]) {
  return status({"fb_wait_all"}, [&]() -> Result<void> {
    if (count != 0 && !requests) return Error(EINVAL, "the requests are NULL");
    Result<void> all;
    for (size_t i = 0; i < count; ++i) {
      Result<uint64_t> one = 0;
      if (requests[i]) one = wait_and_take(requests[i]);
      if (results) results[i] = one ? static_cast<int64_t>(*one) : -one.error().code();
      if (!one && all) all = one.error();
    }
    return all;
  });
}

int64_t fb_wait_any(size_t count, fb_request* requests[], int64_t* result) {
  const int64_t index = capi::count({"fb_wait_any"}, [&]() -> Result<uint64_t> {
    if (auto ok = given({requests, result}); !ok) return ok.error();
    return AnyOf({requests, count}).wait();
  });
  if (index >= 0) *result = told("fb_wait_any", caught([&] { return take(requests[index]); }));
  return index;
}

int fb_cancel(fb_request* request) {
  return status({"fb_cancel"}, [&]() -> Result<void> {
    if (auto ok = usable(request); !ok) return ok;
    request->stop.request_stop();
    return {};
  });
}
