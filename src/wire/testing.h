// Helpers of the codec's test and fuzz target: random messages within the limits, comparison, and
// one way to run any frame through its decoder and back.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "wire/codec.h"

namespace forebay::wire {

bool same(const RequestMessage& a, const RequestMessage& b);
bool same(const ReplyMessage& a, const ReplyMessage& b);
bool same(const ControlReply& a, const ControlReply& b);

// Makes messages, the same ones from the same seed. Sizes are mostly small, sometimes at a limit.
class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  Hello hello();
  Welcome welcome();
  Error error();
  RequestMessage request();
  ReplyMessage reply();
  Pull pull();
  Data data();
  Cancel cancel() { return {id()}; }
  Control control() { return {bytes(kMaxLabel)}; }
  ControlReply control_reply();
  std::string bytes(size_t limit);

  uint64_t below(uint64_t n) { return random_() % n; }
  bool chance() { return random_() % 2 == 0; }

 private:
  RequestId id() { return {static_cast<uint16_t>(random_()), random_()}; }
  FileTime time() {
    return {static_cast<int64_t>(random_()), static_cast<uint32_t>(below(1000000000))};
  }
  FileType file_type() { return static_cast<FileType>(below(8)); }
  Attr attr();
  Entry entry();
  Extents extents(size_t max_blocks);
  void list(RequestMessage& m);

  std::mt19937_64 random_;
};

// One encoded head of each kind of frame; the first kind is FrameType::hello.
std::vector<std::string> one_of_each(RandomMessages& random);

Bytes bytes_of(std::string_view text);
// The message of a head that an encoder made.
Bytes message_of(std::string_view head);

// Decodes `message` as a frame of that type. If it decodes, encodes the value again, decodes that,
// and asserts that it is the same value. Returns whether it decoded.
bool decode_and_back(FrameType type, Bytes message);

}  // namespace forebay::wire
