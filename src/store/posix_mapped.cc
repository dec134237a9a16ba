#include "store/posix_mapped.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/rows.h"
#include "store/posix_direct.h"
#include "store/posix_io.h"
#include "store/posix_sigbus.h"

namespace forebay::posix {

namespace {

// Mapping, unmapping and the signal's handler take as long as some ten small system calls, growing
// a file as twenty.
constexpr uint64_t kLeastPieces = 32;
// Fewer and larger windows were better: each new end of file is a lock that all faults wait for.
constexpr uint64_t kWindow = 64_MiB;
constexpr size_t kMostRows = 8192;    // of one step
constexpr size_t kMostListed = 8192;  // pieces, of one list for system calls
constexpr uint64_t kPage = 4_KiB;     // to count with; the kernel's may be larger
constexpr uint64_t kHugePage = 2_MiB;
// A fault of a read maps 16 small pages, which takes as long as 8 small reads or more.
constexpr uint64_t kSample = 1_MiB;
constexpr uint64_t kLeastSampled = 256;  // pieces: a sample in vain takes as long as some 100 reads
constexpr uint64_t kReadsOfAFault = 8;

// What there is to do in a range of the file.
struct Load {
  uint64_t pieces = 0;
  uint64_t bytes = 0;
  uint64_t span = 0;

  static Load of(const Extents& file) {
    return {file.pieces(), file.total().value, file.bounds().length.value};
  }

  // A fault costs about as much as a small pwrite. So there should be a piece for each page, or as
  // many bytes as eight processes leave each other if they share a range.
  bool pays(uint64_t most_piece) const {
    constexpr uint64_t kSharers = 8;
    return pieces >= kLeastPieces && bytes / pieces <= most_piece &&
           (span / kSharers <= bytes || a_piece_for_each_page());
  }
  bool a_piece_for_each_page() const { return span / kPage <= pieces; }
};

// Of this thread, so far.
uint64_t faults_so_far() {
  rusage usage;
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

// Of this thread, ns: what it waits for others' turns is nothing that its pages cost.
uint64_t processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  bool covers(uint64_t begin, uint64_t end) const {
    return begin >= begin_ && end <= begin_ + bytes_.size();
  }
  bool map(int fd, uint64_t begin, uint64_t end, bool write) {
    unmap();
    // Whole huge pages: the kernel maps none that sticks out.
    begin_ = round_down(begin, kHugePage);
    const size_t size = round_up(end, kHugePage) - begin_;
    void* const at = ::mmap(nullptr, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                            fd, static_cast<off_t>(begin_));
    if (at == MAP_FAILED) return false;
    bytes_ = {static_cast<std::byte*>(at), size};
    return true;
  }
  // All at once, which saves a third of a fault; whatever is refused shows when it is touched.
  bool fault_in(uint64_t begin, uint64_t end, int how) const {
    const uint64_t from = round_down(begin - begin_, page_size());
    return ::madvise(bytes_.data() + from, end - begin_ - from, how) == 0;
  }
  void advise(int how) const { ::madvise(bytes_.data(), bytes_.size(), how); }
  std::span<std::byte> bytes() const { return bytes_; }
  uint64_t begin() const { return begin_; }

 private:
  static uint64_t page_size() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }
  void unmap() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    bytes_ = {};
  }
  uint64_t begin_ = 0;
  std::span<std::byte> bytes_;
};

// What is copied under the guard. A fault leaves it in the middle.
struct Copy {
  std::span<const Row> rows;
  const Mapping& window;
  const Memory& memory;
  ExtentCursor& cursor;
  RowTo to;
  volatile uint64_t moved = 0;

  static void run(void* context) { static_cast<Copy*>(context)->all(); }
  void all() {
    uint64_t total = 0;
    for (const Row& row : rows) {
      for (uint64_t done = 0; done < row.count;) {
        std::byte* const in_file = window.bytes().data() +
                                   (row.first.offset.value - window.begin()) +
                                   static_cast<int64_t>(done) * row.stride;
        const uint64_t pieces = copy_some(row, row.count - done, in_file, memory, cursor, to);
        done += pieces;
        moved = total += pieces * row.first.length.value;
      }
    }
  }
};

