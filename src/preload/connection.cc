#include "preload/connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "assembly/config.h"

namespace forebay::preload {

Connection& Connection::get() {
  static Connection* const one = new Connection;
  return *one;
}

void Connection::begin(const Shim& shim) {
  shim_ = &shim;
  // Programs close standard error before they end.
  const char* const report = ::getenv("FOREBAY_REPORT");
  if (report && std::string_view(report) == "1") report_to_ = ::fcntl(2, F_DUPFD_CLOEXEC, 700);
  if (report_to_ >= 0) set_slot(shim_->slots, *shim_->slots_end, report_to_, kOwn);
}

Result<Store*> Connection::store() {
  if (Store* const now = store_.load(std::memory_order_acquire)) {
    // Forgotten by a forked child, which has a session of its own from here on.
    if (process_.load(std::memory_order_relaxed) == 0) process_.store(::getpid());
    return now;
  }
  std::lock_guard lock(mutex_);
  if (Store* const now = store_.load()) return now;
  auto config = load_config(ConfigSources::of_process());
  if (!config) {
    complain("configuration", config.error().what());
    return Error(EHOSTDOWN, config.error().what());
  }
  auto made = connect(*config, program_invocation_short_name);
  if (!made) {
    complain("connection", made.error().message());
    // As any other error it would be mistaken for one of the file.
    return Error(EHOSTDOWN, made.error().what());
  }
  process_.store(::getpid());
  store_.store(made->release());
  return store_.load();
}

Result<Reply> Connection::call(Request&& request) {
  const Use use;
  if (!use) return use.error();
  counts_.calls.fetch_add(1, std::memory_order_relaxed);
  Result<Reply> reply = use->call(std::move(request));
  if (!reply) {
    switch (reply.error().code()) {
      case EHOSTDOWN:
      case EHOSTUNREACH:
      case ECONNREFUSED:
      case ECONNRESET:
      case ETIMEDOUT:
      case ENOTCONN:
      case EIO:
        complain("server", reply.error().message());
        break;
      default:
        break;
    }
  }
  return reply;
}

CallerRef Connection::caller() {
  CallerRef* now = caller_.load(std::memory_order_acquire);
  if (now && (*now)->uid == ::geteuid() && (*now)->gid == ::getegid()) return *now;
  // Programs change who they are rarely, and somebody may still look at the old one: it stays.
  auto* const fresh = new CallerRef(this_process_caller());
  caller_.store(fresh, std::memory_order_release);
  return *fresh;
}

void Connection::complain(std::string_view what, const std::string& text) {
  static std::atomic<uint32_t> said{0};
  const uint32_t bit = what == "configuration" ? 1
                       : what == "connection"  ? 2
                       : what == "server"      ? 4
                                               : 0;
  if (bit && (said.fetch_or(bit) & bit)) return;
  std::string line = fmt::format("forebay: {}: {}", program_invocation_short_name, text);
  for (char& c : line)
    if (c == '\n') c = ' ';
  line += '\n';
  shim_->say(line.c_str());
}

void Connection::after_fork_in_child() {
  busy_.store(0);
  process_.store(0);
  reported_ = false;
  for (auto* one :
       {&counts_.opened, &counts_.read, &counts_.written, &counts_.calls, &counts_.failed})
    one->store(0);
}

bool Connection::connected_here() const {
  return store_.load() != nullptr && process_.load() == ::getpid();
}

void Connection::leave() {
  report();
  if (process_.load() != ::getpid()) return;  // the session is our parent's
  if (!mutex_.try_lock()) return;
  Store* const store = store_.exchange(nullptr);
  if (store && busy_.load() != 0)
    store_.store(store);
  else
    delete store;
  mutex_.unlock();
}

void Connection::report_so_far() {
  report();
  reported_ = false;
  for (auto* one :
       {&counts_.opened, &counts_.read, &counts_.written, &counts_.calls, &counts_.failed})
    one->store(0);
}

void Connection::report() {
  const char* const where = ::getenv("FOREBAY_REPORT");
  if (!where || !*where || counts_.calls.load() + counts_.failed.load() == 0) return;
  if (std::exchange(reported_, true)) return;
  const std::string line = fmt::format(
      "forebay: {} {}: {} files opened, {} bytes read, {} written, {} requests, {} calls failed\n",
      program_invocation_short_name, ::getpid(), counts_.opened.load(), counts_.read.load(),
      counts_.written.load(), counts_.calls.load(), counts_.failed.load());
  const int file =
      report_to_ >= 0 ? report_to_ : ::open(where, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  (void)!::write(file, line.data(), line.size());
  if (file != report_to_) ::close(file);
}

}  // namespace forebay::preload
