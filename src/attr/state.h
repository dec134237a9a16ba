// State: what the clients of one export share about its files: the attributes of each file
// (values.h), where its appends go, and which requests were done, so that none is done twice.
//
// From the poster on shared file pointers and atomic append in IOFSL ("paper 4"): attributes held
// by a server, and appends whose place is the end of the file, which is fetched and moved on in one
// step. We add what a crash needs: every change is a Command, commands are the records of a journal
// (record.h), and a State that has applied the same commands is the same State.
//
// Appends. A place is granted first and written then. A grant is open until its write has ended: it
// is settled (`wrote`), or its bytes are a hole (`lost`). A request that comes again gets the place
// that it had, and writes the same bytes there; so a grant belongs to its request for ever, also
// in a later life of the server, and nobody else can have it (the fence). Except a place at the end
// of which nothing was written, and whose request has failed for certain: it is given back, and the
// request, should it come again, is a new one.
//
// Names. Before a request that cannot be done twice changes a name (create exclusive, rename, link,
// remove), what it is about to do is a Command, its intent; and what came of it another. After a
// crash an intent without outcome says what to look for in the file system.
//
// Invariants:
//  1. apply() changes something and succeeds, or changes nothing and fails.
//  2. A lane knows the last request of its client that changed something; one that comes after a
//     later one is refused.
//  3. A file's end is at or behind every place that was granted since it was last cut.
//  4. Files, attributes, lanes and listed holes are bounded (Limits). Lanes are shared out: a user
//     gets no more of them than are left then, so that whoever comes always finds some (the dynamic
//     thresholds of A. K. Choudhury and E. L. Hahne, IEEE/ACM Transactions on Networking 1998).
//
// A value: no threads, no clock, no files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attr/values.h"
#include "core/op.h"

namespace forebay::attr {

struct Command {
  enum class Kind : uint8_t {
    life = 1,  // value: this life of the server, one more than the last
    file,      // file: a number that is free; name: its key; handle: one of its handles. Of a file
               // that is known: another handle
    forget_file,
    create,  // file, name, value
    remove,  // file, name
    set,     // file, name, value
    add,     // file, name, value
    swap,    // file, name, value, extra (expected)
    append,  // file, value (the place), extra (the length)
    wrote,   // file, value (the place): its bytes are in the file
    lost,    // file, value (the place): they are not, as far as we know
    hole,    // file, value (the place), extra (the length); of a snapshot
    cut,     // file, value: the size of the file, whatever it was before
    lane,    // of a snapshot: once, file, value, extra (the length), name (a byte: kind, open)
    forget_client,  // once.client, client2
    intend,         // once, name: what is about to be done to names (Intent), opaque here
    named,          // once, value (Named): it is done, or not
    give_back,      // file, value (the place), extra (the end from now on), once: nothing was
                    // written there, and nothing will be
    user,           // once.client, client2, value: the user whose requests these are
  };
  Kind kind = Kind::life;
  uint32_t file = 0;
  uint64_t value = 0, extra = 0;
  Once once = {};
  std::string_view name = {}, handle = {};
  bool operator==(const Command&) const = default;
};

enum class Named : uint64_t { undone, done, unknown };

// What a lane remembers of its last request.
struct Done {
  uint64_t sequence = 0;
  Command::Kind kind = Command::Kind::life;
  uint32_t file = 0;
  uint64_t value = 0;   // its result
  uint64_t length = 0;  // of an append
  bool open = false;    // an append whose bytes may not be in the file; an intent without outcome
  std::shared_ptr<const std::string> intent = {};  // of an open one
};

struct Hole {
  uint64_t offset = 0, length = 0;
  bool operator==(const Hole&) const = default;
};

class State {
 public:
  struct Limits {
    size_t files = 65536;
    size_t attributes = kMaxAttributes;  // of one file
    size_t lanes = 1 << 20;              // of all clients
    size_t holes = 256;                  // of one file; the lowest are only counted beyond
  };
  State() : State(Limits()) {}
  explicit State(Limits limits) : limits_(limits) {}

  // The result is an attribute's value before, or the place of an append.
  Result<uint64_t> apply(const Command& command);

  // Nothing: it is new. An error: its client has gone on to a later one.
  Result<std::optional<Done>> recall(const Once& once) const;

  // May a request of this user be remembered? ENOBUFS: it has its share.
  Result<void> room_for(const Once& once, uint32_t user) const;
  bool has_user(const Once& once) const;  // its client is known, and whose it is

  // 0: it is not known. A number for one that is not known is next_file().
  uint32_t find(std::string_view key) const;
  uint32_t next_file() const { return last_file_ + 1; }
  Result<uint64_t> get(uint32_t file, std::string_view name) const;
  const Values* values(uint32_t file) const;
  uint64_t end(uint32_t file) const;  // 0: nothing was appended
  std::vector<Hole> holes(uint32_t file) const;
  uint64_t hole_count(uint32_t file) const;  // listed or not