// Moves one list, in steps: as many pieces as lie in one window go through it.
class Mover {
 public:
  Mover(int fd, const Extents& file, const Memory& memory, bool write, const MappedParts& parts)
      : fd_(fd),
        file_(file),
        memory_(memory),
        write_(write),
        parts_(parts),
        places_(file),
        cursor_(memory.shape) {}

  Result<uint64_t> run() {
    bool sample = !write_ && !Load::of(file_).a_piece_for_each_page();
    mappable_ = !sample || worth_a_look();
    while (!places_.done()) {
      gather(sample ? kSample : kWindow);
      if (std::exchange(sample, false) && mappable_) look();
      const bool pays = mappable_ && load().pays(parts_.most_piece);
      if (!pays) gather_more();
      const uint64_t wanted = bytes_;
      uint64_t moved = pays ? by_mapping() : 0;
      if (moved < wanted) {
        Result<uint64_t> rest = by_calls(moved);
        if (!rest) {
          const uint64_t done = done_ + moved + rest.error().done();
          return std::move(rest).error().with_done(done);
        }
        moved += *rest;
      }
      done_ += moved;
      if (moved < wanted) break;
    }
    return done_;
  }

 private:
  // The next pieces, as many as there is room for, that fit in so many bytes of the file.
  void gather(uint64_t window) {
    rows_.clear();
    pieces_ = bytes_ = end_ = 0;
    begin_ = UINT64_MAX;
    while (!places_.done() && rows_.size() < kMostRows) {
      Row row = row_at(file_, places_);
      const uint64_t at = row.first.offset.value;
      const uint64_t begin = std::min(begin_, at);
      // A piece that goes back must leave the window as it is; one that goes on may be cut by it.
      if (end_ > begin + window || at >= begin + window) return;
      fit(row, begin + window - at);
      add(row, begin);
    }
  }

  // Adds to them, wherever they lie.
  void gather_more() {
    while (!places_.done() && rows_.size() < kMostRows) {
      Row row = row_at(file_, places_);
      fit(row, UINT64_MAX);
      add(row, std::min(begin_, row.first.offset.value));
    }
  }

  // Leaves of the row what lies within so many bytes from its start.
  void fit(Row& row, uint64_t room) {
    const uint64_t length = row.first.length.value;
    row.first.length = std::min(row.first.length, Length(std::min(room, kWindow)));
    if (row.stride <= 0 || length > room) row.count = 1;
    if (row.count == 1) return;
    row.count = std::min(row.count, (room - length) / static_cast<uint64_t>(row.stride) + 1);
  }

  void add(const Row& row, uint64_t begin) {
    const uint64_t length = row.first.length.value;
    rows_.push_back(row);
    pieces_ += row.count;
    bytes_ += length * row.count;
    begin_ = begin;
    end_ = std::max(end_, row.first.offset.value + reach(row));
    places_.advance(Length(length * row.count));
  }

  static uint64_t reach(const Row& row) {
    return static_cast<uint64_t>(row.stride) * (row.count - 1) + row.first.length.value;
  }
  Load load() const { return {pieces_, bytes_, end_ - begin_}; }

  // ---- Through the mapping ----

  bool worth_a_look() const {
    if (file_.pieces() < kLeastSampled) return false;
    const unsigned without = parts_.looks.without.load(std::memory_order_relaxed);
    if (without == 0 || apart() < parts_.looks.apart.load(std::memory_order_relaxed)) return true;
    parts_.looks.without.store(without - 1, std::memory_order_relaxed);
    return false;
  }
  void look() {
    constexpr unsigned kWithout = 15;
    mappable_ = few_faults();
    if (mappable_) return;
    parts_.looks.apart.store(apart(), std::memory_order_relaxed);
    parts_.looks.without.store(kWithout, std::memory_order_relaxed);
  }
  uint64_t apart() const { return file_.bounds().length.value / file_.pieces(); }

  // Do its pieces save more calls than its pages cost faults? One more is the first of a huge page.
  bool few_faults() {
    if (!within_file() || !window()) return false;
    const uint64_t before = faults_so_far();
    if (!window_.fault_in(begin_, end_, MADV_POPULATE_READ)) return false;
    return (faults_so_far() - before) * kReadsOfAFault <= pieces_ + kReadsOfAFault;
  }

