#include "mpiio/arbiter_wire.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstring>

#include "wire/little_endian.h"

namespace forebay::mpiio {

namespace {

constexpr uint64_t kMagic = 0x3172657469627261;  // "arbiter1" in the order of the bytes

using wire::FrameType;

class Writer {
 public:
  explicit Writer(FrameType type) : type_(type), out_(wire::kHeaderSize, '\0') {}

  template <std::unsigned_integral T>
  Writer& number(T value) {
    std::byte bytes[sizeof(T)];
    wire::put_number<T>(value, bytes);
    out_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
    return *this;
  }
  template <size_t n>
  Writer& bytes(const std::array<uint8_t, n>& in) {
    out_.append(reinterpret_cast<const char*>(in.data()), n);
    return *this;
  }
  std::string frame() {
    const auto size = static_cast<uint32_t>(out_.size() - wire::kHeaderSize);
    const std::span<std::byte, wire::kHeaderSize> head(reinterpret_cast<std::byte*>(out_.data()),
                                                       wire::kHeaderSize);
    wire::encode({type_, size, 0}, head);
    return std::move(out_);
  }

 private:
  FrameType type_;
  std::string out_;
};

// Reads numbers off a message; whoever reads past the end, or not to it, is told by ended().
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <std::unsigned_integral T>
  T number() {
    const std::byte* at = take(sizeof(T));
    return at ? wire::get_number<T>(at) : T{};
  }
  template <size_t n>
  std::array<uint8_t, n> bytes() {
    std::array<uint8_t, n> out{};
    if (const std::byte* at = take(n)) std::memcpy(out.data(), at, n);
    return out;
  }
  bool holds(size_t size) const { return in_.size() >= size; }
  bool ended() const { return !short_ && in_.empty(); }

 private:
  const std::byte* take(size_t size) {
    if (!holds(size)) return short_ = true, nullptr;
    const std::byte* at = in_.data();
    in_ = in_.subspan(size);
    return at;
  }

  std::span<const std::byte> in_;
  bool short_ = false;
};

Error broken(std::string_view what) {
  return Error(EPROTO, fmt::format("a message to or from an arbiter: {}", what));
}

template <class T>
Result<T> whole(const Reader& reader, T message) {
  if (!reader.ended()) return broken("not of the size of its kind");
  return message;
}

std::string proven(const Greeting& greeting, const Nonce& arbiters) {
  std::string body(reinterpret_cast<const char*>(greeting.nonce.data()), greeting.nonce.size());
  body.append(reinterpret_cast<const char*>(arbiters.data()), arbiters.size());
  std::byte file[8];
  wire::put_number<uint64_t>(greeting.file, file);
  return body.append(reinterpret_cast<const char*>(file), sizeof file);
}

SealDomain domain(Side side) {
  return side == Side::client ? SealDomain::arbiter_client : SealDomain::arbiter;
}

void put_ranges(Writer& writer, const Extents& ranges) {
  FOREBAY_ASSERT(ranges.blocks().size() <= kMaxBlocks && ranges.loops().size() <= kMaxLoops);
  writer.number(static_cast<uint16_t>(ranges.blocks().size()));
  writer.number(static_cast<uint16_t>(ranges.loops().size()));
  for (const Extent& e : ranges.blocks()) writer.number(e.offset.value).number(e.length.value);
  for (const Stride& s : ranges.loops()) {
    writer.number(s.count).number(static_cast<uint64_t>(s.stride));
  }
}

Result<Extents> get_ranges(Reader& reader) {
  const auto blocks = reader.number<uint16_t>(), loops = reader.number<uint16_t>();
  if (blocks > kMaxBlocks || loops > kMaxLoops) return broken("a lock of too many ranges");
  if (!reader.holds((size_t{blocks} + loops) * 16)) return broken("a lock without its ranges");
  std::vector<Extent> list(blocks);
  for (Extent& e : list) {
    e.offset = Offset(reader.number<uint64_t>());
    e.length = Length(reader.number<uint64_t>());
  }
  std::vector<Stride> strides(loops);
  for (Stride& s : strides) {
    s.count = reader.number<uint64_t>();
    s.stride = static_cast<int64_t>(reader.number<uint64_t>());
  }
  auto ranges = Extents::make(std::move(list), std::move(strides));
  if (!ranges) return broken("a lock of ranges out of bounds");
  return ranges;
}

}  // namespace

// ---- Proofs ----

