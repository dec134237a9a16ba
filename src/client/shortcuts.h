// Shortcuts: reads and writes that a client on the server's node does itself, on files that it is
// alone with. The other half, and what it means to others, is in server/shortcuts.h.
//
// A right that is used more than now and then is worth a question (Op::shortcut). The answer names
// the file's path; the client opens it as itself, and looks whether that is the file that was
// meant: so it can do nothing here that it could not do without a server. If it may not, or the
// path is another file's by now, its requests are sent as before.
//
// Requests of submit() have an order. Small writes among them are done when it is their turn to be
// sent, on the thread that leads (session.h), those that go on from each other by one call; what
// is sent after all, and would wait for the shortcut, gives it back. Blocking calls are done at
// once, and only while nothing that was submitted is under way.
//
// A file that the export has around the page cache (direct) is so here: of whole blocks, while all
// else is sent, and gives it back. Large requests of submit() on such a file are done by threads of
// our own, since the device may take its time.
//
// Invariants:
//  1. Bytes move only between ShortcutWord::enter() and leave(), so the server knows.
//  2. Of a file that others have in common, only pieces are written that the file system writes as
//     a whole, by one call each or by one for several of them (gather_room.h). Of the threads of
//     this process that are in, none writes what another one reads or writes (Turns): a request is
//     not torn, whatever its size.
//  3. Nobody enters whose connection is gone. A client that does nothing but this hears nothing of
//     its server: so it looks now and then (kLookEvery), within a long request too. A server that
//     crashed is noticed within that time.
//  4. Before each request, or before it is used for what was gathered, the descriptor is looked at,
//     by a random place where it stands: a program may have closed it with others that it does not
//     know, and opened something else by its number.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/gather_room.h"
#include "client/turns.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/fd.h"
#include "core/op.h"
#include "store/posix_pool.h"
#include "transport/shared_region.h"

namespace forebay {

class Shortcuts {
  struct Path;

 public:
  struct Answer {
    Result<Reply> reply;
    std::shared_ptr<SharedRegion> region;  // of the connection that it came over
    uint64_t connection = 0;
    Fd handed = {};  // by the server, with the answer
  };
  struct Parts {
    std::function<Answer(Request&&)> ask;  // blocking
    using Answered = Callback<void(Answer&&)>;
    std::function<void(Request&&, Answered)> ask_later;  // on the loop, as the answer comes
    std::function<uint64_t()> connection;                // changes when it is lost
    std::function<int()> socket;                         // of it; -1: none
  };
  explicit Shortcuts(Parts parts) : parts_(std::move(parts)) {}
  ~Shortcuts();

  // Does it, if that can be: nothing if it is to be sent.
  std::optional<Result<Reply>> call(const Request& request);
  // Something is about to be left to be sent, which nobody waits for.
  void submitting() { ++submits_; }
  void sending(const Request& request);  // after all
  // Of what is in line to be sent, on the loop.
  static bool may_write_here(const Request& request);
  bool has(const Request& request);
  std::optional<Result<Reply>> write_here(const Request& request);
  // Small writes, nothing else being under way: gathered with what others write, and to be settled
  // soon, all that were.
  struct Gathered {
    std::shared_ptr<Path> path;
    posix::GatheredWrites::Piece piece;
  };
  bool gather(const Request& request, Gathered& gathered);
  // Those that wait, which the requests belong to one by one; each is then as by write_here().
  using Written = std::optional<Result<Reply>>;
  std::vector<Written> settle(std::span<const Request* const> requests,
                              std::span<Gathered> gathered);
  void ask_later(const Request& request);  // if it is worth it: it was submitted, and will be sent

  // Of a large one, which a thread of ours may do. Is it worth a question before it is sent, when
  // nothing of its file is under way? The question, and what to do with the answer.
  static bool may_begin(const Request& request);
  bool worth_asking(const Request& request);
  Request question(const Request& request);  // asked now
  void answered(const Request& question, Answer&& answer);
  // False: it is to be sent. `done` runs on that thread; nothing: it is to be sent after all. The
  // request stays until then.
  static constexpr unsigned kMostBegun = 4;  // two that do 4 MiB at a time keep a fast device busy
  using Begun = Callback<void(std::optional<Result<Reply>>)>;
  bool begin(const Request& request, Begun done);
  static constexpr unsigned kMostThreads = 16;
  // Are these known to be of two files? (Two handles may be of one.)
  bool differ(const Request& a, const Request& b);

