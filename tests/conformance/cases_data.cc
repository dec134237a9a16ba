// Bytes of one file, one range at a time.
#include <thread>

#include "env.h"

namespace forebay::conformance {

namespace {

void write_and_read(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "hello world");
  MUST(e.read(f, 0, 11) == "hello world");
  MUST(e.read(f, 6, 3) == "wor");
  e.write(f, 6, "there");
  MUST(e.read(f, 0, 100) == "hello there");
  MUST(e.attr(f.handle).size == 11);
  e.close(f);
  const File again = e.open(e.lookup("f").handle, Access::read);
  MUST(e.read(again, 0, 100) == "hello there");
}

void short_only_at_the_end(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, std::string(1000, 'x'));
  MUST(e.read(f, 0, 2000).size() == 1000);
  MUST(e.read(f, 999, 10).size() == 1);
  MUST(e.read(f, 1000, 10).empty());
  MUST(e.read(f, 5'000'000'000, 10).empty());
}

void nothing_at_all(Env& e) {
  const File f = e.create("f");
  const Request none = e.data_request(Op::write, f, Extents(), Memory());
  MUST(e.ok(none).count == 0);
  e.write(f, 1'000'000, "");
  MUST(e.attr(f.handle).size == 0);
  MUST(e.ok(e.data_request(Op::read, f, Extents(), Memory())).count == 0);
  MUST(e.read(f, 0, 0).empty());
}

void holes(Env& e) {
  const File f = e.create("f");
  e.write(f, 200'000, "end");
  MUST(e.attr(f.handle).size == 200'003);
  MUST(e.read(f, 0, 200'003) == std::string(200'000, '\0') + "end");
  e.write(f, 100'000, "middle");
  MUST(e.read(f, 99'999, 8) == std::string("\0middle\0", 8));
}

void beyond_four_gigabytes(Env& e) {
  const File f = e.create("f");
  const uint64_t far = 5_GiB + 12345;
  e.write(f, far, "far");
  MUST(e.attr(f.handle).size == far + 3);
  MUST(e.read(f, far - 2, 10) == std::string("\0\0far", 5));
  MUST(e.read(f, 4_GiB - 2, 4) == std::string(4, '\0'));
  e.ok(e.resize_request(f.handle, 4_GiB + 1));
  MUST(e.attr(f.handle).size == 4_GiB + 1);
}

void resize(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "0123456789");
  MUST(e.ok(e.resize_request(f.handle, 4)).attr.size == 4);
  MUST(e.read(f, 0, 100) == "0123");
  MUST(e.ok(e.resize_request(f.handle, 8)).attr.size == 8);
  MUST(e.read(f, 0, 100) == std::string("0123\0\0\0\0", 8));
  Request with_right = e.resize_request(f.handle, 0);
  with_right.right = f.right;
  MUST(e.ok(with_right).attr.size == 0);
}

void resize_of_a_directory(Env& e) {
  e.fails(EISDIR, e.resize_request(e.mkdir("d"), 0));
}

void unlinked_while_open(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "still");
  e.remove("f");
  MUST(!e.exists("f"));
  MUST(e.names(e.top()).empty());
  e.write(f, 5, " here");
  MUST(e.read(f, 0, 100) == "still here");
  MUST(e.attr(f.handle).size == 10);
  MUST(e.attr(f.handle).links == 0);
  const File second = e.open(f.handle, Access::read);
  e.close(f);
  MUST(e.read(second, 0, 100) == "still here");
  e.create("f");
  e.close(second);
  e.fails(ESTALE, e.request(Op::getattr, f.handle));
  e.fails(ESTALE, e.open_request(f.handle, Access::read));
  MUST(e.lookup("f").attr.size == 0);
}

void readers_see_completed_writes(Env& e) {
  const File writer = e.create("f"), reader = e.open(writer.handle, Access::read);
  for (int i = 0; i < 50; ++i) {
    const std::string text = "version " + std::to_string(i);
    e.write(writer, 0, text);
    MUST(e.read(reader, 0, 100) == text);
  }
}

void commit(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "abc");
  Request r = e.request(Op::commit, f.handle);
  e.ok(r);
  r.right = f.right;
  e.ok(r);
  r.flags = kFlagDataOnly;
  e.ok(r);
}

constexpr uint64_t kBlock = 1000;
constexpr uint64_t kBlocksEach = 64;

// Each thread writes its own blocks, interleaved with those of the others.
void write_blocks(Store& store, Request r, unsigned thread, unsigned threads,
                  std::atomic<int>& failures, std::atomic<int>& fault) {
  std::string bytes(kBlock, static_cast<char>('a' + thread));
  for (uint64_t i = 0; i < kBlocksEach; ++i) {
    Request one = r;
    const uint64_t at = (i * threads + thread) * kBlock;
    one.file = Extents(Extent{Offset(at), Length(kBlock)});
    one.memory = Memory::of(std::as_bytes(std::span(bytes)));
    const auto result = store.call(std::move(one));
    if (result && result->count == kBlock) continue;
    ++failures;
    if (!result) fault = result.error().code();
  }
}

void many_threads(Env& e) {
  constexpr unsigned kThreads = 4;
  const File f = e.create("f");
  const Request r = e.data_request(Op::write, f, Extents(), Memory());
  std::atomic<int> failures = 0, fault = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] { write_blocks(e.store(), r, t, kThreads, failures, fault); });
    }
  }
  if (failures == 1 && fault != 0) throw Surfaced{Error(fault)};
  MUST(failures == 0);
  const std::string all = e.read(f, 0, kBlock * kBlocksEach * kThreads + 1);
  MUST(all.size() == kBlock * kBlocksEach * kThreads);
  for (size_t i = 0; i < all.size(); ++i) {
    MUST(all[i] == static_cast<char>('a' + i / kBlock % kThreads));
  }
}

}  // namespace

std::vector<Case> data_cases() {
  const std::vector<Feature> content = {Feature::content};
  return {{"write_and_read", content, write_and_read},
          {"short_only_at_the_end", {}, short_only_at_the_end},
          {"nothing_at_all", {}, nothing_at_all},
          {"holes", content, holes},
          {"beyond_four_gigabytes", content, beyond_four_gigabytes},
          {"resize", content, resize},
          {"resize_of_a_directory", {Feature::folders}, resize_of_a_directory},
          {"unlinked_while_open", {Feature::content, Feature::unlinked}, unlinked_while_open},
          {"readers_see_completed_writes", content, readers_see_completed_writes},
          {"commit", {}, commit},
          {"many_threads", {Feature::content, Feature::threads}, many_threads}};
}

}  // namespace forebay::conformance
