// OpenShop: work of rows at columns, cut into shifts in which every row works at one column at most
// and every column has one row at most (a preemptive open shop; T. Gonzalez, S. Sahni, "Open shop
// scheduling to minimize finish time", 1976; in other words an edge colouring of a bipartite
// multigraph by matchings).
//
// 1. The shifts together are as long as the longest row or column, which is the least possible.
//    Whoever has work for all the time that is left is critical, and every shift has a place for
//    all that are critical: such a matching always exists (Koenig; Mendelsohn and Dulmage).
// 2. A pair that works together goes on until its work is done or its place is needed by somebody
//    critical.
// 3. Whoever is idle begins with the shortest work that it finds; rows with much left choose first.
// 4. No row is idle for which a column with work for it is idle too.
//
// Pure. One thread. A shift costs O(rows) and the search for its new pairs: in words of bits, so
// that thousands of rows and hundreds of columns are planned in tenths of a second.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::plan {

class OpenShop {
 public:
  static constexpr uint32_t kIdle = UINT32_MAX;

  // `work`: [row * columns + column], in units of time.
  OpenShop(size_t rows, size_t columns, std::vector<uint32_t> work);

  // Of all shifts that are still to come.
  uint64_t left() const { return left_; }
  // Plans a shift and returns its length; 0 after the last.
  uint64_t next();
  // Of this shift: the column of each row, or kIdle.
  std::span<const uint32_t> columns_of_rows() const { return rows_.partner; }

 private:
  // Bits for those of one side, by words.
  using Bits = std::vector<uint64_t>;
  struct Side {
    Side(size_t size, size_t others);
    size_t size, words;             // words of a line of `works_with`
    std::vector<uint64_t> load;     // what each has left
    std::vector<uint32_t> partner;  // of this shift
    Bits works_with;                // for each, a line of bits: with whom it has work left
    Bits idle;
  };

  void work(uint64_t length);
  void pair_idle();
  uint32_t shortest(uint32_t row) const;
  void cover_critical(Side& mine, Side& others);
  void cover(Side& mine, Side& others, uint32_t from);
  uint64_t length() const;
  void sort_by_load();
  bool critical(const Side& side, uint32_t i) const { return side.load[i] == left_; }
  void pair(Side& mine, Side& others, uint32_t i, uint32_t other);
  void release(Side& side, uint32_t i);

  std::vector<uint32_t> work_;
  Side rows_, columns_;
  uint64_t left_ = 0;
  uint64_t last_ = 0;              // length of the shift that is planned
  std::vector<uint32_t> by_load_;  // the rows, most left first
  std::vector<uint32_t> resting_, working_;
  // Of a search: how it came to each of the others, and whom it has still to look at.
  std::vector<uint32_t> came_from_, queue_;
  Bits seen_;
};

}  // namespace forebay::plan