  void give_back();  // all of them
  // In a forked child, instead of the end: the descriptors are copies of its parent's.
  void abandon();

  uint64_t done() const { return done_.get(); }
  uint64_t gathered() const { return gathered_.get(); }

 private:
  using Wait = Turns::Wait;
  struct OpenFile;
  using PathRef = std::shared_ptr<Path>;
  // What is known of a right.
  struct Known {
    unsigned calls = 0;
    Time ask_at{};
    Duration pause = kFirstTry;
    PathRef path;
    // Of the last path, for the next one: ext4 writes a file to the disk when it is closed after it
    // was cut, and whoever cuts it again waits for that.
    std::shared_ptr<OpenFile> opened;
    std::shared_ptr<GatherRoom> room;  // the same
    bool never = false;
    bool cached = false;  // by the last answer: it is in the page cache
  };
  // For a forked child.
  struct Descriptor {
    std::atomic<int> fd{-1};
    std::atomic<off_t> mark{0};  // OpenFile::mark
  };

  static constexpr uint64_t kWorthAsking = 64 << 10;  // bytes of one request, or
  static constexpr unsigned kCallsWorthAsking = 4;
  // Many who begin with a file at the same time are refused while the first one's is taken back.
  static constexpr Duration kFirstTry = std::chrono::milliseconds(2);
  static constexpr Duration kFirstPause = std::chrono::milliseconds(100);
  static constexpr Duration kLongestPause = std::chrono::seconds(10);
  static constexpr Duration kLookEvery = std::chrono::milliseconds(5);
  static constexpr size_t kMostRights = 4096;
  static constexpr int kTaken = -2;  // a Descriptor that is being filled

  // What there is; or whether it is time to ask for it.
  struct Found {
    PathRef path;
    bool ask = false;
  };
  Found find(const Request& request);
  PathRef path_for(const Request& request);
  static Request question_for(const Request& request);
  PathRef ask(const Request& request);
  PathRef install(const Request& question, Answer&& answer, std::optional<uint64_t> submits);
  // Whoever leads the session does not wait for a turn of another thread.
  std::optional<Result<Reply>> use(const PathRef& path, const Request& request, Wait wait);
  bool enter(const PathRef& path, const Request& request);
  std::optional<Result<Reply>> outcome(const PathRef& path, const Request& request,
                                       Result<Reply>&& result);
  Result<PathRef> open(const Answer& answer, bool writes, std::shared_ptr<OpenFile> before);
  void lost(const Request& request, const PathRef& path, bool for_good = false);
  bool connected(const Path& path);
  bool alive(const Path& path);
  void give_back(Known& known);
  void forget(const Right& right);
  void give_back(const Handle& file, Time ask_at, bool but_common = false);
  Result<Reply> move(const Request& request, Path& path, Wait wait);
  Result<Reply> moved(const Request& request, const Path& path, Result<uint64_t> bytes);
  static Result<uint64_t> write_whole(const Request& request, const Path& path);
  static Result<uint64_t> write_alone(const Request& request, const Path& path);
  Result<uint64_t> write_in_common(const Request& request, Path& path);
  Result<uint64_t> move_bytes(const Request& request, Path& path, Wait wait);
  Result<uint64_t> move_around_cache(const Request& request, Path& path, Wait wait);
  Descriptor* keep(const OpenFile& opened);

  const Parts parts_;
  const CallerRef self_ = this_process_caller();
  std::mutex mutex_;
  std::unordered_map<std::string, Known> rights_;
  std::array<Descriptor, kShortcuts> descriptors_;
  std::atomic<Duration::rep> looked_{0};
  std::atomic<size_t> paths_{0};      // that somebody may use
  std::atomic<uint64_t> submits_{0};  // counted, so that an answer that was overtaken is known
  Counter done_, gathered_, io_calls_;
  // Last: they finish what they have first. What is begun has a thread at once, because whoever is
  // in while it waits for one would seem to stand still.
  posix::Pool helpers_{kMostBegun, kMostThreads};  // of blocking calls
  posix::Pool pool_{kMostThreads, kMostThreads};
};

}  // namespace forebay
