// Stage: a server with its scheduler and pipeline, three clients and a network, on the simulated
// loop, and one file. It does what it is told, in the order told: a client sends, a call of the
// Store ends, a connection breaks; and it keeps the history of it.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/remote_store.h"
#include "held_store.h"
#include "legal.h"
#include "server/raw_client.h"

namespace forebay::order {

inline constexpr unsigned kClients = 3;
inline constexpr unsigned kFileCells = 32;

// One request, as a client is told to send it.
struct Ask {
  bool write = false;
  Ranges where;
};
using Script = std::array<std::vector<Ask>, kClients>;

// Every delay the same, every frame in one piece.
SimOptions even_network();

struct Setting {
  std::string name;
  SchedulerOptions scheduler = {};
  unsigned concurrency = 0;  // of the Store: see Store::concurrency()
  // A request of up to 1 KiB is small, a chunk is 4 KiB.
  uint64_t cell = 8;
  unsigned in_flight = 4;
  Pipeline pipeline = Pipeline::parallel;
  uint64_t pool = 64_KiB;
  // Its clients are those of src/client, which come back after a cut. Otherwise they speak raw
  // frames, and send whatever they are told to at once.
  bool real = false;
  SimOptions network = even_network();
};

class Stage {
 public:
  explicit Stage(const Setting& setting, uint64_t seed = 1);
  ~Stage();

  // ---- Steps ----
  void send(unsigned client, const Ask& ask);
  void end_call(unsigned which);  // one of calls()
  void cut(unsigned client);
  void settle();              // runs until nobody has anything to do
  void run(unsigned events);  // lets so many things happen

  unsigned calls() const { return store_->held(); }
  bool waiting(unsigned client) const;  // for an answer
  bool waiting() const;

  // Were all requests since the last reset() answered well, each written once, in a legal order?
  // What is wrong otherwise.
  std::string verdict();
  void reset();
  uint64_t reconnects() const;
  uint64_t merged() const { return merged_; }  // calls of the Store for more than one request

  HeldStore& store() { return *store_; }

 private:
  struct Sent {
    Happened happened;
    std::string bytes;
    std::optional<Result<Reply>> result;
    server::RawClient::CallRef raw;
  };

  static std::string host(unsigned client) { return "client" + std::to_string(client); }
  void start_server();
  void make_file();
  void connect();
  void warm_up();
  Request request(const Ask& ask) const;
  void look();
  void note(const Request& applied);
  Cells cells_of(const std::string& bytes) const;
  std::string bytes_of(const Cells& cells) const;
  Cells content();

  const Setting setting_;
  SimLoop loop_;
  SimNetwork network_;
  CounterSet counters_;
  std::unique_ptr<Server> server_;
  HeldStore* store_ = nullptr;
  std::unique_ptr<Transport> server_side_;
  std::unique_ptr<Listener> listener_;
  server::OpenFile file_;
  CallerRef caller_ = this_process_caller();
  std::vector<std::unique_ptr<server::RawClient>> raw_;
  std::vector<std::unique_ptr<RemoteStore>> real_;

  unsigned step_ = 0;
  std::list<Sent> sent_;
  std::map<uint16_t, unsigned> written_;  // how often, by the value of the cell
  uint64_t merged_ = 0;
};

}  // namespace forebay::order
