#include "bench/load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "bench/doors.h"
#include "bench/measure.h"

namespace forebay::bench {

void Door::submit(bool, uint64_t, std::span<std::byte>, Done) {
  throw std::logic_error("this door takes one request at a time");
}

// ---- Where things lie ----

uint64_t Load::requests_of_client() const {
  return std::max<uint64_t>(1, bytes / request / static_cast<uint64_t>(clients));
}

uint64_t Load::place(int client, uint64_t k) const {
  const auto c = static_cast<uint64_t>(client);
  switch (layout) {
    case Layout::own_files:
      return k * request;
    case Layout::strided:
      return (k * static_cast<uint64_t>(clients) + c) * request;
    case Layout::sequential:
      return (c * requests_of_client() + k) * request;
  }
  return 0;
}

std::string Load::file(int client) const {
  return layout == Layout::own_files ? fmt::format("load.{}.{}", clients, client) : "load.shared";
}

std::string size_text(uint64_t bytes) {
  return bytes < 1_MiB ? fmt::format("{} KiB", bytes / 1_KiB)
                       : fmt::format("{} MiB", bytes / 1_MiB);
}

std::string Load::text() const {
  const char* where = layout == Layout::own_files ? "of files of their own"
                      : layout == Layout::strided ? "strided in one file"
                                                  : "each sequential in one file";
  return fmt::format("{} client{}, {} {} {}, {} in flight each", clients, clients > 1 ? "s" : "",
                     size_text(request), write ? "writes" : "reads", where, in_flight);
}

namespace {

// ---- What belongs there ----

using Words = std::span<uint64_t>;

Words words_of(std::span<std::byte> bytes) {
  return {reinterpret_cast<uint64_t*>(bytes.data()), bytes.size() / sizeof(uint64_t)};
}

void fill(Words words, int client, uint64_t salt) {
  const uint64_t mix = (salt * 4099 + static_cast<uint64_t>(client)) * 0xD6E8FEB86659FD93;
  for (size_t i = 0; i < words.size(); ++i) words[i] = (i * 0x9E3779B97F4A7C15) ^ mix;
}

void stamp(Words words, uint64_t at, uint64_t salt) {
  words[0] = at;
  words[1] = salt;
}

bool stamped(Words words, uint64_t at, uint64_t salt) {
  return words[0] == at && words[1] == salt;
}

// Calls with each file of the load and the requests in it, in the order of the file. `done`: how
// many each client has done; more than there are is all.
struct Piece {
  int client;
  uint64_t k;
};
void each_file(const Load& load, const std::vector<uint64_t>& done,
               const std::function<void(const std::string& name, std::span<const Piece>)>& visit) {
  std::vector<Piece> pieces;
  for (int c = 0; c < load.clients; ++c) {
    const uint64_t n = std::min(load.requests_of_client(), done[static_cast<size_t>(c)]);
    for (uint64_t k = 0; k < n; ++k) pieces.push_back({c, k});
    if (load.layout != Load::Layout::own_files) continue;
    visit(load.file(c), pieces);
    pieces.clear();
  }
  if (pieces.empty()) return;
  std::ranges::sort(pieces, {}, [&](Piece p) { return load.place(p.client, p.k); });
  visit(load.file(0), pieces);
}

// Small requests that continue each other are prepared and looked at many at a time, as their file
// may be slow.
constexpr uint64_t kAtOnce = 1_MiB;

struct Span {
  uint64_t at;
  std::span<std::byte> bytes;
  std::span<const Piece> pieces;
};
void each_span(const Load& load, std::span<const Piece> pieces, std::vector<std::byte>& room,
               const std::function<void(const Span&)>& visit) {
  const uint64_t most = std::max<uint64_t>(1, kAtOnce / load.request);
  room.resize(most * load.request);
  while (!pieces.empty()) {
    const uint64_t at = load.place(pieces[0].client, pieces[0].k);
    size_t n = 1;
    while (n < most && n < pieces.size() &&
           load.place(pieces[n].client, pieces[n].k) == at + n * load.request) {
      ++n;
    }
    visit({at, std::span(room).first(n * load.request), pieces.first(n)});
    pieces = pieces.subspan(n);
  }
}

// ---- A client ----

class Client {
 public:
  Client(const Load& load, int number, uint64_t salt, Door& door)
      : load_(load), number_(number), salt_(salt), door_(door) {
    for (unsigned i = 0; i < load.in_flight; ++i) {
      buffers_.push_back(door.memory(load.request));
      fill(words_of(buffers_.back()), number, salt);
    }
  }

  // For so long, at least one request of each in flight; how many were done.
  uint64_t run(double seconds) {
    seconds_ = seconds;
    begin_ = Clock::now();
    issued_ = done_ = 0;
    load_.in_flight == 1 ? run_one() : run_many();
    if (wrong_) throw std::runtime_error("a request failed, or read what does not belong there");
    return done_;
  }

