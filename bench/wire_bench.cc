// What the codec costs per message: the floor under every round trip.
#include <benchmark/benchmark.h>

#include "wire/codec.h"

namespace forebay::wire {
namespace {

Bytes message_of(const std::string& head) {
  return {reinterpret_cast<const std::byte*>(head.data()) + kHeaderSize, head.size() - kHeaderSize};
}

RequestMessage getattr_request() {
  RequestMessage m;
  m.id = {3, 4711};
  m.request.op = Op::getattr;
  m.request.handle.bytes.assign(48, 'h');
  return m;
}

RequestMessage write_request(size_t blocks) {
  RequestMessage m;
  m.id = {3, 4711};
  m.request.op = Op::write;
  m.request.handle.bytes.assign(48, 'h');
  m.request.right.bytes.assign(64, 'r');
  std::vector<Extent> list;
  for (size_t i = 0; i < blocks; ++i) list.push_back({Offset(i * 8192), Length(4096)});
  m.request.file = *Extents::make(std::move(list));
  return m;
}

ReplyMessage getattr_reply() {
  Reply reply;
  reply.attr.type = FileType::file;
  reply.attr.size = 1_MiB;
  return {{3, 4711}, std::move(reply)};
}

ReplyMessage readdir_reply(size_t entries) {
  Reply reply;
  reply.entries.resize(entries);
  for (size_t i = 0; i < entries; ++i) {
    reply.entries[i].name = "file-" + std::to_string(i);
    reply.entries[i].cookie = i + 1;
  }
  return {{3, 4711}, std::move(reply)};
}

void encode_request(benchmark::State& state, const RequestMessage& m) {
  for (auto _ : state) benchmark::DoNotOptimize(encode(m));
}
void decode_request(benchmark::State& state, const RequestMessage& m) {
  const std::string head = encode(m);
  for (auto _ : state) benchmark::DoNotOptimize(wire::decode_request(message_of(head)));
}
void encode_reply(benchmark::State& state, const ReplyMessage& m) {
  for (auto _ : state) benchmark::DoNotOptimize(encode(m));
}
void decode_reply(benchmark::State& state, const ReplyMessage& m) {
  const std::string head = encode(m);
  for (auto _ : state) benchmark::DoNotOptimize(wire::decode_reply(message_of(head)));
}

BENCHMARK_CAPTURE(encode_request, getattr, getattr_request());
BENCHMARK_CAPTURE(decode_request, getattr, getattr_request());
BENCHMARK_CAPTURE(encode_reply, getattr, getattr_reply());
BENCHMARK_CAPTURE(decode_reply, getattr, getattr_reply());
BENCHMARK_CAPTURE(encode_request, write_1_block, write_request(1));
BENCHMARK_CAPTURE(decode_request, write_1_block, write_request(1));
BENCHMARK_CAPTURE(encode_request, write_1024_blocks, write_request(1024));
BENCHMARK_CAPTURE(decode_request, write_1024_blocks, write_request(1024));
BENCHMARK_CAPTURE(encode_reply, readdir_1000, readdir_reply(1000));
BENCHMARK_CAPTURE(decode_reply, readdir_1000, readdir_reply(1000));

}  // namespace
}  // namespace forebay::wire

BENCHMARK_MAIN();
