#include "bench/relay_row.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

#include "assembly/build.h"
#include "assembly/json.h"
#include "bench/shared_file.h"
#include "client/remote_store.h"
#include "core/types.h"

namespace forebay::bench {

namespace {

constexpr const char* kKey = "a key for two servers of one benchmark, and of nobody else's";

std::string free_address() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  const bool good = ::bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0 &&
                    ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0;
  ::close(fd);
  if (!good) throw std::runtime_error("no free port");
  return fmt::format("tcp:127.0.0.1:{}", ntohs(name.sin_port));
}

// Two servers of one directory, that know each other by a key.
class Pair {
 public:
  explicit Pair(const std::string& scratch)
      : key_(scratch + "/key"), addresses_{free_address(), free_address()} {
    std::filesystem::create_directories(scratch + "/export");
    std::ofstream(key_) << kKey;
    std::filesystem::permissions(key_, std::filesystem::perms(0600));
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const std::vector<Override> settings{
          {"export.bench.path", scratch + "/export"},
          {"server.name", i == 0 ? "a" : "b"},
          {"server.listen", "unix," + addresses_[i]},
          {"server.key_file", key_},
          {"cluster.servers", fmt::format("a={},b={}", addresses_[0], addresses_[1])}};
      beds_[i] =
          std::make_unique<Bed>(fmt::format("{}/{}", scratch, i), "posix", 64_MiB, false, settings);
    }
  }

  pid_t server(size_t i) const { return beds_[i]->server(); }
  Result<std::unique_ptr<Store>> near() const { return beds_[0]->connect(Socket::unix_socket); }
  // As the first server reaches the second one.
  Result<std::unique_ptr<Store>> far() const {
    Config config;
    config.client.server = addresses_[1];
    config.client.key_file = key_;
    config.client.export_name = "bench";
    auto store = forebay::connect(config, "bench");
    if (!store) return std::move(store).error();
    return std::unique_ptr<Store>(std::move(*store));
  }

  // Attributes that a server keeps.
  double kept(size_t i) const {
    Config config;
    config.client.server = beds_[i]->run_dir();
    const auto status = must(control(must(server_address(config)), "status",
                                     std::chrono::seconds(10), real_runtime(nullptr)));
    return must(Json::parse(status))["exports"].array().front()["state"]["attributes"].number();
  }

 private:
  const std::string key_;
  const std::array<std::string, 2> addresses_;
  std::array<std::unique_ptr<Bed>, 2> beds_;
};

// A file that lives at this one of the two.
std::string file_at(const Pair& pair, size_t home) {
  const auto store = must(pair.near());
  for (int i = 0; i < 64; ++i) {
    const std::string name = fmt::format("f{}-{}", home, i);
    const double before = pair.kept(home);
    SharedFile(*store, name).make_number();
    if (pair.kept(home) > before) return name;
  }
  throw std::runtime_error("all files live at one server");
}

using Connect = std::function<Result<std::unique_ptr<Store>>()>;

double p50(const BenchOptions& options, Side& side, pid_t server, const Connect& connect,
           const std::string& name, bool adds) {
  double figure = 0;
  const Worker worker = [&](int, const std::function<void()>& go, Shared& out) {
    const auto store = must(connect());
    const SharedFile file(*store, name);
    uint64_t last = file.number();
    const Request request = adds ? file.add() : file.request(Op::getattr);
    go();
    time_calls(options.seconds, out, [&] {
      const Result<Reply> reply = store->call(request);
      return reply && (!adds || reply->value == last++);
    });
  };
  measure(side, server, 1, worker, [&](const FleetResult& f) { return figure = f.p50 * 1e6; });
  return figure;
}

}  // namespace

Row relay_row(const std::string& scratch, const BenchOptions& options) {
  const Pair pair(scratch + "/relay");
  const std::string here = file_at(pair, 0), there = file_at(pair, 1);
  const Connect near = [&] { return pair.near(); }, far = [&] { return pair.far(); };
  Side us, them, first, second;
  for (int round = 0; round < options.rounds; ++round) {
    (void)p50(options, us, pair.server(0), near, there, true);
    them.figures.push_back(p50(options, first, pair.server(0), near, here, false) +
                           p50(options, second, pair.server(1), far, there, false));
  }
  Row row;
  row.id = "fetch-add-relay";
  row.what = "fetch-and-add, p50, 1 client, at another server than it talks to";
  row.against = "two round trips: a getattr by a socket, and one by TCP with a key";
  them.cpu = us.cpu;  // of three processes: not compared
  them.verified = first.verified && second.verified;
  compare(row, us, them, true);
  row.cpu_ratio = row.cpu = row.their_cpu = std::nullopt;
  row.unit = "us";
  row.at_least = 0.67;
  return row;
}

}  // namespace forebay::bench
