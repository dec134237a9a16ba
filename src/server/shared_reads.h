// SharedReads: scattered reads of one file that are under way at the same time, read together.
//
// Processes that each read their own part of the same stretch (every eighth block of it, the rows
// of a cube) would each read all of it to sieve (plan/sieve.h). Here requests are cut into windows
// within cells, multiples of a buffer's size in the file. A cell is read once for everybody who has
// come by then: what lies between the first and the last byte that any of them wants of it, without
// holes that are dearer than a call; and each takes its bytes out of it. While cells are read,
// those who come late gather; the lowest cell goes next, so that they catch up, and now and then
// the one that has waited longest.
//
// Nothing is kept: a request gets bytes that were read after it came. Each request must be admitted
// by itself (Store::admits), for the bytes may come by another one's right.
//
// As a sieved read it is never worse in what it says than a plain one: if a cell cannot be read,
// the requests that wanted some of it are done again as they came.
//
// Threads: any. One lock, never held while the Store or a completion runs.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/buffer_pool.h"
#include "plan/sieve.h"
#include "store/store.h"

namespace forebay::server {

struct SieveCounters;

class SharedReads : public std::enable_shared_from_this<SharedReads> {
 public:
  // `costs.window` is no more than a buffer of the pool. Store and pool must outlive it, but for
  // what close() says.
  SharedReads(Store& store, BufferPool& pool, const plan::SieveCosts& costs,
              const SieveCounters& counters);

  // False if it is nothing for here: too scattered, or not rising through the file, so that what
  // comes in any order could go beyond the count of a read that meets the end. A well-formed read,
  // admitted.
  bool submit(Request& request, Completion& done);
  // From now on nothing is issued, and what waits fails. What the Store has in hand ends.
  void close();

 private:
  struct Reader;  // a request
  struct Part {   // of one, in a cell
    std::shared_ptr<Reader> reader;
    Extent window;
    Length position, length;  // in the stream
  };
  struct Cell {
    std::vector<Part> parts;
    uint64_t since = 0;
  };
  struct File {
    std::map<uint64_t, Cell> cells;  // that wait, by number
    unsigned out = 0;                // cells with the Store
  };
  struct Reading;  // a cell with the Store

  bool cut(const std::shared_ptr<Reader>& reader, std::vector<Part>& parts,
           std::vector<Part>& stretches) const;
  void pump();
  std::unique_ptr<Reading> next();
  void issue(std::unique_ptr<Reading> reading);
  void read_apart(Part part);
  void read_again(const std::shared_ptr<Reader>& reader);
  void landed(Reading& reading, const Result<Reply>& result);
  void ended(const Part& part, uint64_t count);
  void failed(const Part& part, int code);
  void left(const std::shared_ptr<Reader>& reader);
  bool begin_issuing();
  void end_issuing();

  Store& store_;
  BufferPool& pool_;
  const plan::SieveCosts costs_;
  const SieveCounters& counters_;
  const unsigned most_out_, most_of_file_;

  std::mutex mutex_;
  std::condition_variable quiet_;
  std::unordered_map<std::string, File> files_;  // those with cells
  std::string last_;                             // the file that had its turn
  uint64_t arrived_ = 0, issued_ = 0;            // cells
  unsigned out_ = 0;
  bool pumping_ = false;
  unsigned issuing_ = 0;
  bool closing_ = false;
};

}  // namespace forebay::server
