// Random operations, the same on a subject and on an oracle, compared step by step and at the end.
//  - Bytes: list I/O and sizes of one file, against a plain string. Over every subject.
//  - Trees: names, links, renames, attributes, against the memory store, error for error. The
//  memory
//    store itself is judged by the kernel: the posix subject compares the two.
// A failure prints its seed; FOREBAY_SEED replays it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "conformance.h"
#include "core/testing.h"
#include "env.h"
#include "fsck.h"
#include "store/memory.h"
#include "store/trace.h"

namespace forebay::conformance {

namespace {

constexpr int kSteps = 2000;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t n) { return random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::mt19937_64 random_;
};

class Random : public ::testing::TestWithParam<Subject> {
 protected:
  bool lacks(Feature feature) const { return GetParam().lacks.count(feature) != 0; }
  const std::unique_ptr<Fixture> fixture_ =
      GetParam().make([](std::unique_ptr<Store> store) { return store; });
};

// ---- Bytes ----

constexpr uint64_t kSpan = 200'000;  // the file stays below

// Up to 12 blocks under up to two loops, all within [0, kSpan); strides of both signs.
Extents random_extents(Dice& dice, uint64_t most) {
  for (;;) {
    std::vector<Extent> blocks;
    for (uint64_t n = 1 + dice.below(12); n > 0; --n) {
      blocks.push_back({Offset(dice.below(kSpan)), Length(dice.below(1 + most / 12))});
    }
    std::vector<Stride> loops;
    for (uint64_t n = dice.below(3); n > 0; --n) {
      loops.push_back({1 + dice.below(4), static_cast<int64_t>(dice.below(4000)) - 2000});
    }
    auto made = Extents::make(std::move(blocks), std::move(loops));
    if (made && made->bounds().end().value <= kSpan) return std::move(*made);
  }
}

// A memory side of its own shape with the same total: pieces of random length, in random order.
Extents random_memory(Dice& dice, uint64_t total) {
  std::vector<Extent> pieces;
  for (uint64_t at = 0; at < total;) {
    const uint64_t n = std::min(total - at, 1 + dice.below(1 + total / 3));
    pieces.push_back({Offset(at + 5), Length(n)});
    at += n;
  }
  for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[dice.below(i)]);
  return Extents::make(std::move(pieces)).value();
}

struct Bytes {
  Env& env;
  Dice& dice;
  File file;
  std::string image;

  void write() {
    const Extents where = random_extents(dice, 3000);
    const uint64_t total = where.total().value;
    std::string source(total + 10, '\0');
    for (char& c : source) c = static_cast<char>('a' + dice.below(26));
    const Memory from{reinterpret_cast<std::byte*>(source.data()), random_memory(dice, total)};
    MUST(env.ok(env.data_request(Op::write, file, where, from)).count == total);
    walk_pairs(where, from.shape, [&](Extent f, Extent m) {
      if (image.size() < f.end().value) image.resize(f.end().value, '\0');
      image.replace(f.offset.value, f.length.value, source, m.offset.value, m.length.value);
      return true;
    });
  }

  void read() {
    const Extents where = random_extents(dice, 3000);
    const uint64_t total = where.total().value;
    std::string got(total + 10, '?');
    const Memory to{reinterpret_cast<std::byte*>(got.data()), random_memory(dice, total)};
    const uint64_t count = env.ok(env.data_request(Op::read, file, where, to)).count;
    uint64_t want = 0;
    bool ended = false;
    walk_pairs(where, to.shape, [&](Extent f, Extent m) {
      for (uint64_t i = 0; i < f.length.value && !ended; ++i) {
        ended = f.offset.value + i >= image.size();
        if (ended) break;
        MUST(got[m.offset.value + i] == image[f.offset.value + i]);
        ++want;
      }
      return !ended;
    });
    MUST(count == want);
  }

  void resize() {
    const uint64_t size = dice.below(kSpan);
    MUST(env.ok(env.resize_request(file.handle, size)).attr.size == size);
    image.resize(size, '\0');
  }

  void step() {
    const uint64_t kind = dice.below(20);
    if (kind == 0) {
      resize();
    } else if (kind < 10) {
      write();
    } else {
      read();
    }
  }
};