  // Returns how far it came.
  uint64_t by_mapping() {
    if (!(write_ ? window() && reaches(end_) : within_file() && window())) return 0;
    if (cursor_.position().value != done_) {
      cursor_ = ExtentCursor(memory_.shape);
      cursor_.advance(Length(done_));
    }
    parts_.mapped.add();
    if (write_) fault_in();
    Copy copy{rows_, window_, memory_, cursor_, write_ ? RowTo::row : RowTo::memory};
    if (!guard_.run(window_.bytes(), Copy::run, &copy)) {
      parts_.faults.add();
      cursor_ = ExtentCursor(memory_.shape);  // it was left in the middle of a step
    }
    return copy.moved;
  }

  bool window() {
    if (window_.covers(begin_, end_)) return true;
    mappable_ = mappable_ && window_.map(fd_, begin_, ahead(), write_);
    if (!mappable_) return false;
    trying_ = write_ && !parts_.huge.always() && load().a_piece_for_each_page() &&
              parts_.huge.worth_trying(ahead() - begin_);
    // Where the kernel has none it does nothing. Reads meet those that writers made.
    window_.advise(trying_ || parts_.huge.always() || !write_ ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return true;
  }

  // Pages in which pieces lie close together, before they are touched.
  void fault_in() {
    if (load().a_piece_for_each_page()) {
      const uint64_t tried = trying_ ? try_huge_pages() : begin_;
      if (tried < end_) window_.fault_in(tried, end_, MADV_POPULATE_WRITE);
      return;
    }
    for (const Row& row : rows_) {
      if (row.count == 1 || row.stride > static_cast<int64_t>(kPage)) continue;
      const uint64_t from = row.first.offset.value;
      window_.fault_in(from, from + reach(row), MADV_POPULATE_WRITE);
    }
  }

  // One after the other, until one is dear. Returns how far it came.
  uint64_t try_huge_pages() {
    for (uint64_t at = begin_; at < end_;) {
      const uint64_t next = std::min(end_, round_down(at, kHugePage) + kHugePage);
      const uint64_t before = processor_time();
      if (!window_.fault_in(at, next, MADV_POPULATE_WRITE))
        return end_;  // shows when it is touched
      at = next;
      if (!parts_.huge.dear(processor_time() - before)) continue;
      trying_ = false;
      window_.advise(MADV_NOHUGEPAGE);
      return at;
    }
    return end_;
  }

  // Where a window ends that begins with this step and serves those after it too.
  uint64_t ahead() const {
    return std::max(end_, std::min(file_.bounds().end().value, begin_ + kWindow));
  }

  // Otherwise the end is a read's to find.
  bool within_file() { return end_ <= size_ || (read_size() && end_ <= size_); }

  // The file is at least so long, and has blocks for what makes it longer.
  bool reaches(uint64_t end) {
    if (end <= settled_) return true;
    if (within_file()) return settle();
    if (begin_ < allocated_begin_ || end > allocated_end_) {
      const uint64_t until = ahead();
      if (!allocate(FALLOC_FL_KEEP_SIZE, begin_, until - begin_)) return false;
      allocated_begin_ = begin_;
      allocated_end_ = until;
    }
    if (!allocate(0, end - 1, 1)) return false;
    size_ = settled_ = end;
    return true;
  }

  // Somebody else may have made the file longer just now. The kernel shows the new size before it
  // clears what followed the old one in its page, ours with it: a lock that it holds meanwhile, and
  // that fallocate waits for, is between them.
  bool settle() {
    const bool waited = allocate(FALLOC_FL_KEEP_SIZE, begin_, 1);
    if (waited) settled_ = size_;
    return waited;
  }

  bool allocate(int mode, uint64_t at, uint64_t length) {
    int failed;
    do {
      failed = ::fallocate(fd_, mode, static_cast<off_t>(at), static_cast<off_t>(length));
    } while (failed && errno == EINTR);
    return !failed;
  }

  bool read_size() {
    struct stat st;
    if (::fstat(fd_, &st)) return false;
    size_ = static_cast<uint64_t>(st.st_size);
    return true;
  }

  // ---- By system calls ----

  // What the step has left after `moved` bytes.
  Result<uint64_t> by_calls(uint64_t moved) {
    uint64_t skip = moved, done = 0;
    std::vector<Extent> list;
    for (const Row& row : rows_) {
      for (uint64_t i = 0; i < row.count; ++i) {
        const Length n = std::min(Length(skip), row.first.length);
        skip -= n.value;
        if (n == row.first.length) continue;
        const Offset at(row.first.offset.value + i * static_cast<uint64_t>(row.stride));
        list.push_back({at + n, row.first.length - n});
        if (list.size() < kMostListed) continue;
        if (Result<bool> all = listed(list, moved, done); !all || !*all) return outcome(all, done);
      }
    }
    const Result<bool> last = listed(list, moved, done);
    return outcome(last, done);
  }

  // Moves a list, and empties it; adds to `done`. False if less came.
  Result<bool> listed(std::vector<Extent>& list, uint64_t moved, uint64_t& done) {
    const Result<Extents> file = Extents::make(std::move(list));
    FOREBAY_ASSERT(file.has_value());  // parts of a valid one
    list.clear();
    const Memory part = memory_.slice(Length(done_ + moved + done), file->total());
    Result<uint64_t> now = write_ ? write_list(fd_, *file, part, parts_.calls)
                                  : read_list(fd_, *file, part, parts_.calls);
    done += now ? *now : now.error().done();
    if (!now) return std::move(now).error();
    return *now == file->total().value;
  }

  static Result<uint64_t> outcome(const Result<bool>& last, uint64_t done) {
    if (!last) return Error(last.error()).with_done(done);
    return done;
  }

  const int fd_;
  const Extents& file_;
  const Memory& memory_;
  const bool write_;
  const MappedParts& parts_;
  ExtentCursor places_, cursor_;
  BusGuard guard_;
  Mapping window_;
  bool mappable_ = true;
  bool trying_ = false;  // whether huge pages are cheap now
  uint64_t done_ = 0;    // before this step
  std::vector<Row> rows_;
  uint64_t pieces_ = 0, bytes_ = 0, begin_ = 0, end_ = 0;  // of the rows
  uint64_t size_ = 0, settled_ = 0;                        // the file had once; see settle()
  uint64_t allocated_begin_ = 0, allocated_end_ = 0;       // by us
};

}  // namespace