Nonce make_nonce() {
  Nonce nonce;
  const ssize_t got = ::getrandom(nonce.data(), nonce.size(), 0);
  FOREBAY_ASSERT(got == static_cast<ssize_t>(nonce.size()), "getrandom");
  return nonce;
}

Proof make_proof(const SealKey& key, Side side, const Greeting& greeting, const Nonce& arbiters) {
  const std::string sealed = key.seal(domain(side), proven(greeting, arbiters));
  Proof proof;
  std::memcpy(proof.data(), sealed.data() + sealed.size() - proof.size(), proof.size());
  return proof;
}

bool proves(const SealKey& key, Side side, const Greeting& greeting, const Nonce& arbiters,
            const Proof& proof) {
  std::string sealed = proven(greeting, arbiters);
  sealed.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  return key.unseal(domain(side), sealed).has_value();
}

// ---- Encoding ----

std::string encode(const Greeting& greeting) {
  return Writer(FrameType::hello)
      .number(kMagic)
      .number(greeting.file)
      .bytes(greeting.nonce)
      .frame();
}

std::string encode(const Challenge& challenge) {
  return Writer(FrameType::welcome).bytes(challenge.nonce).bytes(challenge.proof).frame();
}

std::string encode(const Proof& proof) {
  return Writer(FrameType::data).bytes(proof).frame();
}

std::string encode(const Asked& asked) {
  Writer writer(FrameType::request);
  writer.number(static_cast<uint8_t>(asked.call)).number(static_cast<uint8_t>(asked.mode));
  writer.number(uint16_t{0}).number(static_cast<uint32_t>(asked.slot));
  writer.number(asked.id).number(asked.a).number(asked.b);
  if (asked.call == Call::lock) put_ranges(writer, asked.ranges);
  return writer.frame();
}

std::string encode(const Answer& answer) {
  Writer writer(FrameType::reply);
  writer.number(answer.id).number(answer.value).number(answer.code).number(uint32_t{0});
  return writer.frame();
}

// ---- Decoding ----

Result<Greeting> decode_greeting(std::span<const std::byte> message) {
  Reader reader(message);
  if (reader.number<uint64_t>() != kMagic) return broken("a greeting in another language");
  Greeting greeting;
  greeting.file = reader.number<uint64_t>();
  greeting.nonce = reader.bytes<sizeof(Nonce)>();
  return whole(reader, greeting);
}

Result<Challenge> decode_challenge(std::span<const std::byte> message) {
  Reader reader(message);
  Challenge challenge;
  challenge.nonce = reader.bytes<sizeof(Nonce)>();
  challenge.proof = reader.bytes<sizeof(Proof)>();
  return whole(reader, challenge);
}

Result<Proof> decode_proof(std::span<const std::byte> message) {
  Reader reader(message);
  const Proof proof = reader.bytes<sizeof(Proof)>();
  return whole(reader, proof);
}

Result<Asked> decode_asked(std::span<const std::byte> message) {
  Reader reader(message);
  const auto call = reader.number<uint8_t>(), mode = reader.number<uint8_t>();
  const auto zero = reader.number<uint16_t>();
  const auto slot = reader.number<uint32_t>();
  if (call > static_cast<uint8_t>(Call::unlock)) return broken("an unknown call");
  if (mode > static_cast<uint8_t>(LockMode::exclusive)) return broken("an unknown mode");
  if (zero != 0 || slot >= kSlots) return broken("an unknown slot");
  Asked asked;
  asked.call = static_cast<Call>(call);
  asked.mode = static_cast<LockMode>(mode);
  asked.slot = static_cast<Slot>(slot);
  asked.id = reader.number<uint64_t>();
  asked.a = reader.number<uint64_t>();
  asked.b = reader.number<uint64_t>();
  if (asked.call == Call::lock) {
    auto ranges = get_ranges(reader);
    if (!ranges) return std::move(ranges).error();
    asked.ranges = std::move(*ranges);
  }
  return whole(reader, std::move(asked));
}

Result<Answer> decode_answer(std::span<const std::byte> message) {
  Reader reader(message);
  Answer answer;
  answer.id = reader.number<uint64_t>();
  answer.value = reader.number<uint64_t>();
  answer.code = reader.number<uint32_t>();
  reader.number<uint32_t>();
  return whole(reader, answer);
}

Extents sendable(const Extents& ranges) {
  if (ranges.blocks().size() <= kMaxBlocks && ranges.loops().size() <= kMaxLoops) return ranges;
  return Extents(ranges.bounds());
}

}  // namespace forebay::mpiio
