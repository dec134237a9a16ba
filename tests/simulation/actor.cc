#include "actor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "transport/shared_pages.h"

namespace forebay::sim {

namespace {

constexpr unsigned kInFlight = 12;  // more than the server gives slots

// Calls fn(offset in the file, place in the stream) for every byte.
template <class Fn>
void each_byte(const Extents& file, Fn&& fn) {
  size_t at = 0;
  for (ExtentCursor c(file); !c.done();) {
    const Extent e = c.take(file.total());
    for (uint64_t i = 0; i < e.length.value; ++i) fn(e.offset.value + i, at++);
  }
}

}  // namespace

struct Actor::Read {
  Extents file;
  std::string bytes;
  std::string expected;
  std::vector<std::shared_ptr<Shape>> writers;  // byte by byte: whose it is
};

Actor::Actor(World& world, SharedFile& file, unsigned number, unsigned operations)
    : world_(world),
      file_(file),
      number_(number),
      store_(world.connect(fmt::format("client{}", number))),
      left_(operations),
      region_(kRegion, '\0'),
      writers_(kRegion) {}

// The store waits for what is under way, and that comes back here.
Actor::~Actor() {
  left_ = 0;
  store_.reset();
}

// ---- Doing ----

void Actor::submit(Request&& request, Completion&& done) {
  request.caller = caller_;
  ++in_flight_;
  store_->submit(std::move(request), std::move(done));
}

void Actor::transfer(Op op, Extents file, std::string& bytes, Completion&& done) {
  ++in_flight_;
  world_.transfer(*store_, data_request(op, std::move(file)), bytes, std::move(done));
}

Result<Reply> Actor::call(Request request) {
  request.caller = caller_;
  return store_->call(std::move(request));
}

void Actor::prepare() {
  Request open;
  open.op = Op::open;
  open.handle = file_.handle;
  open.access = Access::both;
  right_ = call(std::move(open)).value().right;

  Request mkdir;
  mkdir.op = Op::mkdir;
  mkdir.handle = store_->root().value();
  mkdir.name = fmt::format("folder{}", number_);
  mkdir.mode = 0700;
  folder_ = call(std::move(mkdir)).value().handle;
}

void Actor::finished() {
  --in_flight_;
  go_on();
}

// Not by recursion: what is wrong with a request may complete it at once.
void Actor::go_on() {
  if (std::exchange(running_, true)) return;
  while (left_ > 0 && in_flight_ < kInFlight) {
    --left_;
    step();
  }
  running_ = false;
}

void Actor::step() {
  switch (world_.random(8)) {
    case 0:
    case 1:
    case 2:
      return write_region();
    case 3:
    case 4:
      return read_region();
    case 5:
      return world_.random(2) ? write_register() : read_register();
    default:
      return change_names();
  }
}

// ---- The actor's own region ----

// Blocks in any order that do not overlap: which bytes of an overlap would win is nobody's promise.
std::vector<Extent> Actor::list(uint64_t count) {
  const uint64_t step = kRegion / count;
  std::vector<Extent> blocks;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = world_.random(step), length = 1 + world_.random(step - at);
    blocks.push_back({Offset(number_ * kRegion + i * step + at), Length(length)});
    std::swap(blocks[world_.random(blocks.size())], blocks.back());
  }
  return blocks;
}

Actor::Shape Actor::shape() {
  const uint64_t base = number_ * kRegion;
  const auto place = [&](uint64_t length) {
    return Offset(base + world_.random(kRegion - length));
  };
  std::vector<Extent> blocks;
  std::vector<Stride> loops;
  switch (world_.random(8)) {
    case 0: {  // strided
      const uint64_t count = 2 + world_.random(20), stride = 100 + world_.random(400);
      const uint64_t length = 1 + world_.random(stride);
      blocks.push_back({place(count * stride), Length(length)});
      loops.push_back({count, static_cast<int64_t>(stride)});
      break;
    }
    case 1:  // a list, now and then longer than the server takes
      blocks = list(2 + world_.random(world_.chance(0.1) ? 3000 : 30));
      break;
    case 2: {  // whole pages, without which no read is lent
      const uint64_t length = SharedPages::kPage * (1 + world_.random(4));
      blocks.push_back({place(length), Length(length)});
      break;
    }
    default: {
      const uint64_t length = 1 + world_.random(world_.chance(0.6) ? 512 : 16000);
      blocks.push_back({place(length), Length(length)});
    }
  }
  Shape s{Extents::make(std::move(blocks), std::move(loops)).value(), {}};
  s.bytes.resize(s.file.total().value);
  return s;
}

Request Actor::data_request(Op op, Extents file) const {
  Request r;
  r.op = op;
  r.caller = caller_;
  r.handle = file_.handle;
  r.right = right_;
  r.file = std::move(file);
  return r;
}

void Actor::write_region() {
  auto s = std::make_shared<Shape>(shape());
  for (char& c : s->bytes) c = static_cast<char>(world_.random(256));
  each_byte(s->file, [&](uint64_t offset, size_t at) {
    region_[offset - number_ * kRegion] = s->bytes[at];
    writers_[offset - number_ * kRegion] = s;
  });
  transfer(Op::write, s->file, s->bytes, [this, s](Result<Reply>&& result) {
    s->unknown = lost(result);
    EXPECT_TRUE(result || s->unknown) << "write: " << (result ? "" : result.error().message());
    if (result) {
      EXPECT_EQ(result->count, s->bytes.size());
    }
    finished();
  });
}

