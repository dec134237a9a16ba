// forebayd: the server, in the foreground. SIGTERM and SIGINT drain it; a second one, or SIGQUIT,
// ends it at once.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "assembly/host.h"
#include "assembly/units.h"
#include "assembly/version.h"
#include "cli.h"
#include "core/log.h"
#include "launch.h"
#include "serve_options.h"
#include "usage.h"

namespace forebay {
namespace {

// For the Store's calls to end, after the drain.
constexpr auto kLastWait = std::chrono::seconds(5);

// A descriptor that threads of the server poke to wake the main thread.
class Event {
 public:
  Event() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Event() { ::close(fd_); }
  Event(const Event&) = delete;
  int fd() const { return fd_; }
  void poke() const {
    const uint64_t one = 1;
    (void)!::write(fd_, &one, sizeof one);
  }

 private:
  int fd_;
};

// Blocks the signals in every thread to come and hands them over by a descriptor.
int take_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit is that client's EFBIG
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC);
}

// Every session and every open file costs a descriptor; the soft limit is for programs that
// select().
void raise_descriptor_limit() {
  struct rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

log::Level level_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"debug", "info", "warn", "error", "off"};
  for (int i = 0; i < 5; ++i)
    if (kNames[i] == name) return static_cast<log::Level>(i);
  return log::Level::info;
}

// Runs until told to stop and drained.
int serve(ServerHost& host, const Config& config, int signals, const Event& stop_request) {
  Event drained;
  bool draining = false;
  while (true) {
    struct pollfd fds[] = {
        {signals, POLLIN, 0}, {stop_request.fd(), POLLIN, 0}, {drained.fd(), POLLIN, 0}};
    if (::poll(fds, 3, -1) < 0) continue;
    if (fds[2].revents) return kExitOk;
    bool at_once = false;
    if (fds[0].revents) {
      struct signalfd_siginfo info = {};
      if (::read(signals, &info, sizeof info) != sizeof info) continue;
      at_once = draining || info.ssi_signo == SIGQUIT;
    } else {
      uint64_t pokes = 0;
      (void)!::read(stop_request.fd(), &pokes, sizeof pokes);
    }
    if (at_once) {
      log::warn("stopping at once: requests under way are lost");
      host.abandon();
      ::_exit(kExitFailed);
    }
    if (draining) continue;
    draining = true;
    log::info("stopping: finishing requests under way, at most {}",
              about_duration(config.server.drain));
    host.drain(config.server.drain, [&drained] { drained.poke(); });
  }
}

int fail(int ready, int code, const std::string& why) {
  fmt::print(stderr, "forebayd: {}\n", why);
  say_failed(ready, why);
  return code;
}

int run(const ConfigSources& sources, int ready) {
  const auto config = load_config(sources);
  if (!config) return fail(ready, kExitUsage, config.error().what());
  if (auto logging = log::init(level_of(config->server.log_level), config->server.log_file);
      !logging)
    return fail(ready, kExitUsage, error_text(logging.error()));
  const int signals = take_signals();
  raise_descriptor_limit();
  ::umask(0);  // modes are what clients ask for; their umask is theirs to apply
  Event stop_request;
  auto host = ServerHost::start(*config, [&stop_request] { stop_request.poke(); });
  if (!host) return fail(ready, kExitFailed, error_text(host.error()));
  for (const auto& e : (*host)->published().exports) log::info("serving {} as {}", e.what, e.name);
  for (const auto& address : (*host)->published().addresses) log::info("listening on {}", address);
  say_ready(ready);
  const int code = serve(**host, *config, signals, stop_request);
  // A back end that never answers would hold us here for ever, and with us the run directory.
  std::thread([] {
    std::this_thread::sleep_for(kLastWait);
    log::error("stopped with calls of the file system unanswered");
    ::_exit(kExitFailed);
  }).detach();
  host->reset();
  log::info("stopped");
  return code;
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  using namespace forebay;
  CLI::App app(
      "The Forebay server. It runs until it is told to stop; `forebay start` runs it in the "
      "background.",
      "forebayd");
  ConfigSources sources = ConfigSources::of_process();
  int ready = -1;
  app.set_help_flag("-h,--help", "say how to use this");
  app.set_version_flag("--version", std::string("forebayd ") + kVersionText);
  app.add_option("--ready-fd", ready, "a descriptor to write to when ready")->group("");
  add_config_options(app, sources);
  const auto options = add_serve_options(app);
  ServerConfig defaults;
  add_keys(app, "server", describe(defaults), sources.overrides);
  app.footer("Example:\n  forebayd /scratch --run-dir /tmp/fb --log-level debug");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(ready, kExitUsage, what_is_wrong(app, e) + "\nTry `forebayd --help`.");
  }
  const auto more = options->overrides();
  sources.overrides.insert(sources.overrides.end(), more.begin(), more.end());
  return run(sources, ready);
}
