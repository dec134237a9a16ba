// Several servers over one file system, each file with one home, and clients that reach one server
// each: what is done through one is seen through every other, at once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "cluster.h"

namespace forebay::sim {
namespace {

std::string pattern(std::mt19937_64& random, size_t size) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>('a' + random() % 26);
  return out;
}

class HomesTest : public testing::TestWithParam<When> {};

// A random history over random files, each step through a random server, against strings.
void live(Cluster& cluster) {
  std::mt19937_64& random = cluster.random;
  struct File {
    Handle handle;
    std::map<std::string, OpenFile> open;  // by server
    std::string content;
  };
  std::map<std::string, File> files;
  std::map<std::string, int> homes;
  for (int i = 0; i < 12; ++i) {
    const std::string name = fmt::format("f{}", i), via = cluster.any_server();
    const auto made = Program(cluster.client(via)).create(name);
    ASSERT_TRUE(made) << made.error().message();
    files[name] = {made->handle, {{via, *made}}, ""};
    ++homes[cluster.home_of(made->handle)];
  }
  EXPECT_GT(homes.size(), 1u);
  const auto opened = [&](File& file, const std::string& via) -> const OpenFile& {
    auto& open = file.open[via];
    if (open.right.empty()) open = Program(cluster.client(via)).open(file.handle).value();
    return open;
  };
  for (int step = 0; step < 400; ++step) {
    auto& [name, file] = *std::next(files.begin(), random() % files.size());
    const std::string via = cluster.any_server();
    Program program(cluster.client(via));
    const uint64_t offset = random() % 5000;
    const size_t size = 1 + random() % (step % 10 == 0 ? 100000 : 3000);
    SCOPED_TRACE(fmt::format("step {}: {} through {}", step, name, via));
    switch (random() % 7) {
      case 0:
      case 1: {
        const std::string bytes = pattern(random, size);
        const auto wrote = program.write(opened(file, via), offset, bytes);
        ASSERT_TRUE(wrote) << wrote.error().message();
        if (file.content.size() < offset + size) file.content.resize(offset + size);
        file.content.replace(offset, size, bytes);
        break;
      }
      case 2: {
        const auto got = program.read(opened(file, via), offset, size);
        ASSERT_TRUE(got) << got.error().message();
        const size_t from = std::min<size_t>(offset, file.content.size());
        ASSERT_TRUE(*got == file.content.substr(from, size));
        break;
      }
      case 3: {
        const auto found = program.call(Op::lookup, program.root(), name);
        ASSERT_TRUE(found) << found.error().message();
        ASSERT_EQ(found->attr.size, file.content.size());
        ASSERT_EQ(program.call(Op::getattr, file.handle)->attr.size, file.content.size());
        break;
      }
      case 4: {
        Request list;
        list.op = Op::readdir;
        list.handle = program.root();
        list.flags = kFlagPlus;
        list.length = Length(kMaxReaddirBytes);
        const auto listed = program.call(std::move(list));
        ASSERT_TRUE(listed) << listed.error().message();
        ASSERT_EQ(listed->entries.size(), files.size());
        for (const Entry& e : listed->entries)
          ASSERT_EQ(e.attr.size, files.at(e.name).content.size());
        break;
      }
      case 5: {
        Request r;
        r.op = Op::resize;
        r.handle = file.handle;
        r.length = Length(offset);
        ASSERT_TRUE(program.call(std::move(r)));
        file.content.resize(offset);
        break;
      }
      default: {
        if (random() % 2 == 0) {
          ASSERT_TRUE(program.close(opened(file, via), Op::commit));
        } else if (file.open.contains(via)) {
          ASSERT_TRUE(program.close(file.open[via]));
          file.open.erase(via);
        } else {
          const auto again = program.create(name, random() % 2 == 0 ? uint32_t{kFlagTruncate} : 0u);
          ASSERT_TRUE(again) << again.error().message();
          ASSERT_EQ(again->handle, file.handle);
          file.open[via] = *again;
          const auto now = program.call(Op::getattr, file.handle);
          ASSERT_TRUE(now->attr.size == 0 || now->attr.size == file.content.size());
          file.content.resize(now->attr.size);
        }
      }
    }
  }
}

TEST_P(HomesTest, WhatOneServerWasToldAllKnow) {
  Cluster cluster(test_seed(), {.behind = GetParam()});
  live(cluster);
}

TEST_P(HomesTest, LostConnectionsChangeNothing) {
  Cluster cluster(test_seed(), {.behind = GetParam()});
  cluster.network.set_cut_chance(0.01);
  live(cluster);
  cluster.network.set_cut_chance(0);
}

TEST_P(HomesTest, NamesComeAndGoThroughAnyServer) {
  Cluster cluster(test_seed(), {.behind = GetParam()});
  for (int i = 0; i < 30; ++i) {
    Program one(cluster.client(cluster.any_server())), two(cluster.client(cluster.any_server()));
    const auto file = one.create("x", kFlagExclusive);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ(two.create("x", kFlagExclusive).error().code(), EEXIST);
    ASSERT_TRUE(one.write(*file, 0, "hello"));
    Request rename;
    rename.op = Op::rename;
    rename.handle = rename.handle2 = two.root();
    rename.name = "x";
    rename.name2 = "y";
    ASSERT_TRUE(two.call(std::move(rename)));
    EXPECT_EQ(one.call(Op::lookup, one.root(), "y")->attr.size, 5u);
    ASSERT_TRUE(two.call(Op::remove, two.root(), "y"));
    // Open, so it is still there for whoever has it open.
    EXPECT_EQ(*one.read(*file, 0, 10), "hello");
    ASSERT_TRUE(one.close(*file));
    EXPECT_EQ(one.call(Op::lookup, one.root(), "y").error().code(), ENOENT);
  }
}

// Overlapping writes through different servers at the same time: none is torn.
TEST_P(HomesTest, NothingIsTorn) {
  Cluster cluster(test_seed(), {.behind = GetParam()});
  const std::vector<std::string> servers = {"a", "b", "c"};
  for (const size_t size : {size_t(1000), size_t(100000), size_t(250000)}) {
    for (int round = 0; round < 6; ++round) {
      std::vector<OpenFile> open;
      const std::string name = fmt::format("t{}.{}", size, round);
      open.push_back(Program(cluster.client("a")).create(name).value());
      for (const char* other : {"b", "c"})
        open.push_back(Program(cluster.client(other)).open(open[0].handle).value());
      std::vector<std::string> bytes;
      int left = 0;
      for (size_t i = 0; i < 6; ++i) bytes.push_back(std::string(size, static_cast<char>('0' + i)));
      for (size_t i = 0; i < 6; ++i) {
        Program program(cluster.client(servers[i % 3]));
        Request r = program.transfer(Op::write, open[i % 3], 0, bytes[i]);
        ++left;
        program.store().submit(std::move(r), [&](Result<Reply>&& result) {
          EXPECT_TRUE(result) << result.error().message();
          --left;
        });
      }
      cluster.loop.run_until([&] { return left == 0; }, 1min);
      ASSERT_EQ(left, 0);
      const std::string got = *Program(cluster.client("b")).read(open[1], 0, size);
      EXPECT_TRUE(got == std::string(size, got[0])) << "torn, " << size << " bytes";
    }
  }
}

// Requests that are larger than all memory of both servers, from each to the other, at once, with
// pools of the fewest buffers: nobody holds what another waits for.
TEST_P(HomesTest, LargeRequestsThatCrossDoNotWaitForEachOther) {
  Cluster cluster(test_seed(), {GetParam(), {"a", "b"}, 256_KiB, 64_KiB});
  struct Crossing {
    OpenFile file;
    std::string bytes, got;
    Extents extents;
  };
  std::vector<std::unique_ptr<Crossing>> all;
  for (int i = 0; all.size() < 24; ++i) {
    const std::string via = all.size() % 2 == 0 ? "a" : "b";
    const OpenFile file = Program(cluster.client(via)).create(fmt::format("x{}", i)).value();
    if (cluster.home_of(file.handle) == via) continue;
    auto one = std::make_unique<Crossing>();
    one->file = file;
    one->bytes = pattern(cluster.random, 1000000);
    std::vector<Extent> pieces;
    if (all.size() % 3 == 0) {  // in so many pieces that each chunk has a long list at its home
      for (uint64_t at = 0; at < one->bytes.size(); at += 100)
        pieces.push_back({Offset(2 * at), Length(100)});
    } else {
      pieces.push_back({Offset(7), Length(one->bytes.size())});
    }
    one->extents = Extents::make(pieces).value();
    one->got.assign(one->bytes.size(), '?');
    all.push_back(std::move(one));
  }
  const Time began = cluster.loop.now();
  for (const Op op : {Op::write, Op::read}) {
    size_t left = all.size();
    for (size_t i = 0; i < all.size(); ++i) {
      Program program(cluster.client(i % 2 == 0 ? "a" : "b"));
      Crossing& one = *all[i];
      Request r = program.transfer(op, one.file, 0, op == Op::write ? one.bytes : one.got);
      r.file = one.extents;
      program.store().submit(std::move(r), [&](Result<Reply>&& result) {
        EXPECT_TRUE(result) << result.error().message();
        --left;
      });
    }
    cluster.loop.run_until([&] { return left == 0; }, 10min);
    ASSERT_EQ(left, 0u);
  }
  EXPECT_LT(cluster.loop.now() - began, 20s) << "somebody has waited for a deadline";
  for (const auto& one : all) EXPECT_TRUE(one->got == one->bytes);
}

INSTANTIATE_TEST_SUITE_P(Behind, HomesTest, testing::Values(When::never, When::always),
                         [](const auto& of) {
                           return of.param == When::never ? "Through" : "Behind";
                         });

TEST(Homes, ADeadHomeIsToldAndComesBack) {
  Cluster cluster(test_seed());
  Program program(cluster.client("a"));
  std::map<std::string, OpenFile> files;  // by home
  for (int i = 0; files.size() < 3; ++i) {
    const OpenFile file = program.create(fmt::format("f{}", i)).value();
    ASSERT_TRUE(program.write(file, 0, "alive"));
    files[cluster.home_of(file.handle)] = file;
  }
  cluster.kill("b");
  const Time before = cluster.loop.now();
  const auto refused = program.read(files["b"], 0, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), EHOSTDOWN) << refused.error().message();
  EXPECT_NE(refused.error().what().find("the file lives at server 'b'"), std::string::npos);
  EXPECT_LT(cluster.loop.now() - before, 10s);
  EXPECT_EQ(*program.read(files["a"], 0, 5), "alive") << "others are served";
  EXPECT_EQ(*program.read(files["c"], 0, 5), "alive");
  const auto lost = program.write(files["b"], 0, "dead!");
  EXPECT_EQ(lost.error().code(), EHOSTDOWN);
  cluster.start("b", {"a", "b", "c"});
  EXPECT_EQ(*program.read(files["b"], 0, 5), "alive");
  ASSERT_TRUE(program.write(files["b"], 0, "again"));
  EXPECT_EQ(*Program(cluster.client("c")).read(files["b"], 0, 5), "again");
}