void Actor::read_region() {
  Shape s = shape();
  const auto read = reads_.emplace(reads_.end());
  read->file = s.file;
  read->bytes = s.bytes;
  read->expected = s.bytes;
  read->writers.resize(s.bytes.size());
  each_byte(s.file, [&](uint64_t offset, size_t at) {
    read->expected[at] = region_[offset - number_ * kRegion];
    read->writers[at] = writers_[offset - number_ * kRegion];
  });
  transfer(Op::read, s.file, read->bytes, [this, read](Result<Reply>&& result) {
    EXPECT_TRUE(result) << "read: " << (result ? "" : result.error().message());
    if (result) {
      EXPECT_EQ(result->count, read->bytes.size());
    }
    check(*read);
    reads_.erase(read);
    finished();
  });
}

// The server forgot the session with the write under way: it may have been done.
bool Actor::lost(const Result<Reply>& result) {
  const bool unknown = !result && result.error().is_outcome_unknown();
  unknown_ += unknown;
  return unknown;
}

void Actor::check(Read& read) const {
  for (size_t at = 0; at < read.bytes.size(); ++at) {
    if (read.writers[at] && read.writers[at]->unknown) read.expected[at] = read.bytes[at];
  }
  EXPECT_TRUE(read.bytes == read.expected)
      << "a read of " << read.bytes.size() << " bytes did not see just what was written before it";
}

// ---- The register of all ----

void Actor::write_register() {
  const uint64_t value = world_.tick();
  auto bytes = std::make_shared<std::string>(kRegister, '\0');
  for (size_t i = 0; i < kRegister; i += sizeof value) {
    std::memcpy(bytes->data() + i, &value, sizeof value);
  }
  file_.history.write_begins(value, value);
  const Extents where(Extent{Offset(file_.register_at), Length(kRegister)});
  transfer(Op::write, where, *bytes, [this, bytes, value](Result<Reply>&& result) {
    const bool unknown = lost(result);
    EXPECT_TRUE(result || unknown) << "register: " << (result ? "" : result.error().message());
    if (result) file_.history.write_ends(value, world_.tick());
    finished();
  });
}

void Actor::read_register() {
  const uint64_t begin = world_.tick();
  auto bytes = std::make_shared<std::string>(kRegister, '\0');
  const Extents where(Extent{Offset(file_.register_at), Length(kRegister)});
  transfer(Op::read, where, *bytes, [this, bytes, begin](Result<Reply>&& result) {
    EXPECT_TRUE(result) << "register: " << (result ? "" : result.error().message());
    uint64_t first;
    std::memcpy(&first, bytes->data(), sizeof first);
    bool torn = false;
    for (size_t i = 0; i < kRegister; i += sizeof first) {
      torn |= std::memcmp(bytes->data() + i, &first, sizeof first) != 0;
    }
    if (torn) {
      EXPECT_TRUE(world_.climate.forgetful()) << "a read saw half of a write";
    } else {
      EXPECT_TRUE(file_.history.may_read(first, begin, world_.tick()))
          << "value " << first << " of the register was overwritten";
    }
    finished();
  });
}

// ---- Names ----

void Actor::change_names() {
  Request r;
  r.handle = folder_;
  const std::string fresh = fmt::format("{}-{}", number_, ++names_);
  const uint64_t kind = world_.random(5);
  std::string made = fresh;
  if (kind < 2 && !there_.empty()) {
    std::swap(there_[world_.random(there_.size())], there_.back());
    r.name = std::move(there_.back());
    there_.pop_back();
    if (kind == 0) {
      r.op = Op::remove;
      r.flags = kFlagDirectory;
      made.clear();
    } else {
      r.op = Op::rename;
      r.handle2 = folder_;
      r.name2 = fresh;
    }
  } else if (kind == 2) {
    r.op = Op::symlink;
    r.name = fresh;
    r.data = "target";
    made.clear();
  } else if (kind == 3) {
    r.op = Op::create;
    r.name = fresh;
    r.mode = 0600;
    r.flags = kFlagExclusive;
    made.clear();
  } else {
    r.op = Op::mkdir;
    r.name = fresh;
    r.mode = 0700;
  }
  const Op op = r.op;
  const std::string name = r.name2.empty() ? r.name : r.name2;
  submit(std::move(r), [this, op, name, made](Result<Reply>&& result) {
    check_names(op, name, result);
    if (result && !made.empty()) there_.push_back(made);
    finished();
  });
}

void Actor::check_names(Op op, const std::string& name, const Result<Reply>& result) {
  const Disk::Seen seen = world_.disk.seen(op, name);
  const std::string what = fmt::format("{} {}", op_info(op).name, name);
  if (result) {
    EXPECT_EQ(seen.successes, 1) << what << " is said to have happened";
    EXPECT_EQ(seen.attempts, 1) << what;
    return;
  }
  EXPECT_TRUE(result.error().is_outcome_unknown()) << what << ": " << result.error().message();
  EXPECT_TRUE(world_.climate.forgetful()) << what << ": nothing was forgotten here";
  EXPECT_LE(seen.attempts, 1) << what;
  ++unknown_;
}

// ---- In the end ----

void Actor::verify() {
  std::string bytes(kRegion, '?');
  const Extents all(Extent{Offset(number_ * kRegion), Length(kRegion)});
  Request read = data_request(Op::read, all);
  read.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  EXPECT_TRUE(call(std::move(read)));
  for (size_t at = 0; at < kRegion; ++at) {
    if (writers_[at] && writers_[at]->unknown) region_[at] = bytes[at];
  }
  EXPECT_TRUE(bytes == region_) << "the region of client " << number_ << " is not what it wrote";
  for (const std::string& name : there_) {
    Request lookup;
    lookup.op = Op::lookup;
    lookup.handle = folder_;
    lookup.name = name;
    EXPECT_TRUE(call(std::move(lookup))) << name << " is gone";
  }
}

}  // namespace forebay::sim
