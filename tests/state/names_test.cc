// Names that are made, changed and removed through a server that is killed and started again all
// the time: each request is done once (README.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <mutex>
#include <thread>

#include "restarting_server.h"

namespace forebay {
namespace {

constexpr unsigned kNamers = 4, kNamerThreads = 3;

unsigned rounds() {
  const char* const given = std::getenv("FOREBAY_TORTURE");
  return 300 / (kSlowness + 4) * (given ? static_cast<unsigned>(std::atoi(given)) : 1);
}

struct Outcomes {
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<std::array<unsigned, 3>> winners;  // of each round: a create, a rename, a remove
  uint64_t done = 0;
};

class Namer {
 public:
  Namer(const RestartingServer& server, Outcomes& told)
      : told_(told), store_(server.connect().value()), root_(store_->root().value()) {}

  // Everything that nobody else does must succeed; of what all try, one.
  void work(const std::string& mine, unsigned most) {
    for (unsigned n = 0; n < most; ++n) {
      const std::string a = fmt::format("{}.{}.a", mine, n), b = a + "b", d = a + "d";
      const auto file = make(a);
      must("create", file);
      if (!file) return;
      must("write", write(*file, a));
      must("close", close(*file));
      must("link", call(Op::link, file->handle, "", b));
      must("mkdir", call(Op::mkdir, root_, d, "", 0700));
      must("rename", call(Op::rename, root_, a, d + ".moved"));
      must("rename back", call(Op::rename, root_, d + ".moved", a));
      must("remove", call(Op::remove, root_, b));
      must("rmdir", call(Op::remove, root_, d, "", 0, kFlagDirectory));
      const Result<Reply> locked = make(fmt::format("lock.{}", n));
      if (locked) must("close", close(*locked));
      one(n, 0, "create", locked, EEXIST);
      one(n, 1, "rename", call(Op::rename, root_, fmt::format("token.{}", n), mine + ".token"),
          ENOENT);
      one(n, 2, "remove", call(Op::remove, root_, fmt::format("gone.{}", n)), ENOENT);
    }
  }

 private:
  Result<Reply> call(Op op, const Handle& handle, const std::string& name,
                     const std::string& name2 = "", uint32_t mode = 0, uint32_t flags = 0) {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle;
    r.name = name;
    if (!name2.empty()) r.handle2 = root_;
    r.name2 = name2;
    r.mode = mode;
    r.flags = flags;
    return store_->call(std::move(r));
  }
  Result<Reply> make(const std::string& name) {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = root_;
    r.name = name;
    r.mode = 0600;
    r.access = Access::both;
    r.flags = kFlagExclusive;
    return store_->call(std::move(r));
  }
  Result<Reply> write(const Reply& file, const std::string& text) {
    Request r;
    r.op = Op::write;
    r.caller = caller_;
    r.handle = file.handle;
    r.right = file.right;
    r.file = Extents({Offset(0), Length(text.size())});
    r.memory = Memory::of(std::as_bytes(std::span(text)));
    return store_->call(std::move(r));
  }
  Result<Reply> close(const Reply& file) {
    Request r;
    r.op = Op::close;
    r.caller = caller_;
    r.handle = file.handle;
    r.right = file.right;
    return store_->call(std::move(r));
  }
  void must(const char* what, const Result<Reply>& result) {
    std::lock_guard lock(told_.mutex);
    result ? void(++told_.done)
           : told_.errors.push_back(fmt::format("{}: {}", what, result.error().message()));
  }
  void one(unsigned round, size_t kind, const char* what, const Result<Reply>& result, int other) {
    std::lock_guard lock(told_.mutex);
    if (result) return void(++told_.winners[round][kind]);
    if (result.error().code() == other && !result.error().is_outcome_unknown()) return;
    told_.errors.push_back(fmt::format("{} of all: {}", what, result.error().message()));
  }

  Outcomes& told_;
  const CallerRef caller_ = this_process_caller();
  std::unique_ptr<RemoteStore> store_;
  const Handle root_;
};

void name_things(RestartingServer::Options options, unsigned most) {
  options.seed = test_seed();
  RestartingServer server(options);
  Outcomes told;
  told.winners.resize(most);
  for (unsigned n = 0; n < most; ++n) {
    std::ofstream(fmt::format("{}/token.{}", server.data(), n)) << n;
    std::ofstream(fmt::format("{}/gone.{}", server.data(), n)) << n;
  }
  std::vector<std::unique_ptr<Namer>> namers;
  for (unsigned i = 0; i < kNamers; ++i) namers.push_back(std::make_unique<Namer>(server, told));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kNamers * kNamerThreads; ++i) {
    threads.emplace_back([&, i] { namers[i % kNamers]->work(fmt::format("n{}", i), most); });
  }
  for (std::thread& thread : threads) thread.join();
  const unsigned kills = server.kills();
  server.calm();
  namers.clear();
  for (size_t i = 0; i < std::min<size_t>(told.errors.size(), 5); ++i) {
    ADD_FAILURE() << told.errors[i];
  }
  for (unsigned n = 0; n < most; ++n) {
    for (size_t kind = 0; kind < 3; ++kind) {
      EXPECT_EQ(told.winners[n][kind], 1u) << "round " << n << ", kind " << kind;
    }
  }
  for (unsigned i = 0; i < kNamers * kNamerThreads; ++i) {
    for (unsigned n = 0; n < most; ++n) {
      const std::string name = fmt::format("n{}.{}.a", i, n);
      std::ifstream in(server.data() + "/" + name);
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      ASSERT_EQ(text, name);
    }
  }
  fmt::print("{} changes, {} rounds of all, {} kills\n", told.done, most, kills);
}

TEST(Names, AreChangedOnceByKilledServers) {
  name_things({}, rounds());
}

TEST(Names, WithEveryIntentOnTheDisk) {
  name_things({.sync = true}, rounds() / 4 + 1);
}

}  // namespace
}  // namespace forebay