TEST(Homes, ADifferingListIsRefused) {
  Cluster cluster(test_seed());
  Program program(cluster.client("a"));
  std::optional<OpenFile> there;
  for (int i = 0; !there; ++i) {
    const OpenFile file = program.create(fmt::format("f{}", i)).value();
    if (cluster.home_of(file.handle) == "b") there = file;
  }
  ASSERT_TRUE(program.write(*there, 0, "x"));
  cluster.kill("b");
  cluster.start("b", {"a", "b", "c", "d"});
  const auto refused = program.read(*there, 0, 1);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what().find("the lists of servers differ"), std::string::npos)
      << refused.error().message();
  // And the other way round: what it takes for another's is not given to it.
  int asked = 0;
  for (int i = 0; i < 20; ++i) {
    const auto made = Program(cluster.client("b")).create(fmt::format("g{}", i));
    const auto shown =
        made ? Program(cluster.client("b")).read(*made, 0, 1) : Result<std::string>(made.error());
    if (!shown && shown.error().what().find("lists of servers differ") != std::string::npos)
      ++asked;
  }
  EXPECT_GT(asked, 0);
}

TEST(Homes, OnlyTheRightServerMayRelay) {
  Cluster cluster(test_seed());
  const Handle root = cluster.disk.root().value();
  const auto refusal = [&](Peer peer, RelayIdentity relay) -> std::string {
    const auto store = cluster.connect("b", cluster.network.transport("x", std::move(peer)),
                                       std::make_shared<const RelayIdentity>(std::move(relay)));
    const auto got = Program(*store).call(Op::getattr, root);
    return got ? "" : got.error().what();
  };
  EXPECT_EQ(refusal(Cluster::a_server(), {"a", "b", "a,b,c", root}), "");
  Peer client = Cluster::a_server();
  client.proof = Peer::Proof::client;
  EXPECT_NE(refusal(client, {"a", "b", "a,b,c", root}).find("only a server"), std::string::npos);
  EXPECT_NE(refusal(Cluster::a_server(), {"a", "c", "a,b,c", root}).find("takes it for 'c'"),
            std::string::npos);
  EXPECT_NE(refusal(Cluster::a_server(), {"a", "b", "a,b", root}).find("differ"),
            std::string::npos);
  EXPECT_NE(refusal(Cluster::a_server(), {"a", "b", "a,b,c", Handle{"other"}}).find("another"),
            std::string::npos);
}

// What the home has acknowledged and lost, the client behind another server learns when it commits.
TEST(Homes, ALossIsToldThroughARelay) {
  Cluster cluster(test_seed(), {.behind = When::always});
  Program program(cluster.client("a")), other(cluster.client("c"));
  std::optional<OpenFile> file;
  for (int i = 0; !file; ++i) {
    const OpenFile made = program.create(fmt::format("f{}", i)).value();
    if (cluster.home_of(made.handle) == "b") file = made;
  }
  ASSERT_TRUE(program.write(*file, 0, "proves the right"));
  ASSERT_TRUE(program.close(*file, Op::commit));
  ASSERT_TRUE(program.write(*file, 0, "to be lost"));
  cluster.kill("b");
  cluster.start("b", {"a", "b", "c"});
  EXPECT_TRUE(other.call(Op::getattr, file->handle)) << "who has not written is not concerned";
  const auto told = program.close(*file, Op::commit);
  ASSERT_FALSE(told) << "a loss that nobody is told of";
  EXPECT_TRUE(program.close(*file, Op::commit)) << "once";
}

}  // namespace
}  // namespace forebay::sim
