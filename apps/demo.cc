// forebay demo: a server on a scratch directory, eight processes that share a file through it, and
// the same work done directly, in one table. Leaves nothing behind, also when interrupted.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "assembly/build.h"
#include "assembly/run_dir.h"
#include "assembly/units.h"
#include "copy.h"
#include "demo_work.h"
#include "launch.h"
#include "progress.h"
#include "store/path.h"
#include "verbs.h"

namespace forebay {
namespace {

class Scratch {
 public:
  explicit Scratch(const std::string& parent) : path_(parent + "/forebay-demo-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The demonstration's own server: it dies with us, whatever happens.
class OwnServer {
 public:
  explicit OwnServer(int pid) : pid_(pid) {}
  OwnServer(const OwnServer&) = delete;
  ~OwnServer() {
    ::kill(pid_, SIGTERM);
    for (int i = 0; i < 500 && ::waitpid(pid_, nullptr, WNOHANG) == 0; ++i) {
      if (i == 400) ::kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  int pid_;
};

// A file of the server, with interleaved blocks as strided lists.
class ForwardedFile final : public DemoFile {
 public:
  ForwardedFile(std::unique_ptr<Store> store, CallerRef caller, OpenFile file)
      : store_(std::move(store)), caller_(std::move(caller)), file_(std::move(file)) {}
  ~ForwardedFile() override { close_file(*store_, caller_, file_); }

  Result<void> write(const DemoPattern& p, unsigned rank, uint64_t first,
                     std::span<const std::byte> data) override {
    return move(Op::write, p, rank, first, Memory::of(data));
  }
  Result<void> read(const DemoPattern& p, unsigned rank, uint64_t first,
                    std::span<std::byte> data) override {
    return move(Op::read, p, rank, first, Memory::of(data));
  }

 private:
  Result<void> move(Op op, const DemoPattern& p, unsigned rank, uint64_t first, Memory memory) {
    const uint64_t total = memory.shape.total().value;
    const uint64_t stride = p.processes * p.block;
    auto blocks = Extents::make({{Offset(first * stride + rank * p.block), Length(p.block)}},
                                {{p.blocks_at_once, static_cast<int64_t>(stride)}});
    if (!blocks) return blocks.error();
    auto reply = store_->call({.op = op,
                               .caller = caller_,
                               .handle = file_.handle,
                               .right = file_.right,
                               .file = std::move(*blocks),
                               .memory = std::move(memory)});
    if (!reply) return reply.error();
    if (reply->count != total) return Error(EIO, "cut short");
    return {};
  }

  std::unique_ptr<Store> store_;
  CallerRef caller_;
  OpenFile file_;
};

OpenDemoFile forwarded_file(const Config& config, const std::string& name) {
  return [config, name]() -> Result<std::unique_ptr<DemoFile>> {
    auto store = connect(config, "forebay demo");
    if (!store) return store.error();
    const CallerRef caller = this_process_caller();
    auto root = (*store)->root();
    if (!root) return root.error();
    auto made = (*store)->call({.op = Op::create,
                                .caller = caller,
                                .handle = *root,
                                .name = name,
                                .access = Access::both,
                                .mode = 0644});
    if (!made) return made.error();
    return std::unique_ptr<DemoFile>(std::make_unique<ForwardedFile>(
        std::move(*store), caller, OpenFile{std::move(made->handle), std::move(made->right)}));
  };
}

struct Row {
  std::string what;
  DemoPattern pattern;
  DemoTimes forwarded, direct;
};

class Demo {
 public:
  Demo(Cli& cli, const std::string& parent) : cli_(cli), scratch_(parent) {}

  int run() {
    if (scratch_.path().empty()) return failed(Error(errno, "cannot make a scratch directory"));
    catch_interrupts();
    const std::string data = scratch_.path() + "/data", run_dir = scratch_.path() + "/run";
    std::filesystem::create_directory(data);
    if (auto made = make_run_dir(run_dir); !made) return failed(made.error());
    fmt::print("1. A server (forebayd) serves the scratch directory {}\n", data);
    std::fflush(stdout);
    const auto launched =
        launch_server({"--run-dir", run_dir, "--export", "data=" + data, "--listen", "unix"},
                      scratch_.path() + "/log", Background::child);
    if (!launched) return cli_.complain(launched.error().what()), kExitFailed;
    const OwnServer server(launched->pid);
    config_.client.server = run_dir;
    for (Row& row : rows_) {
      if (auto done = measure(row, data); !done) return failed(done.error());
    }
    fmt::print("   Every byte was as written.\n\n");
    show_table();
    show_server();
    return kExitOk;
  }

 private:
  int failed(const Error& error) {
    if (!interrupted()) cli_.complain(error);
    return kExitFailed;
  }

  Result<void> measure(Row& row, const std::string& data) {
    const DemoPattern& p = row.pattern;
    if (&row == rows_.data())
      fmt::print(
          "2. {} processes write one shared file through it, in turns: block 1 from the first\n"
          "   process, block 2 from the second, and so on. Then each reads what another wrote and\n"
          "   checks every byte. Then the same directly, without a server.\n",
          p.processes);
    fmt::print("   - {} ({})\n", row.what, about_size(p.total()));
    std::fflush(stdout);
    auto forwarded = run_demo_work(p, forwarded_file(config_, "shared"), interrupted);
    if (!forwarded) return std::move(forwarded).error().at("through the server");
    row.forwarded = *forwarded;
    auto direct = run_demo_work(p, direct_file(data + "/direct"), interrupted);
    if (!direct) return std::move(direct).error().at("directly");
    row.direct = *direct;
    // The server's file is an ordinary one: compare it with the one written directly.
    if (auto same = compare(data + "/shared", data + "/direct"); !same) return same;
    std::filesystem::remove(data + "/shared");
    std::filesystem::remove(data + "/direct");
    return {};
  }

  static Result<void> compare(const std::string& a, const std::string& b) {
    std::error_code failed;
    if (std::filesystem::file_size(a, failed) == std::filesystem::file_size(b, failed) && !failed)
      return {};
    return Error(EIO, "the two files differ in size");
  }

  void show_table() const {
    auto rate = [](const DemoPattern& p, double seconds) {
      return fmt::format("{:.0f} MB/s", static_cast<double>(p.total()) / 1e6 / seconds);
    };
    std::vector<std::vector<std::string>> rows = {
        {"", "", "through Forebay", "directly", "Forebay / direct"}};
    for (const Row& row : rows_) {
      auto add = [&](const std::string& what, const char* kind, double ours, double theirs) {
        rows.push_back({what, kind, rate(row.pattern, ours), rate(row.pattern, theirs),
                        fmt::format("{:.2f}", theirs / ours)});
      };
      add(row.what, "write", row.forwarded.write_seconds, row.direct.write_seconds);
      add("", "read", row.forwarded.read_seconds, row.direct.read_seconds);
    }
    fmt::print("{}\n", columns(rows, "<<>>>"));
  }

  void show_server() const {
    const auto address = server_address(config_);
    if (!address) return;
    const auto answer = control(*address, "status", std::chrono::seconds(5), real_runtime(nullptr));
    const auto status = answer ? Json::parse(*answer) : Result<Json>(Json());
    if (!status || (*status)["exports"].array().empty()) return;
    const Json& e = (*status)["exports"].array().front();
    const Json& pool = e["pool"];
    const Json& lent = e["shortcuts"]["use"];
    fmt::print(
        "3. What the server saw: {} writes and {} reads, {} in and {} out, {} failed.\n"
        "   It moved all of it through {} of buffers. Files are also lent, for a while, to "
        "processes\n"
        "   of its own node: {} writes and {} reads they did themselves. The direct numbers are "
        "those\n"
        "   of this machine's page cache: there is no network and no parallel file system here to\n"
        "   relieve.\n",
        e["ops"]["write"].integer(), e["ops"]["read"].integer(),
        about_size(static_cast<uint64_t>(e["bytes_in"].integer())),
        about_size(static_cast<uint64_t>(e["bytes_out"].integer())), e["errors"].integer(),
        about_size(static_cast<uint64_t>(pool["buffer"].integer() * pool["buffers"].integer())),
        lent["writes"].integer(), lent["reads"].integer());
  }

  Cli& cli_;
  Scratch scratch_;
  Config config_;
  std::vector<Row> rows_ = {
      {"blocks of 64 KiB, one to a request", {.block = 64_KiB, .blocks = 512}, {}, {}},
      {"blocks of 4 KiB, 256 to a request",
       {.block = 4_KiB, .blocks = 8192, .blocks_at_once = 256},
       {},
       {}}};
};

}  // namespace

void add_demo_verbs(Cli& cli) {
  auto parent = std::make_shared<std::string>(std::filesystem::temp_directory_path().string());
  CLI::App* sub =
      cli.add("demo", "see eight processes share a file through a server", [parent](Cli& c) {
        const int code = Demo(c, *parent).run();  // and all is cleaned up
        if (code == kExitOk)
          fmt::print("\nThe server has been stopped and the scratch directory removed.\n");
        return code;
      });
  sub->add_option("--dir", *parent, "where to make the scratch directory")
      ->option_text("DIRECTORY");
}

}  // namespace forebay