TEST_P(Random, Bytes) {
  if (lacks(Feature::content)) GTEST_SKIP() << GetParam().lacks.at(Feature::content);
  Dice dice(test_seed());
  int step = 0;
  try {
    Env env(fixture_->store(), 0);
    Bytes bytes{env, dice, env.create("f"), {}};
    for (; step < kSteps; ++step) bytes.step();
    MUST(env.read(bytes.file, 0, kSpan + 1) == bytes.image);
    env.tidy();
  } catch (const Wrong& wrong) {
    FAIL() << "step " << step << ": " << wrong.what();
  }
}

// ---- Trees ----

// One file as both stores know it.
struct Node {
  Handle subject, oracle;
};

struct OpenFile {
  size_t node;
  Right subject, oracle;
};

class Trees {
 public:
  // Without `links`, no second name is given to a file.
  Trees(Store& subject, Store& oracle, Dice& dice, bool links)
      : subject_(subject), oracle_(oracle), dice_(dice), links_(links) {
    nodes_.push_back({*subject.root(), *oracle.root()});
  }

  void step() {
    static const std::vector<Op> kOps = {
        Op::create, Op::create, Op::create,   Op::mkdir,   Op::mkdir,   Op::remove, Op::remove,
        Op::rename, Op::rename, Op::rename,   Op::link,    Op::symlink, Op::lookup, Op::getattr,
        Op::resize, Op::open,   Op::readlink, Op::setattr, Op::close,   Op::write};
    Request r;
    r.op = dice_.pick(kOps);
    if (r.op == Op::link && !links_) return;
    r.caller = caller_;
    const size_t node = dice_.below(nodes_.size());
    fill(r);
    if (op_info(r.op).needs & kRight) return with_right(std::move(r));
    both(r, node, dice_.below(nodes_.size()));
  }

  void close_all() {
    while (!open_.empty()) close(open_.size() - 1);
  }

  // The trees as text, to compare at the end.
  static std::string picture(Env& env, const Handle& directory, const std::string& path) {
    std::string text;
    std::vector<Entry> entries = env.list(directory, 8192, kFlagPlus);
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (const Entry& entry : entries) text += line(env, path + "/" + entry.name, entry);
    return text;
  }

 private:
  static std::string line(Env& env, const std::string& path, const Entry& entry) {
    const Attr& a = entry.attr;
    const bool folder = a.type == FileType::directory;
    std::string text =
        fmt::format("{} type={} mode={:o} size={} links={}\n", path, static_cast<int>(a.type),
                    a.mode, folder ? 0 : a.size, folder ? 0 : a.links);
    if (folder) return text + picture(env, entry.handle, path);
    if (a.type == FileType::symlink) {
      return text + env.ok(env.request(Op::readlink, entry.handle)).data + "\n";
    }
    const File file = env.open(entry.handle, Access::read);
    text += env.read(file, 0, a.size + 1) + "\n";
    env.close(file);
    return text;
  }

  std::string name() { return std::string(1, static_cast<char>('a' + dice_.below(6))); }

  void fill(Request& r) {
    const OpInfo& info = op_info(r.op);
    if (info.needs & kName) r.name = name();
    if (info.needs & kName2) r.name2 = name();
    if (r.op == Op::lookup && dice_.one_in(2)) r.name += "/" + name();
    if (info.needs & kData) r.data = "target";
    if ((info.needs | info.may) & kMode) r.mode = dice_.one_in(2) ? 0755 : 0700;
    if ((info.needs | info.may) & kAccess) r.access = Access::both;
    if (r.op == Op::resize) r.length = Length(dice_.below(5000));
    if (r.op == Op::setattr) {
      r.set.what = SetAttr::kMode;
      r.set.mode = 0700 | static_cast<uint32_t>(dice_.below(0100));
    }
    if (r.op == Op::create && dice_.one_in(3)) r.flags = kFlagExclusive;
    if (r.op == Op::create && dice_.one_in(4)) r.flags |= kFlagTruncate;
    if (r.op == Op::remove && dice_.one_in(2)) r.flags = kFlagDirectory;
    if (r.op == Op::rename && dice_.one_in(3)) {
      r.flags = dice_.one_in(2) ? kFlagExchange : kFlagNoReplace;
    }
  }

