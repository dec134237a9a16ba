#include "server/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/crc32c.h"

namespace forebay::server {

namespace {

constexpr std::string_view kMagic = "FBSTATE1";
constexpr size_t kFixedHead = 8 + 4 + 4 + 8 + 8;  // magic, size, checksum, id, first record

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put_number(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof bytes);
}

uint64_t fresh_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  }
  return id;
}

Result<std::string> read_all(int fd, const std::string& path) {
  std::string bytes;
  char part[65536];
  for (;;) {
    const ssize_t n = ::read(fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(errno, path);
    if (n == 0) return bytes;
    bytes.append(part, static_cast<size_t>(n));
  }
}

}  // namespace

Error Journal::failed(const char* what, const std::string& path) const {
  return Error(errno, fmt::format("{}: {}", path, what));
}

Result<std::unique_ptr<Journal>> Journal::open(Options options, const Take& take) {
  const std::string lock_path = options.path + ".lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return Error(errno, lock_path);
  std::unique_ptr<Journal> journal(new Journal(std::move(options), lock));
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return Error(EBUSY,
                 fmt::format("{}: another server keeps its state there", journal->options_.path));
  }
  if (auto loaded = journal->load(take); !loaded) {
    return std::move(loaded).error().at(journal->options_.path);
  }
  return journal;
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
  ::close(lock_);
}

Result<void> Journal::load(const Take& take) {
  ::unlink((options_.path + ".new").c_str());  // of a compaction that was not finished
  compact_at_ = options_.compact_at;
  fd_ = ::open(options_.path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0 && errno == ENOENT) {
    made_ = true;
    id_ = fresh_id();
    return replace({1, {}});
  }
  if (fd_ < 0) return Error(errno);
  auto bytes = read_all(fd_, options_.path);
  if (!bytes) return std::move(bytes).error();
  auto start = read_head(*bytes);
  if (!start) return std::move(start).error();
  auto replayed = attr::replay(std::string_view(*bytes).substr(*start), next_, take);
  if (!replayed) return std::move(replayed).error();
  next_ = replayed->next;
  torn_ = replayed->torn;
  size_ = *start + replayed->good;
  if (torn_ != 0 && ::ftruncate(fd_, static_cast<off_t>(size_)) != 0) return Error(errno);
  return {};
}

// Where its records begin. A journal gets its name when its head is written: there is no torn one.
Result<uint64_t> Journal::read_head(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < kFixedHead) {
    return Error(EBADMSG, "is not a journal of Forebay's shared state");
  }
  const auto size = number_at<uint32_t>(bytes, 8);
  const auto sum = number_at<uint32_t>(bytes, 12);
  if (size < 16 || size > bytes.size() - 16 || crc32c(bytes.substr(16, size)) != sum) {
    return Error(EBADMSG, "damaged in its head");
  }
  id_ = number_at<uint64_t>(bytes, 16);
  next_ = number_at<uint64_t>(bytes, 24);
  const std::string_view owner = bytes.substr(kFixedHead, size - 16);
  if (owner != options_.owner) {
    return Error(EXDEV, fmt::format("is the state of {}, and not of {}", owner, options_.owner));
  }
  return uint64_t{16} + size;
}

std::string Journal::head(uint64_t first) const {
  std::string body;
  put_number(body, id_);
  put_number(body, first);
  body += options_.owner;
  std::string out(kMagic);
  put_number(out, static_cast<uint32_t>(body.size()));
  put_number(out, crc32c(body));
  return out + body;
}

uint64_t Journal::add(const attr::Command& command) {
  attr::append_record(buffer_, next_, command);
  return next_++;
}

std::string Journal::take() {
  return std::exchange(buffer_, {});
}

Result<void> Journal::put(int fd, std::string_view bytes, const std::string& path) const {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot be written", path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (options_.sync && ::fdatasync(fd) != 0) return failed("cannot be synced", path);
  return {};
}

Result<void> Journal::write(std::string_view records) {
  auto written = put(fd_, records, options_.path);
  failed_ = !written;
  size_ += records.size();
  return written;
}

Journal::Snapshot Journal::take_snapshot(const attr::State& state) {
  Snapshot snapshot{next_, {}};
  buffer_.clear();
  state.snapshot(
      [&](const attr::Command& c) { attr::append_record(snapshot.records, next_++, c); });
  return snapshot;
}

// The new file is whole before it has the name; until then the old one is good.
Result<void> Journal::replace(const Snapshot& snapshot) {
  const std::string path = options_.path + ".new";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  failed_ = true;
  if (fd < 0) return failed("cannot be made", path);
  const std::string bytes = head(snapshot.first) + snapshot.records;
  auto written = put(fd, bytes, path);
  // The name must not be there before the bytes are, whatever becomes of the machine.
  if (written && ::fdatasync(fd) != 0) written = failed("cannot be synced", path);
  if (written && ::rename(path.c_str(), options_.path.c_str()) != 0) {
    written = failed("cannot be renamed", path);
  }
  if (!written) return ::close(fd), written;
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  size_ = bytes.size();
  compact_at_ = std::max<uint64_t>(options_.compact_at, 2 * size_);
  failed_ = false;
  if (!options_.sync) return {};
  const std::string folder = options_.path.substr(0, options_.path.rfind('/') + 1);
  const int dir = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = dir >= 0 && ::fsync(dir) == 0;
  if (dir >= 0) ::close(dir);
  return synced ? Result<void>() : failed("cannot be synced", folder);
}

}  // namespace forebay::server
