#include "store/posix_mapped.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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
constexpr size_t kMostPieces = 8192;  // of one step
constexpr uint64_t kPage = 4_KiB;     // to count with; the kernel's may be larger

// What there is to do in a range of the file.
struct Load {
  uint64_t pieces = 0;
  uint64_t bytes = 0;
  uint64_t span = 0;

  // A fault costs about as much as a small pwrite. So there should be a piece for each page, or as
  // many bytes as eight processes leave each other if they share a range.
  bool pays(uint64_t most_piece) const {
    constexpr uint64_t kSharers = 8;
    return pieces >= kLeastPieces && bytes / pieces <= most_piece &&
           (span / kSharers <= bytes || span / kPage <= pieces);
  }
};

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
    begin_ = round_down(begin, page_size());
    const size_t size = end - begin_;
    void* const at = ::mmap(nullptr, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                            fd, static_cast<off_t>(begin_));
    if (at == MAP_FAILED) return false;
    bytes_ = {static_cast<std::byte*>(at), size};
    return true;
  }
  // All at once, which saves a third of a fault; whatever is refused shows when it is touched.
  void fault_in(uint64_t begin, uint64_t end) const {
    const uint64_t from = round_down(begin - begin_, page_size());
    ::madvise(bytes_.data() + from, end - begin_ - from, MADV_POPULATE_WRITE);
  }
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
  std::span<const Extent> pieces;
  const Mapping& window;
  const Memory& memory;
  ExtentCursor& cursor;
  bool write;
  volatile uint64_t moved = 0;

  static void run(void* context) { static_cast<Copy*>(context)->all(); }
  void all() {
    uint64_t total = 0;
    for (const Extent& piece : pieces) {
      std::byte* in_file = window.bytes().data() + (piece.offset.value - window.begin());
      for (uint64_t left = piece.length.value; left > 0;) {
        const Extent part = cursor.take(Length(left));
        const uint64_t n = part.length.value;
        std::byte* const in_memory = memory.at(part.offset);
        std::memcpy(write ? in_file : in_memory, write ? in_memory : in_file, n);
        in_file += n;
        left -= n;
        moved = total += n;
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
        cursor_(memory.shape) {
    pieces_.reserve(std::min<uint64_t>(file.pieces(), kMostPieces));
  }

  Result<uint64_t> run() {
    while (!places_.done()) {
      gather(true);
      const bool pays = Load{pieces_.size(), bytes_, end_ - begin_}.pays(parts_.most_piece(write_));
      if (!pays) gather(false);
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
  // The next pieces: those that fit in one window, or (adding to them) as many as there is room
  // for.
  void gather(bool window) {
    if (window) {
      pieces_.clear();
      bytes_ = end_ = 0;
      begin_ = UINT64_MAX;
    }
    while (!places_.done() && pieces_.size() < kMostPieces) {
      const uint64_t at = places_.current().offset.value;
      const uint64_t begin = std::min(begin_, at);
      // A piece that goes back must leave the window as it is; one that goes on may be cut by it.
      if (window && (end_ > begin + kWindow || at >= begin + kWindow)) return;
      const Extent piece = places_.take(Length(window ? begin + kWindow - at : kWindow));
      pieces_.push_back(piece);
      bytes_ += piece.length.value;
      begin_ = begin;
      end_ = std::max(end_, piece.end().value);
    }
  }

  // ---- Through the mapping ----

  // Returns how far it came.
  uint64_t by_mapping() {
    const size_t count = write_ ? pieces_.size() : within_file();
    if (count == 0 || !window() || (write_ && !reaches(end_))) return 0;
    if (cursor_.position().value != done_) {
      cursor_ = ExtentCursor(memory_.shape);
      cursor_.advance(Length(done_));
    }
    parts_.mapped.add();
    if (write_ && (end_ - begin_) / kPage <= pieces_.size()) window_.fault_in(begin_, end_);
    Copy copy{std::span(pieces_).first(count), window_, memory_, cursor_, write_};
    if (!guard_.run(window_.bytes(), Copy::run, &copy)) {
      parts_.faults.add();
      cursor_ = ExtentCursor(memory_.shape);  // it was left in the middle of a step
    }
    return copy.moved;
  }

  bool window() {
    if (window_.covers(begin_, end_)) return true;
    return mappable_ = mappable_ && window_.map(fd_, begin_, ahead(), write_);
  }

  // Where a window ends that begins with this step and serves those after it too.
  uint64_t ahead() const {
    return std::max(end_, std::min(file_.bounds().end().value, begin_ + kWindow));
  }

  // The pieces before the first that is not all in the file, whose end is a read's to find.
  size_t within_file() {
    if (!read_size()) return 0;
    size_t count = 0;
    while (count < pieces_.size() && pieces_[count].end().value <= size_) ++count;
    return count;
  }

  // The file is at least so long, and has blocks for what makes it longer.
  bool reaches(uint64_t end) {
    if (end <= size_ || (read_size() && end <= size_)) return true;
    if (begin_ < allocated_begin_ || end > allocated_end_) {
      const uint64_t until = ahead();
      if (!allocate(FALLOC_FL_KEEP_SIZE, begin_, until - begin_)) return false;
      allocated_begin_ = begin_;
      allocated_end_ = until;
    }
    if (!allocate(0, end - 1, 1)) return false;
    size_ = end;
    return true;
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
    const uint64_t length = bytes_ - moved;
    std::vector<Extent> rest;
    uint64_t skip = moved;
    for (const Extent& piece : pieces_) {
      const uint64_t n = std::min(skip, piece.length.value);
      skip -= n;
      if (n < piece.length.value)
        rest.push_back({piece.offset + Length(n), piece.length - Length(n)});
    }
    const Result<Extents> list = Extents::make(std::move(rest));
    FOREBAY_ASSERT(list.has_value());  // parts of a valid one
    const Memory part = memory_.slice(Length(done_ + moved), Length(length));
    return write_ ? write_list(fd_, *list, part, parts_.calls)
                  : read_list(fd_, *list, part, parts_.calls);
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
  uint64_t done_ = 0;  // before this step
  std::vector<Extent> pieces_;
  uint64_t bytes_ = 0, begin_ = 0, end_ = 0;          // of the pieces
  uint64_t size_ = 0;                                 // the file had once
  uint64_t allocated_begin_ = 0, allocated_end_ = 0;  // by us
};

}  // namespace

uint64_t MappedParts::most_piece(bool write) const {
  constexpr uint64_t kMostRead = 1_KiB;
  return write ? most_written : std::min(most_written, kMostRead);
}

bool worth_mapping(const Extents& file, uint64_t most_piece) {
  return Load{file.pieces(), file.total().value, file.bounds().length.value}.pays(most_piece);
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
