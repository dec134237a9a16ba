#include "attr/record.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>

#include "core/crc32c.h"

namespace forebay::attr {

namespace {

static_assert(std::endian::native == std::endian::little);

enum Has : uint8_t { kHasOnce = 1, kHasName = 2, kHasHandle = 4, kHasExtra = 8 };

template <class T>
void put(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof bytes);
}

// Reads from the front; after a read beyond the end it is not ok().
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    T value{};
    if (bytes_.size() < sizeof value) return ok_ = false, value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view text() {
    const auto size = get<uint16_t>();
    if (bytes_.size() < size) return ok_ = false, std::string_view();
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }
  bool ended() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

struct Record {
  uint64_t number = 0;
  Command command;
};

std::optional<Record> parse(std::string_view body) {
  Reader in(body);
  Record r;
  r.number = in.get<uint64_t>();
  r.command.kind = static_cast<Command::Kind>(in.get<uint8_t>());
  const auto has = in.get<uint8_t>();
  r.command.file = in.get<uint32_t>();
  r.command.value = in.get<uint64_t>();
  if (has & kHasExtra) r.command.extra = in.get<uint64_t>();
  if (has & kHasOnce) {
    r.command.once.client = in.get<uint64_t>();
    r.command.once.client2 = in.get<uint64_t>();
    r.command.once.sequence = in.get<uint64_t>();
    r.command.once.lane = in.get<uint16_t>();
  }
  if (has & kHasName) r.command.name = in.text();
  if (has & kHasHandle) r.command.handle = in.text();
  if (!in.ended()) return std::nullopt;
  return r;
}

// The record at the front, if it is whole and good.
std::optional<Record> first_record(std::string_view bytes, size_t& size) {
  Reader in(bytes);
  const auto length = in.get<uint32_t>();
  const auto sum = in.get<uint32_t>();
  if (bytes.size() < kRecordFrame || length == 0 || length > kMaxRecord ||
      length > bytes.size() - kRecordFrame) {
    return std::nullopt;
  }
  const std::string_view body = bytes.substr(kRecordFrame, length);
  if (crc32c(body) != sum) return std::nullopt;
  size = kRecordFrame + length;
  return parse(body);
}

// Where behind the damage the next good record is.
std::optional<size_t> good_behind(std::string_view bytes, uint64_t expected) {
  size_t size = 0;
  for (size_t at = 1; at + kRecordFrame < bytes.size(); ++at) {
    const auto found = first_record(bytes.substr(at), size);
    if (found && found->number > expected) return at;
  }
  return std::nullopt;
}

Error damaged(size_t at, std::string_view why) {
  return Error(EBADMSG, fmt::format("damaged at byte {} of its records: {}", at, why));
}

}  // namespace

std::string pack(const Intent& intent) {
  std::string out;
  put(out, static_cast<uint8_t>(intent.op));
  for (const std::string* text : {&intent.dir.bytes, &intent.dir2.bytes, &intent.name,
                                  &intent.name2, &intent.identity, &intent.home}) {
    put(out, static_cast<uint16_t>(text->size()));
    out.append(*text);
  }
  return out;
}

std::optional<Intent> unpack(std::string_view bytes) {
  Reader in(bytes);
  Intent out;
  out.op = static_cast<Op>(in.get<uint8_t>());
  for (std::string* text :
       {&out.dir.bytes, &out.dir2.bytes, &out.name, &out.name2, &out.identity, &out.home}) {
    *text = in.text();
  }
  if (!in.ended() || static_cast<int>(out.op) >= kOpCount) return std::nullopt;
  return out;
}

void append_record(std::string& to, uint64_t number, const Command& c) {
  const size_t start = to.size();
  to.append(kRecordFrame, '\0');
  uint8_t has = 0;
  if (!(c.once == Once{})) has |= kHasOnce;
  if (!c.name.empty()) has |= kHasName;
  if (!c.handle.empty()) has |= kHasHandle;
  if (c.extra != 0) has |= kHasExtra;
  put(to, number);
  put(to, static_cast<uint8_t>(c.kind));
  put(to, has);
  put(to, c.file);
  put(to, c.value);
  if (has & kHasExtra) put(to, c.extra);
  if (has & kHasOnce) {
    put(to, c.once.client);
    put(to, c.once.client2);
    put(to, c.once.sequence);
    put(to, c.once.lane);
  }
  for (const auto& [bit, text] : {std::pair(kHasName, c.name), std::pair(kHasHandle, c.handle)}) {
    if (!(has & bit)) continue;
    put(to, static_cast<uint16_t>(text.size()));
    to.append(text);
  }
  const std::string_view body = std::string_view(to).substr(start + kRecordFrame);
  const auto size = static_cast<uint32_t>(body.size());
  const uint32_t sum = crc32c(body);
  std::memcpy(to.data() + start, &size, sizeof size);
  std::memcpy(to.data() + start + sizeof size, &sum, sizeof sum);
}

Result<Replayed> replay(std::string_view records, uint64_t first,
                        const std::function<Result<void>(const Command&)>& take) {
  Replayed out{first, 0, 0};
  while (out.good < records.size()) {
    const std::string_view rest = records.substr(out.good);
    size_t size = 0;
    const auto record = first_record(rest, size);
    if (!record) {
      if (const auto next = good_behind(rest, out.next)) {
        return damaged(out.good, fmt::format("and good again at byte {}", out.good + *next));
      }
      out.torn = rest.size();
      return out;
    }
    if (record->number != out.next) {
      return damaged(out.good,
                     fmt::format("record {} where {} should be", record->number, out.next));
    }
    if (auto taken = take(record->command); !taken) {
      return damaged(out.good, taken.error().message());
    }
    out.good += size;
    ++out.next;
  }
  return out;
}

}  // namespace forebay::attr
