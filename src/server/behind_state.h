// The inside of a BehindStore: its files, their rounds (behind_flush.cc), and the way of each kind
// of request past them (behind_store.cc). Private to those two.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "server/behind_store.h"
#include "server/dirty_pieces.h"

namespace forebay::server {

class BehindStore::State : public std::enable_shared_from_this<State> {
 public:
  State(ScheduledStore& inner, const WriteBehindOptions& options, uint64_t boot);

  void submit(Request&& request, Completion&& done, Origin origin);
  void settle(Request&& request, Completion&& done, Origin origin, bool held);
  void drain(Task done);
  std::optional<Error> take_loss(uint64_t client, const Handle& handle);
  void forget(uint64_t client);
  void untold(const Handle& handle);
  bool all_told() const;
  BehindStatus status() const;
  void close();
  // Is it a write that is to be acknowledged early, if it can be? And was there ever one?
  bool early(const Request& request, const Origin& origin) const;
  bool used() const { return used_; }
  bool keeps(const Handle& file) const { return busy(file) != nullptr; }
  bool keeps_all(bool near) const { return options_.when == When::always && gains(near); }
  bool has_room(uint64_t bytes) const {  // and as much again for those who are behind
    return budget_.used() + bytes <= budget_.limit() / 2;
  }

 private:
  bool gains(bool near) const { return !near || !in_page_cache_; }
  enum class Used : uint8_t { little, half, most };  // of the budget
  // Told that what it waited for is settled (written or lost), or why it never will be.
  using Go = Callback<void(std::optional<Error> why)>;
  struct File;
  using FileRef = std::shared_ptr<File>;
  struct Waiter;
  using WaiterRef = std::shared_ptr<Waiter>;
  struct Cancel {  // a stop_callback
    std::weak_ptr<State> state;
    std::weak_ptr<File> file;
    std::weak_ptr<Waiter> waiter;
    void operator()() const;
  };
  struct Waiter {
    uint64_t upto = 0;  // a number of a write
    Go go;
    std::optional<std::stop_callback<Cancel>> stop;
  };
  // Who has written to a file since its last commit or close; 0: it is gone.
  struct Client {
    uint64_t id = 0;
    uint64_t last = 0;  // number of its last write
    std::optional<Error> loss;
  };
  struct Batch {
    std::vector<const Piece*> pieces;  // of File::flushing, of one caller
    uint64_t bytes = 0;
  };
  struct File {
    explicit File(std::string name) : key(std::move(name)) {}
    const std::string key;
    DirtyPieces dirty, flushing;
    // Numbers of writes: the last one; the last of the round under way, and of the one before; the
    // last that is to be written without waiting for its age.
    uint64_t newest = 0, round = 0, settled = 0, wanted = 0;
    bool pressed = false;   // some of it is to be written because memory is short
    uint64_t accepted = 0;  // of the budget, since that was done
    Time since;             // when it became dirty
    std::deque<Batch> pending;
    unsigned out = 0;  // batches with the Store
    bool pumping = false;
    std::vector<WaiterRef> waiters;
    std::vector<Client> clients;

    bool busy() const { return newest > settled; }
    Client* find(uint64_t id);
  };
  struct Proof {  // of a right
    std::string file;
    std::shared_ptr<const Writer> writer;
    bool read = false, write = false;
  };

  // Requests (behind_store.cc).
  void write(Request&& request, Completion&& done, Origin origin);
  void write_through(Request&& request, Completion&& done, Origin origin, bool may_prove);
  void accept(const Request& request, std::vector<Piece> pieces, Origin origin);
  void read(Request&& request, Completion&& done, Origin origin);
  void read_store(const FileRef& file, Request&& request, Completion&& done);
  void read_around(const FileRef& file, Request&& request, Completion&& done);
  void watch(Request&& request, Completion&& done);
  void watched(uint64_t since, Request&& request, Result<Reply>&& result, Completion&& done);
  void correct(Request&& request, Reply&& reply, Completion&& done);
  const Proof* proof(std::string_view key, const Request& request) const;
  void prove(const Request& request, std::shared_ptr<const Writer> writer);
  Completion proving(const Request& open, Completion&& done);
  void committed(const std::string& key, uint64_t client, uint64_t upto);
  uint64_t verifier(const std::string& key) const;
  void unreported(const std::string& key);

  // Files and rounds (behind_flush.cc).
  FileRef find(std::string_view key) const;
  FileRef busy(const Handle& handle) const;
  void when_settled(const FileRef& file, std::stop_token stop, Go go);
  void when_settled(std::vector<FileRef> files, Go go);
  void give_up(const FileRef& file, const WaiterRef& waiter);
  void forward(Request&& request, Completion&& done);
  bool begin_issuing();
  void end_issuing();
  void arm(Loop& loop, Duration after);
  void tick(Loop& loop);
  Used used_part() const;
  std::vector<FileRef> press(const FileRef& file);
  void pump(const FileRef& file);
  void turn_round(File& file);
  void relieve(File& file);
  void begin_round(File& file);
  void make_batches(File& file);
  void issue(const FileRef& file, Batch&& batch);
  void landed(const FileRef& file, const Batch& batch, const Result<Reply>& result);
  void lose(File& file, const Piece& piece, const Error& error);
  void drop_if_unused(const FileRef& file);

  ScheduledStore& inner_;
  const WriteBehindOptions options_;
  const uint64_t boot_;
  const bool works_inline_;
  const bool in_page_cache_;  // of this node, all files but those that somebody wants around it
  const unsigned most_out_;   // batches of one file
  Budget budget_;

  mutable std::mutex mutex_;
  std::condition_variable quiet_;
  std::unordered_map<std::string, FileRef> files_;
  uint64_t newest_ = 0;            // number of the last write of all
  std::atomic<uint64_t> busy_{0};  // files
  std::atomic<bool> used_{false};
  std::unordered_map<std::string, Proof> proven_;  // by right
  Loop* loop_ = nullptr;                           // one that writes came from
  bool armed_ = false;                             // its timer
  Used used_part_ = Used::little;
  unsigned issuing_ = 0;  // threads that are about to call the Store
  bool closing_ = false;

  // Requests under way that learn only from their result which file they are about, and the files
  // of which a round has ended meanwhile.
  unsigned watchers_ = 0;
  uint64_t events_ = 0, floor_ = 0;
  std::unordered_map<std::string, uint64_t> ended_;

  // Losses that nobody could be told, by file; and how often that list became too long.
  std::unordered_map<std::string, uint64_t> unreported_;
  uint64_t forgotten_ = 0;

  BehindStatus seen_;
};

}  // namespace forebay::server
