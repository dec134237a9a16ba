// Actor: a client of the simulated world that does random operations and checks every answer.
//
// What it checks, which is what DESIGN.md promises ("Order", "Once"):
//  - data: in a region of a shared file that is its own, reads and writes overlap freely, many in
//    flight. A read sees exactly the writes submitted before it. (If the connection was lost
//    meanwhile, a read is done again, and may see writes submitted after it as well.)
//  - registers: a range that all actors write and read whole. A read sees one write, not a mixture,
//    and none that was overwritten before it began (history.h). A crash may leave a mixture until
//    the writer has repeated itself.
//  - names: operations that must not be done twice, each on a name of its own, reached the file
//  system
//    at most once; success means that it happened, an error that it did not, and only a world that
//    can forget says that it does not know.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "history.h"
#include "world.h"

namespace forebay::sim {

inline constexpr uint64_t kRegion = 64_KiB;
inline constexpr uint64_t kRegister = 12_KiB;  // three chunks

struct SharedFile {
  Handle handle;
  History history;           // of the register
  uint64_t register_at = 0;  // after the regions
};

class Actor {
 public:
  Actor(World& world, SharedFile& file, unsigned number, unsigned operations);
  ~Actor();

  // With a calm world: opens the file, makes a folder.
  void prepare();
  void begin() { go_on(); }
  bool done() const { return left_ == 0 && in_flight_ == 0; }
  // With a calm world again: is everything as it should be?
  void verify();

  uint64_t unknown() const { return unknown_; }
  RemoteStore::Stats stats() const { return store_->stats(); }

 private:
  struct Read;
  struct Shape {
    Extents file;
    std::string bytes;
    bool unknown = false;  // a write whose outcome is
  };

  void go_on();
  void step();
  void finished();
  void submit(Request&& request, Completion&& done);
  void transfer(Op op, Extents file, std::string& bytes, Completion&& done);
  Result<Reply> call(Request request);

  std::vector<Extent> list(uint64_t count);
  Shape shape();
  Request data_request(Op op, Extents file) const;
  void write_region();
  void read_region();
  void check(Read& read) const;
  bool lost(const Result<Reply>& result);
  void write_register();
  void read_register();
  void change_names();
  void check_names(Op op, const std::string& name, const Result<Reply>& result);

  World& world_;
  SharedFile& file_;
  const unsigned number_;
  std::unique_ptr<RemoteStore> store_;
  CallerRef caller_ = this_process_caller();
  Right right_;
  Handle folder_;

  unsigned left_;
  unsigned in_flight_ = 0;
  bool running_ = false;
  uint64_t names_ = 0, unknown_ = 0;
  std::string region_;                           // as it must be once everything is done
  std::vector<std::shared_ptr<Shape>> writers_;  // byte by byte: whose it is
  std::list<Read> reads_;
  std::vector<std::string> there_;  // names known to exist, and nobody is at work on them
};

}  // namespace forebay::sim
