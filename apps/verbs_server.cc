#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "assembly/build.h"
#include "assembly/run_dir.h"
#include "assembly/units.h"
#include "launch.h"
#include "progress.h"
#include "serve_options.h"
#include "verbs.h"

namespace forebay {
namespace {

// ---- start ----

std::string where_it_runs(const Config& config) {
  return config.server.run_dir.empty() ? default_run_dir()
                                       : std::filesystem::absolute(config.server.run_dir).string();
}

void tell_started(const std::string& run_dir, const std::string& log) {
  const auto published = read_published(run_dir);
  if (!published) return;
  for (const auto& e : published->exports) fmt::print("Serving {} as \"{}\"\n", e.what, e.name);
  fmt::print("  pid {}, listening on {}\n", published->pid,
             fmt::join(published->addresses, " and "));
  fmt::print("  log {}\n\n", log);
  if (run_dir != default_run_dir())
    fmt::print("It is not in the usual place, so say where:\n  export FOREBAY_CLIENT_SERVER={}\n\n",
               run_dir);
  const std::string some =
      published->exports.size() > 1 ? "--export " + published->exports.front().name + " " : "";
  fmt::print("Try   forebay {}put FILE,  forebay {}ls -l,  forebay status\nStop  forebay stop\n",
             some, some);
}

int run_start(Cli& cli, const ServeOptions& options) {
  ConfigSources& sources = cli.sources();
  const auto more = options.overrides();
  sources.overrides.insert(sources.overrides.end(), more.begin(), more.end());
  const Config& config = cli.config();
  if (config.exports.empty()) {
    cli.complain(
        "nothing to serve: name a directory, or describe an [export.NAME] in the configuration");
    return kExitUsage;
  }
  const std::string run_dir = where_it_runs(config);
  if (auto made = make_run_dir(run_dir); !made)
    return cli.complain(made.error().what()), kExitFailed;
  const std::string log =
      config.server.log_file.empty() ? run_dir + "/forebayd.log" : config.server.log_file;
  std::vector<std::string> arguments;
  if (!sources.file.empty()) arguments = {"--config", std::filesystem::absolute(sources.file)};
  for (const auto& [key, value] : sources.overrides)
    arguments.insert(arguments.end(), {"--set", key + "=" + value});
  arguments.insert(arguments.end(), {"--set", "server.run_dir=" + run_dir});
  const auto launched = launch_server(arguments, log, Background::detached);
  if (!launched) return cli.complain(launched.error().what()), kExitFailed;
  tell_started(run_dir, log);
  return kExitOk;
}

void add_start(Cli& cli) {
  auto options = std::make_shared<std::shared_ptr<ServeOptions>>();
  CLI::App* sub = cli.add("start", "start a server in the background",
                          [options](Cli& c) { return run_start(c, **options); });
  *options = add_serve_options(*sub);
  ServerConfig defaults;
  add_keys(*sub, "server", describe(defaults), cli.sources().overrides);
  sub->footer(
      "Returns when the server can be reached, or says why it cannot.\n\nExamples:\n"
      "  forebay start /scratch\n"
      "  forebay start --export home=/home/me --export scratch=/scratch\n"
      "  forebay start /scratch --run-dir /tmp/fb --set export.data.pool=256MiB");
}

// ---- stop ----

struct StopOptions {
  std::string run_dir;
  bool now = false;
};

Config config_for(Cli& cli, const std::string& run_dir) {
  if (!run_dir.empty()) cli.sources().overrides.emplace_back("client.server", run_dir);
  return cli.config();
}

int no_address(const Cli& cli, const Error& why) {
  cli.complain(why.what());
  return why.code() == EINVAL ? kExitUsage : kExitUnreachable;  // EINVAL: not well said
}

bool wait_until_gone(Cli& cli, const std::string& run_dir) {
  using namespace std::chrono;
  const auto began = steady_clock::now();
  bool told = false;
  while (server_in(run_dir)) {
    if (interrupted()) return false;
    if (!told && steady_clock::now() - began > seconds(2)) {
      cli.complain("waiting for requests under way (--now drops them)");
      told = true;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

int run_stop(Cli& cli, const StopOptions& options) {
  const Config config = config_for(cli, options.run_dir);
  const std::string run_dir = client_run_dir(config);
  const auto pid = server_in(run_dir);
  if (options.now) {
    if (!pid) return cli.complain("no server of yours is running in " + run_dir), kExitUnreachable;
    if (::kill(*pid, SIGQUIT) != 0) return cli.complain(Error(errno)), kExitFailed;
  } else {
    const auto address = server_address(config);
    if (!address) return no_address(cli, address.error());
    const auto asked = ask_server(config, *address, "stop");
    const bool answered = asked || asked.error().code() == EPERM;
    if (!asked && (answered || !pid || ::kill(*pid, SIGTERM) != 0))
      return cli.complain(asked.error()), answered ? kExitFailed : kExitUnreachable;
  }
  catch_interrupts();
  if (!wait_until_gone(cli, run_dir)) return kExitFailed;
  fmt::print("Stopped{}\n", pid ? fmt::format(" (pid {})", *pid) : "");
  return kExitOk;
}

void add_stop(Cli& cli) {
  auto options = std::make_shared<StopOptions>();
  CLI::App* sub = cli.add("stop", "stop a server, after the requests under way",
                          [options](Cli& c) { return run_stop(c, *options); });
  sub->add_option("--run-dir", options->run_dir, "where it runs")->option_text("DIRECTORY");
  sub->add_flag("--now", options->now, "drop the requests under way");
}

// ---- status ----

std::string bytes(const Json& json) {
  return about_size(static_cast<uint64_t>(json.integer()));
}
std::string sum(const Json& a, const Json& b) {
  return about_size(static_cast<uint64_t>(a.integer() + b.integer()));
}
std::string microseconds(const Json& json) {
  return fmt::format("{:.0f} us", json.number());
}
std::string number(const Json& json) {
  return std::to_string(json.integer());
}

void show_scheduler(const Json& exported) {
  const Json& s = exported["scheduler"];
  if (s["requests"].integer() == 0) return;
  fmt::print(
      "{}: {} ({}); {:.1f} requests per batch, {} waiting, latency {:.0f} us, 99 % {:.0f} us\n",
      exported["name"].text(), s["policy"].text(), s["why"].text(),
      s["requests_per_batch"].number(), s["waiting"].integer(), s["latency_us"]["p50"].number(),
      s["latency_us"]["p99"].number());
}

void show_sieve(const Json& exported) {
  const Json& s = exported["sieve"];
  if (s["windows"].integer() == 0) return;
  fmt::print("{}: {} scattered reads and {} writes went as {} larger ones, {} in all\n",
             exported["name"].text(), s["reads"].integer(), s["writes"].integer(),
             s["windows"].integer(), bytes(s["bytes"]));
}

void show_write_behind(const Json& exported) {
  const Json& s = exported["write_behind"];
  if (s["writes"].integer() == 0) return;
  fmt::print(
      "{}: write-behind: {} writes, {:.1f} in a batch; {} of {} in use, {} files dirty, {}\n",
      exported["name"].text(), s["writes"].integer(), s["writes_per_batch"].number(),
      bytes(s["memory"]), bytes(s["limit"]), s["dirty_files"].integer(),
      s["lost_bytes"].integer() == 0 ? "nothing lost" : bytes(s["lost_bytes"]) + " LOST");
}

void show_state(const Json& exported) {
  const Json& s = exported["state"];
  if (s["attributes"].integer() + s["appends"].integer() + s["holes"].integer() == 0) return;
  fmt::print("{}: {} attributes of {} files, {} appends, {}{}\n", exported["name"].text(),
             s["attributes"].integer(), s["files"].integer(), s["appends"].integer(),
             s["holes"].integer() == 0 ? "no hole" : fmt::format("{} HOLES", s["holes"].integer()),
             s["journal"]["failing"].boolean() ? "; the journal CANNOT BE WRITTEN" : "");
}

void show_shortcuts(const Json& exported) {
  const Json& s = exported["shortcuts"];
  if (s["granted"].integer() == 0) return;
  fmt::print(
      "{}: shortcuts: lent to clients on this node, which then read and write themselves: {} now, "
      "{} in all, {} wanted back\n",
      exported["name"].text(), s["out"].integer(), s["granted"].integer(),
      s["wanted_back"].integer());
}

void show_exports(const Json& status) {
  std::vector<std::vector<std::string>> rows = {
      {"EXPORT", "WHAT", "REQUESTS", "FAILED", "UNDER WAY", "WRITTEN", "READ", "BUFFERS"}};
  for (const Json& e : status["exports"].array()) {
    int64_t requests = 0;
    for (const auto& [name, count] : e["ops"].object()) requests += count.integer();
    const Json& pool = e["pool"];
    rows.push_back({printable(e["name"].text()), printable(e["what"].text()),
                    std::to_string(requests), number(e["errors"]), number(e["flights"]),
                    sum(e["bytes_in"], e["shortcuts"]["use"]["bytes_written"]),
                    sum(e["bytes_out"], e["shortcuts"]["use"]["bytes_read"]),
                    fmt::format("{} of {}", pool["in_use"].integer(), pool["buffers"].integer())});
  }
  fmt::print("\n{}", columns(rows, "<<>>>>>>"));
  for (const Json& e : status["exports"].array()) {
    show_scheduler(e);
    show_sieve(e);
    show_write_behind(e);
    show_shortcuts(e);
    show_state(e);
  }
}

void show_servers(const Json& status) {
  std::vector<std::vector<std::string>> rows = {
      {"SERVER", "EXPORT", "STATE", "RELAYED TO IT", "UNDER WAY"}};
  for (const Json& e : status["exports"].array()) {
    for (const Json& s : e["cluster"]["servers"].array()) {
      rows.push_back({printable(s["name"].text()), printable(e["name"].text()), s["state"].text(),
                      number(s["relayed"]), number(s["under_way"])});
    }
  }
  if (rows.size() > 1) fmt::print("\n{}", columns(rows, "<<<>>"));
}

void show_sessions(const Json& status) {
  std::vector<std::vector<std::string>> rows = {{"CLIENT", "PROGRAM", "USER", "JOB", "EXPORT",
                                                 "REQUESTS", "ITSELF", "UNDER WAY", "WRITTEN",
                                                 "READ", "LATENCY", "99 %"}};
  for (const Json& s : status["sessions"].array()) {
    const Json& itself = s["by_shortcut"];
    rows.push_back({fmt::format("{} {}{}", printable(s["host"].text()), s["pid"].integer(),
                                s["connected"].boolean() ? "" : " (lost)"),
                    printable(s["program"].text()),
                    user_name(static_cast<uint32_t>(s["uid"].integer())),
                    s["job"].text().empty() ? "-" : printable(s["job"].text()), s["export"].text(),
                    number(s["requests"]),
                    std::to_string(itself["reads"].integer() + itself["writes"].integer()),
                    number(s["flights"]), sum(s["bytes_in"], itself["bytes_written"]),
                    sum(s["bytes_out"], itself["bytes_read"]), microseconds(s["latency_us"]["p50"]),
                    microseconds(s["latency_us"]["p99"])});
  }
  if (rows.size() == 1)
    fmt::print("\nNo clients.\n");
  else
    fmt::print(
        "\n{}REQUESTS and their LATENCY are the server's; ITSELF: what the client did by "
        "shortcuts,\n"
        "which WRITTEN and READ include.\n",
        columns(rows, "<<<<<>>>>>>>"));
}

void show_status(const Json& status, const std::string& addresses) {
  const auto uptime = std::chrono::duration<double>(status["uptime_seconds"].number());
  fmt::print("{}{}: pid {}, up {}\nlistening on {}\n", status["name"].text(),
             status["stopping"].boolean() ? " (stopping)" : "", status["pid"].integer(),
             about_duration(std::chrono::duration_cast<Duration>(uptime)), addresses);
  show_exports(status);
  show_servers(status);
  show_sessions(status);
}

int run_status(Cli& cli, const std::string& run_dir, bool json) {
  const Config config = config_for(cli, run_dir);
  const auto address = server_address(config);
  if (!address) return no_address(cli, address.error());
  const auto answer = ask_server(config, *address, "status");
  if (!answer) return cli.complain(answer.error()), kExitUnreachable;
  const auto status = Json::parse(*answer);
  if (!status) return cli.complain(status.error()), kExitFailed;
  std::string addresses = address->text();
  if (const auto published = read_published(client_run_dir(config)))
    addresses = fmt::format("{}", fmt::join(published->addresses, " and "));
  if (json)
    print_json(*status);
  else
    show_status(*status, addresses);
  return kExitOk;
}

void add_status(Cli& cli) {
  struct Options {
    std::string run_dir;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* sub = cli.add("status", "show a server's exports and clients", [options](Cli& c) {
    return run_status(c, options->run_dir, options->json);
  });
  sub->add_option("--run-dir", options->run_dir, "where it runs")->option_text("DIRECTORY");
  sub->add_flag("--json", options->json, "for programs");
}

}  // namespace

void add_server_verbs(Cli& cli) {
  add_start(cli);
  add_stop(cli);
  add_status(cli);
}

}  // namespace forebay