  // ---- Places that nobody has written to. Known in one life only, so that no crash hides a write.
  // The request of an open place, or of a hole, has come again: it may be written twice at a time.
  void came_again(const Done& done);
  // It is a hole now, to which nothing was or will be written, unless its request comes again.
  void untouched(uint32_t file, uint64_t place);
  // What gives the last place of a file back, and the untouched holes just before it. Empty: it is
  // not the last, or somebody else may write there.
  std::vector<Command> giving_back(uint32_t file, uint64_t place) const;

  // Commands that make an empty State into this one.
  void snapshot(const std::function<void(const Command&)>& tell) const;

  // Those whose last request is older than `before`, by the numbers that touch() gave.
  void touch(const Once& once, uint64_t tick);
  std::vector<Once> clients_before(uint64_t tick) const;
  Handle handle(uint32_t file) const;  // one of its handles; empty: it is not known
  // Every file, by one of its handles.
  std::vector<std::pair<uint32_t, Handle>> files() const;
  bool has_open(uint32_t file) const;  // grants
  // Files of which nothing is known but an end that their size shows as well.
  std::vector<uint32_t> bare_files(size_t most) const;
  // Grants that nobody can come back for: their requests had no Once.
  std::vector<Command> orphans() const;
  // Intents without an outcome.
  std::vector<std::pair<Once, std::shared_ptr<const std::string>>> intents() const;

  uint64_t life() const { return life_; }
  struct Counts {
    size_t files = 0, attributes = 0, clients = 0, lanes = 0;
    size_t open = 0;   // grants
    size_t holes = 0;  // listed or not
  };
  Counts counts() const;
  // Memory that attributes take, about.
  size_t attribute_bytes() const { return attribute_bytes_; }
  static size_t attribute_bytes(std::string_view name) { return name.size() + kAttributeBytes; }

 private:
  static constexpr size_t kAttributeBytes = 96;  // of one, beside its name

  struct Grant {
    uint64_t length;
    Once once = {};
    uint64_t before = 0;     // the end when it was granted
    bool again = false;      // its request came again
    bool untouched = false;  // a hole that may be given back
  };
  struct File {
    explicit File(size_t attributes) : values(attributes) {}
    std::string key, handle;
    Values values;
    uint64_t end = 0;
    std::map<uint64_t, Grant> open;  // by place
    std::map<uint64_t, Grant> holes;
    size_t more_holes = 0;  // not listed
    bool bare() const { return values.size() == 0 && open.empty() && holes.empty(); }
  };
  struct Client {
    std::vector<Done> lanes;
    uint64_t tick = 0;
    std::optional<uint32_t> user = {};
  };
  struct ClientId {
    uint64_t a, b;
    bool operator==(const ClientId&) const = default;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
    size_t operator()(const ClientId& id) const { return id.a ^ id.b; }
  };

  Result<uint64_t> add_file(const Command& c);
  Result<uint64_t> forget_file(const Command& c);
  Result<uint64_t> change(File& file, const Command& c);
  Result<uint64_t> grant(File& file, const Command& c);
  Result<uint64_t> settle(File& file, const Command& c);
  Result<uint64_t> give_back(File& file, const Command& c);
  Result<uint64_t> cut(File& file, const Command& c);
  Result<uint64_t> restore_lane(const Command& c);
  Result<uint64_t> forget_client(const Command& c);
  Result<uint64_t> set_user(const Command& c);
  Result<uint64_t> intend(const Command& c);
  Result<uint64_t> named(const Command& c);
  Result<void> room_for(const Once& once) const;
  const Client* client(const Once& once) const;
  void count(const Client& client, size_t more, size_t less = 0);
  void remember(const Once& once, const Done& done);
  Done* lane(const Once& once);
  const Done* lane(const Once& once) const { return const_cast<State*>(this)->lane(once); }
  void add_hole(File& file, uint64_t offset, const Grant& grant) const;
  File* at(uint32_t number);
  const File* at(uint32_t number) const { return const_cast<State*>(this)->at(number); }

  Limits limits_;
  uint64_t life_ = 0;
  uint32_t last_file_ = 0;
  size_t lanes_ = 0;
  size_t attribute_bytes_ = 0;
  std::unordered_map<uint32_t, std::unique_ptr<File>> files_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> numbers_;  // by key
  std::unordered_map<ClientId, Client, Hash> clients_;
  std::unordered_map<uint32_t, size_t> users_;  // how many lanes their clients have
};

}  // namespace forebay::attr
