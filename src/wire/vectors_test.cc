// The test vectors of docs/wire-format.md, read from that very file: each is a block of bytes
// ("```hex NAME") and one of what they mean ("```text NAME").
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "wire/testing.h"

namespace forebay::wire {
namespace {

std::string document() {
  std::ifstream file(FOREBAY_WIRE_FORMAT);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The lines between "```KIND NAME" and "```".
std::string block(const std::string& kind, const std::string& name) {
  const std::string text = document(), opening = "\n```" + kind + " " + name + "\n";
  const size_t begin = text.find(opening);
  EXPECT_NE(begin, std::string::npos)
      << FOREBAY_WIRE_FORMAT << " has no block " << kind << " " << name;
  if (begin == std::string::npos) return "";
  const size_t from = begin + opening.size();
  return text.substr(from, text.find("```", from) - from);
}

std::string vector_bytes(const std::string& name) {
  std::istringstream words(block("hex", name));
  std::string bytes, word;
  while (words >> word) bytes.push_back(static_cast<char>(std::stoi(word, nullptr, 16)));
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{:02x}{}", static_cast<unsigned char>(bytes[i]),
                        i % 16 == 15 || i + 1 == bytes.size() ? '\n' : ' ');
  return text;
}

// ---- The values in words, as the document states them ----

std::string words_of(const FrameHeader& h) {
  return fmt::format("type {}\nmessage size {}\npayload size {}\n", static_cast<int>(h.type),
                     h.message_size, h.payload_size);
}

std::string words_of(const RequestId& id) {
  return fmt::format("slot {}\nsequence {}\n", id.slot, id.sequence);
}

std::string words_of(const Hello& m) {
  return fmt::format("versions {} to {}\npurpose {}\nexport {}\nhost {}\nprogram {}\npid {}\n",
                     m.version_min, m.version_max, static_cast<int>(m.purpose), m.export_name,
                     m.host, m.program, m.pid);
}

std::string words_of(const RequestMessage& m) {
  return words_of(m.id) + fmt::format("op {} ({})\nhandle {}", static_cast<int>(m.request.op),
                                      op_info(m.request.op).name, hex(m.request.handle.bytes));
}

std::string words_of(const ReplyMessage& m) {
  return words_of(m.id) +
         fmt::format("count {}\nverifier {:#x}\n", m.result->count, m.result->verifier);
}

std::string words_of(const Pull& m) {
  return words_of(m.id) + fmt::format("what {}\nposition {}\nlength {}\n", static_cast<int>(m.part),
                                      m.position, m.length);
}

// ---- The same values made here ----

const FrameHeader kHeader{FrameType::data, 48, 1048576};

Hello hello() {
  Hello m;
  m.export_name = "scratch";
  m.host = "node17";
  m.program = "simulate";
  m.pid = 4711;
  return m;
}

RequestMessage getattr() {
  RequestMessage m;
  m.id = {3, 7};
  m.request.op = Op::getattr;
  m.request.handle.bytes = std::string("\x01\x02\x03\x04\xfa\xfb\xfc\xfd", 8);
  return m;
}

ReplyMessage acknowledged() {
  ReplyMessage m;
  m.id = {3, 9};
  m.result->count = 4096;
  m.result->verifier = 0x0123456789abcdef;
  return m;
}

const Pull kPull{{3, 8}, Part::stream, 1048576, 262144};

// The bytes are what our encoder makes, and decode to a value of which the document says the same.
template <class T, class Decode>
void expect_vector(const std::string& name, FrameType type, const std::string& encoded,
                   Decode decode, const T& value) {
  const std::string bytes = vector_bytes(name);
  EXPECT_EQ(hex(bytes), hex(encoded)) << name;
  ASSERT_GE(bytes.size(), kHeaderSize) << name;
  const FrameHeader header{type, static_cast<uint32_t>(bytes.size() - kHeaderSize), 0};
  EXPECT_EQ(*decode_header(bytes_of(bytes).first<kHeaderSize>()), header) << name;
  const auto decoded = decode(message_of(bytes));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(words_of(*decoded), block("text", name));
  EXPECT_EQ(words_of(value), block("text", name));
}

TEST(Vectors, Header) {
  std::string encoded(kHeaderSize, '\0');
  encode(kHeader, std::as_writable_bytes(std::span(encoded)).first<kHeaderSize>());
  const std::string bytes = vector_bytes("header");
  EXPECT_EQ(hex(bytes), hex(encoded));
  ASSERT_EQ(bytes.size(), kHeaderSize);
  EXPECT_EQ(*decode_header(bytes_of(bytes).first<kHeaderSize>()), kHeader);
  EXPECT_EQ(words_of(kHeader), block("text", "header"));
}

TEST(Vectors, Hello) {
  expect_vector("hello", FrameType::hello, encode(hello()), decode_hello, hello());
}

TEST(Vectors, GetattrRequest) {
  expect_vector("getattr", FrameType::request, encode(getattr()), decode_request, getattr());
}

TEST(Vectors, Reply) {
  expect_vector("reply", FrameType::reply, encode(acknowledged()), decode_reply, acknowledged());
}

TEST(Vectors, Pull) {
  expect_vector("pull", FrameType::pull, encode(kPull), decode_pull, kPull);
}

}  // namespace
}  // namespace forebay::wire
