// Numbers and appends through a server that is killed and started again all the time (README.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include "restarting_server.h"

namespace forebay {
namespace {

constexpr unsigned kClients = 6, kInFlight = 4;
constexpr size_t kMost = 4096;

unsigned length_factor() {
  const char* const given = std::getenv("FOREBAY_TORTURE");
  return given ? static_cast<unsigned>(std::atoi(given)) : 1;
}

// A record says who wrote it, which it is and how long, and the rest follows from that.
std::string record_of(uint32_t writer, uint32_t number, uint32_t size) {
  std::string bytes(size, '\0');
  std::mt19937_64 random((uint64_t{writer} << 40) ^ (uint64_t{number} << 13) ^ size);
  for (char& c : bytes) c = static_cast<char>(1 + random() % 255);
  return bytes;
}

struct Written {
  uint64_t place;
  uint32_t writer, number, size;
};

// What all clients were told.
struct Told {
  std::mutex mutex;
  std::vector<uint64_t> numbers;
  std::vector<Written> records;
  std::vector<std::string> errors;
  uint64_t reconnects = 0;
};

class Client {
 public:
  Client(const RestartingServer& server, unsigned number, Told& told)
      : number_(number), told_(told), store_(server.connect().value()) {
    Request r;
    r.op = Op::create;
    r.caller = caller_;
    r.handle = store_->root().value();
    r.name = "log";
    r.mode = 0600;
    r.access = Access::both;
    const Reply made = store_->call(std::move(r)).value();
    handle_ = made.handle;
    right_ = made.right;
  }

  void create_number() {
    Request r = request(Op::attr_create);
    r.name = "next";
    auto made = store_->call(std::move(r));
    ASSERT_TRUE(made || made.error().code() == EEXIST) << made.error().message();
  }

  // Some in flight at a time; of each kind so many.
  void work(unsigned adds, unsigned appends, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kInFlight; ++i) {
      threads.emplace_back([this, i, adds, appends, s = random()] {
        std::mt19937_64 mine(s);
        for (unsigned n = 0; n < std::max(adds, appends); ++n) {
          if (n < adds) add();
          if (n < appends) append(i + n * kInFlight, static_cast<uint32_t>(1 + mine() % kMost));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::lock_guard lock(told_.mutex);
    told_.reconnects += store_->stats().reconnects;
  }

 private:
  Request request(Op op) const {
    Request r;
    r.op = op;
    r.caller = caller_;
    r.handle = handle_;
    r.right = right_;
    return r;
  }
  void add() {
    Request r = request(Op::attr_fetch_add);
    r.name = "next";
    r.value = 1;
    const auto reply = store_->call(std::move(r));
    std::lock_guard lock(told_.mutex);
    if (!reply) return told_.errors.push_back("add: " + reply.error().message());
    told_.numbers.push_back(reply->value);
  }
  void append(uint32_t number, uint32_t size) {
    const std::string bytes = record_of(number_, number, size);
    Request r = request(Op::write);
    r.flags = kFlagAppend;
    r.file = Extents({Offset(0), Length(size)});
    r.memory = Memory::of(std::as_bytes(std::span(bytes)));
    const auto reply = store_->call(std::move(r));
    std::lock_guard lock(told_.mutex);
    if (!reply) return told_.errors.push_back("append: " + reply.error().message());
    told_.records.push_back({reply->value, number_, number, size});
  }

  const unsigned number_;
  Told& told_;
  const CallerRef caller_ = this_process_caller();
  std::unique_ptr<RemoteStore> store_;
  Handle handle_;
  Right right_;
};

// Each from 0 on, once.
void check_numbers(Told& told) {
  std::ranges::sort(told.numbers);
  for (uint64_t i = 0; i < told.numbers.size(); ++i) {
    ASSERT_EQ(told.numbers[i], i) << "given twice, or left out";
  }
}

// The file is the records, one behind the other, and nothing else.
void check_records(Told& told, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), {});
  std::ranges::sort(told.records, {}, &Written::place);
  uint64_t end = 0;
  for (const Written& w : told.records) {
    ASSERT_EQ(w.place, end) << "a gap or an overlap before record " << w.number << " of "
                            << w.writer;
    end += w.size;
    ASSERT_LE(end, file.size());
    ASSERT_EQ(file.substr(w.place, w.size), record_of(w.writer, w.number, w.size));
  }
  EXPECT_EQ(end, file.size());
}

void torture(RestartingServer::Options options, unsigned adds, unsigned appends) {
  options.seed = test_seed();
  RestartingServer server(options);
  Told told;
  std::mt19937_64 random(options.seed + 1);
  std::vector<std::unique_ptr<Client>> clients;
  for (unsigned i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(server, i, told));
  }
  clients[0]->create_number();
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&, seed = random()] { client->work(adds, appends, seed); });
  }
  for (std::thread& thread : threads) thread.join();
  const unsigned kills = server.kills();
  server.calm();
  clients.clear();
  for (size_t i = 0; i < std::min<size_t>(told.errors.size(), 5); ++i) {
    ADD_FAILURE() << told.errors[i];
  }
  check_numbers(told);
  check_records(told, server.data() + "/log");
  EXPECT_EQ(told.numbers.size(), size_t{adds} * kClients * kInFlight);
  EXPECT_EQ(told.records.size(), size_t{appends} * kClients * kInFlight);
  fmt::print("{} numbers, {} records, {} kills, {} reconnects\n", told.numbers.size(),
             told.records.size(), kills, told.reconnects);
}

TEST(Torture, NumbersAndRecordsSurviveKilledServers) {
  torture({}, 5000 / (kSlowness + 4) * length_factor(), 500 / (kSlowness + 4) * length_factor());
}

TEST(Torture, WithEveryChangeOnTheDisk) {
  torture({.sync = true}, 500 / (kSlowness + 4) * length_factor(),
          150 / (kSlowness + 4) * length_factor());
}

}  // namespace
}  // namespace forebay
