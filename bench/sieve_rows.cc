// Scattered reads: one client reads 512 bytes of every 2 KiB of a file, 2048 pieces in a request,
// through a server that sieves, through one that reads piece by piece, and by its own preads.
#include <algorithm>
#include <cstring>

#include "bench/doors.h"
#include "bench/forward_rows.h"

namespace forebay::bench {

namespace {

constexpr uint64_t kFile = 64_MiB;
constexpr uint64_t kPiece = 512, kStride = 2048, kPieces = 2048;
constexpr uint64_t kRequests = kFile / kStride / kPieces;
const char* const kName = "scattered";

// The words of the file tell where they are.
uint64_t word_at(uint64_t place) {
  return (place + 1) * 0x9E3779B97F4A7C15;
}

void prepare(const std::string& directory) {
  const DirectFile file(directory + "/" + kName);
  std::vector<uint64_t> words(1_MiB / sizeof(uint64_t));
  for (uint64_t at = 0; at < kFile; at += 1_MiB) {
    for (size_t i = 0; i < words.size(); ++i) words[i] = word_at(at + i * sizeof(uint64_t));
    file.write(at, std::as_bytes(std::span(words)));
  }
}

bool holds(uint64_t request, std::span<const uint64_t> words) {
  constexpr uint64_t kWords = kPiece / sizeof(uint64_t);
  for (uint64_t i = 0; i < words.size(); ++i) {
    const uint64_t piece = request * kPieces + i / kWords;
    if (words[i] != word_at(piece * kStride + i % kWords * sizeof(uint64_t))) return false;
  }
  return true;
}

// Reads request k into the buffer.
using Read = std::function<void(uint64_t k, std::span<std::byte> into)>;
using Open = std::function<Read()>;

Open by_preads(const std::string& directory) {
  return [=]() -> Read {
    const auto file = std::make_shared<DirectFile>(directory + "/" + kName);
    return [=](uint64_t k, std::span<std::byte> into) {
      for (uint64_t i = 0; i < kPieces; ++i) {
        file->read((k * kPieces + i) * kStride, into.subspan(i * kPiece, kPiece));
      }
    };
  };
}

Open through(const Bed& bed) {
  return [&bed]() -> Read {
    const std::shared_ptr<Store> store = must(bed.connect(Socket::unix_socket));
    const auto file = std::make_shared<OpenFile>(must(open_file(*store, kName)));
    return [store, file](uint64_t k, std::span<std::byte> into) {
      const Extent first{Offset(k * kPieces * kStride), Length(kPiece)};
      Extents where = must(Extents::make({first}, {{kPieces, kStride}}));
      if (must(file->read(std::move(where), into)) != into.size())
        throw std::runtime_error("a short read");
    };
  };
}

// Goes through the file again and again; looks at the first word of what it reads in time, and at
// all of it afterwards.
Worker reader(const Open& open, double seconds, pid_t server) {
  return [=](int, const std::function<void()>& go, Shared& out) {
    const Read read = open();
    std::vector<uint64_t> words(kPieces * kPiece / sizeof(uint64_t));
    const auto bytes = std::as_writable_bytes(std::span(words));
    out.verified = true;
    go();
    const Stretch timed(server);
    const auto begin = Clock::now();
    do {
      const uint64_t k = out.operations++ % kRequests;
      words[0] = 0;
      read(k, bytes);
      out.verified = out.verified && words[0] == word_at(k * kPieces * kStride);
    } while (since(begin) < seconds);
    timed.end(out);
    for (uint64_t k = 0; k < kRequests; ++k) {
      std::ranges::fill(words, 0);
      read(k, bytes);
      out.verified = out.verified && holds(k, words);
    }
  };
}

struct Contest {
  Side sieved, piecewise, own;
};

Row row_of(const std::string& id, const std::string& against, const Side& ours, const Side& theirs,
           const std::string& directory) {
  constexpr double kBytes = kPieces * kPiece;
  Row row;
  row.id = id;
  row.what = "1 client reads 512 B of every 2 KiB, 2048 pieces in a request";
  row.against = against;
  row.state = file_system_of(directory) + ", page cache, 64 MiB reread";
  compare(row, ours, theirs, false);
  row.ours *= kBytes / 1e6, row.theirs *= kBytes / 1e6;
  row.unit = "MB/s";
  row.cpu = median(ours.cpu) * 1e9 / kBytes, row.their_cpu = median(theirs.cpu) * 1e9 / kBytes;
  row.cpu_unit = "s/GB";
  return row;
}

std::vector<Row> measured(Forward& forward) {
  const Bed ours(forward.scratch + "/sieve", "posix", Forward::kPool, true);
  const Bed theirs(forward.scratch + "/piecewise", "posix", Forward::kPool, true,
                   {{"export.bench.path", ours.directory()},
                    {"export.bench.sieve", "off"},
                    {"export.bench.scheduler", "fifo"}});
  prepare(ours.directory());
  Contest all;
  const auto run = [&](Side& side, const Open& open, pid_t server) {
    if (forward.options.give_up()) throw std::runtime_error("interrupted");
    measure(side, server, 1, reader(open, forward.options.seconds, server),
            [](const FleetResult& r) { return static_cast<double>(r.operations) / r.seconds; });
  };
  for (int round = 0; round < forward.options.rounds; ++round) {
    run(all.sieved, through(ours), ours.server());
    run(all.piecewise, through(theirs), theirs.server());
    run(all.own, by_preads(ours.directory()), 0);
  }
  forward.saw(ours);
  forward.saw(theirs);
  const std::string& directory = ours.directory();
  std::vector<Row> rows = {
      row_of("sieve-read", "a server that reads piece by piece (sieve = off, fifo)", all.sieved,
             all.piecewise, directory),
      row_of("sieve-read-own", "2048 preads of its own", all.sieved, all.own, directory)};
  for (Row& row : rows) row.at_least = 1.5;
  return rows;
}

}  // namespace

void sieve_rows(Forward& forward) {
  forward.add({"sieve-read", "sieve-read-own"}, [&] { return measured(forward); });
}

}  // namespace forebay::bench