  // Reads through the door once more, and compares in full: enough to see, not to wait for.
  bool looks_right() {
    constexpr uint64_t kMost = 16;
    const uint64_t n = load_.requests_of_client();
    const uint64_t few = std::clamp<uint64_t>(64_MiB / load_.request, 1, std::min(kMost, n));
    std::vector<std::byte> expected(load_.request);
    fill(words_of(expected), number_, salt_);
    for (uint64_t i = 0; i < few; ++i) {
      const uint64_t at = load_.place(number_, i * n / few);
      stamp(words_of(expected), at, salt_);
      memset(buffers_[0].data(), 0, buffers_[0].size());
      door_.read(at, buffers_[0]);
      if (memcmp(buffers_[0].data(), expected.data(), expected.size()) != 0) return false;
    }
    return true;
  }

 private:
  uint64_t next_place() { return load_.place(number_, issued_++ % load_.requests_of_client()); }

  // What was read before must not pass for what is to be read.
  void ready(std::span<std::byte> buffer, uint64_t at) const {
    stamp(words_of(buffer), load_.write ? at : ~at, salt_);
  }

  bool over() const {
    return since(begin_) >= seconds_ || (load_.fresh && issued_ >= load_.requests_of_client());
  }

  void run_one() {
    const std::span<std::byte> buffer = buffers_[0];
    do {
      const uint64_t at = next_place();
      ready(buffer, at);
      load_.write ? door_.write(at, buffer) : door_.read(at, buffer);
      if (!stamped(words_of(buffer), at, salt_)) wrong_ = true;
      ++done_;
    } while (!over());
  }

  void run_many() {
    left_ = load_.in_flight;
    for (std::span<std::byte> buffer : buffers_) next(buffer);
    while (const unsigned left = left_.load()) left_.wait(left);
  }

  void next(std::span<std::byte> buffer) {
    const uint64_t at = next_place();
    ready(buffer, at);
    door_.submit(load_.write, at, buffer, [this, at, buffer](bool good) {
      if (!good || !stamped(words_of(buffer), at, salt_)) wrong_ = true;
      ++done_;
      if (!wrong_ && !over()) return next(buffer);
      --left_;
      left_.notify_one();
    });
  }

  const Load& load_;
  const int number_;
  const uint64_t salt_;
  Door& door_;
  std::vector<std::span<std::byte>> buffers_;
  double seconds_ = 0;
  Clock::time_point begin_;
  std::atomic<uint64_t> issued_{0}, done_{0};  // of several in flight, another thread may go on
  std::atomic<unsigned> left_{0};
  std::atomic<bool> wrong_{false};
};

}  // namespace

Worker client_of(const Load& load, uint64_t salt, pid_t server, const OpenDoor& open) {
  return [=](int number, const std::function<void()>& go, Shared& out) {
    const auto door = open(load.file(number));
    Client client(load, number, salt, *door);
    go();
    if (load.warm > 0) {
      client.run(load.warm);
      go();
    }
    const Stretch timed(server);
    out.operations = client.run(load.seconds);
    if (load.write) door->close();
    timed.end(out);
    out.verified = load.write || client.looks_right();
  };
}

// ---- Files ----

void prepare(const Load& load, const std::string& directory, uint64_t salt) {
  std::vector<std::byte> room;
  const std::vector<uint64_t> all(static_cast<size_t>(load.clients), UINT64_MAX);
  each_file(load, all, [&](const std::string& name, std::span<const Piece> pieces) {
    const DirectFile file(directory + "/" + name);
    each_span(load, pieces, room, [&](const Span& span) {
      for (size_t i = 0; i < span.pieces.size(); ++i) {
        const Words words = words_of(span.bytes.subspan(i * load.request, load.request));
        fill(words, span.pieces[i].client, salt);
        stamp(words, span.at + i * load.request, salt);
      }
      file.write(span.at, span.bytes);
    });
  });
  if (load.fresh) remove_files(load, directory);
}

void remove_files(const Load& load, const std::string& directory) {
  for (int c = 0; c < load.clients; ++c) unlink((directory + "/" + load.file(c)).c_str());
}

bool holds(const Load& load, const std::string& directory, uint64_t salt,
           const std::vector<uint64_t>& done) {
  std::vector<std::byte> room, expected(load.request);
  bool good = true;
  int filled_for = -1;
  each_file(load, done, [&](const std::string& name, std::span<const Piece> pieces) {
    const DirectFile file(directory + "/" + name);
    each_span(load, pieces, room, [&](const Span& span) {
      file.read(span.at, span.bytes);
      for (size_t i = 0; i < span.pieces.size(); ++i) {
        const int c = span.pieces[i].client;
        if (c != std::exchange(filled_for, c)) fill(words_of(expected), c, salt);
        stamp(words_of(expected), span.at + i * load.request, salt);
        good = good &&
               memcmp(span.bytes.data() + i * load.request, expected.data(), load.request) == 0;
      }
    });
  });
  return good;
}

}  // namespace forebay::bench