bool huge_pages_are_cheap(const std::filesystem::path& balloons) {
  constexpr size_t kReporting = 5;  // the feature's bit: free memory is reported, and taken
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator(balloons, none)) {
    std::string features;
    std::ifstream(device.path() / "features") >> features;
    if (features.size() > kReporting && features[kReporting] == '1') return false;
  }
  return true;
}

bool HugePages::worth_trying(uint64_t bytes) {
  const uint64_t without = without_.load(std::memory_order_relaxed);
  if (without == 0) return true;
  without_.store(without - std::min(without, bytes), std::memory_order_relaxed);
  return false;
}

// The same bytes in small pages take 1.3 to 1.7 ms; one that was there already takes next to
// nothing, and says nothing.
bool HugePages::dear(uint64_t time) {
  constexpr uint64_t kNew = 50'000, kDear = 1'500'000;
  if (time < kDear) {
    if (time > kNew) rest_.store(kFirstRest, std::memory_order_relaxed);
    return false;
  }
  const uint64_t rest = rest_.load(std::memory_order_relaxed);
  without_.store(rest, std::memory_order_relaxed);
  rest_.store(std::min(2 * rest, kMostRest), std::memory_order_relaxed);
  return true;
}

bool worth_mapping(const Extents& file, uint64_t most_piece) {
  return Load::of(file).pays(most_piece);
}

Result<uint64_t> read_mapped(int fd, const Extents& file, const Memory& memory,
                             const MappedParts& parts) {
  return Mover(fd, file, memory, false, parts).run();
}

Result<uint64_t> write_mapped(int fd, const Extents& file, const Memory& memory,
                              const MappedParts& parts) {
  return Mover(fd, file, memory, true, parts).run();
}

}  // namespace forebay::posix