  void both(Request& r, size_t node, size_t node2) {
    const bool two = (op_info(r.op).needs & kHandle2) != 0;
    Request other = r;
    r.handle = nodes_[node].subject;
    other.handle = nodes_[node].oracle;
    if (two) r.handle2 = nodes_[node2].subject;
    if (two) other.handle2 = nodes_[node2].oracle;
    auto got = subject_.call(r);
    auto want = oracle_.call(std::move(other));
    compare(r, got, want);
    if (got) note(r.op, node, *got, *want);
  }

  static void compare(const Request& r, const Result<Reply>& got, const Result<Reply>& want) {
    const auto code = [](const Result<Reply>& x) {
      return x ? std::string("success") : errno_name(x.error().code());
    };
    if (code(got) != code(want)) {
      throw Wrong(fmt::format("{}: {} instead of {}", format(r), code(got), code(want)));
    }
    if (!got) return;
    const bool file = want->attr.type == FileType::file;
    if (got->attr.type != want->attr.type || got->attr.mode != want->attr.mode ||
        (file && (got->attr.size != want->attr.size || got->attr.links != want->attr.links)) ||
        got->count != want->count || got->data != want->data) {
      throw Wrong(format(r) + ": another reply");
    }
  }

  void note(Op op, size_t node, const Reply& got, const Reply& want) {
    if (!got.handle.empty()) {
      nodes_.push_back({got.handle, want.handle});
      node = nodes_.size() - 1;
    }
    if (!got.right.empty()) open_.push_back({node, got.right, want.right});
    if (op == Op::open || op == Op::create) return;
    if (nodes_.size() > 60) forget();
  }

  // Some old handles stay, so that those of files that are gone are tried too.
  void forget() {
    const size_t last = nodes_.size() - 1, victim = 1 + dice_.below(last);
    const auto in_use = [&](size_t n) {
      return std::any_of(open_.begin(), open_.end(), [&](const auto& o) { return o.node == n; });
    };
    if (in_use(victim) || in_use(last)) return;
    nodes_[victim] = nodes_[last];
    nodes_.pop_back();
  }

  void with_right(Request r) {
    if (open_.empty()) return;
    const size_t index = dice_.below(open_.size());
    if (r.op == Op::close || open_.size() > 12) return close(index);
    const OpenFile& open = open_[index];
    std::string bytes(1 + dice_.below(3000), static_cast<char>('a' + dice_.below(26)));
    r.file = Extents(Extent{Offset(dice_.below(5000)), Length(bytes.size())});
    r.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
    present(std::move(r), open);
  }

  void present(Request r, const OpenFile& open) {
    Request other = r;
    r.handle = nodes_[open.node].subject;
    r.right = open.subject;
    other.handle = nodes_[open.node].oracle;
    other.right = open.oracle;
    const auto got = subject_.call(r);
    compare(r, got, oracle_.call(std::move(other)));
  }

  void close(size_t index) {
    Request r;
    r.op = Op::close;
    r.caller = caller_;
    present(std::move(r), open_[index]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  Store& subject_;
  Store& oracle_;
  Dice& dice_;
  const bool links_;
  CallerRef caller_ = this_process_caller();
  std::vector<Node> nodes_;
  std::vector<OpenFile> open_;
};

TEST_P(Random, Trees) {
  if (lacks(Feature::folders)) GTEST_SKIP() << GetParam().lacks.at(Feature::folders);
  Dice dice(test_seed());
  MemoryStore oracle;
  int step = 0;
  try {
    Trees trees(fixture_->store(), oracle, dice, !lacks(Feature::any_link));
    for (; step < kSteps; ++step) trees.step();
    trees.close_all();
    Env got(fixture_->store(), 0), want(oracle, 0);
    EXPECT_EQ(Trees::picture(got, got.top(), ""), Trees::picture(want, want.top(), ""));
    fsck(got, true);
    EXPECT_EQ(fixture_->open_rights().value_or(0), 0u);
    EXPECT_EQ(oracle.open_rights(), 0u);
  } catch (const Wrong& wrong) {
    FAIL() << "step " << step << ": " << wrong.what();
  }
}

std::string subject_name(const ::testing::TestParamInfo<Subject>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Stores, Random, ::testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace forebay::conformance
