// The fuzz target over the proof of a key and sealed frames (transport/key_handshake.h). The first
// byte of an input says where a stranger comes in: at the beginning, or, with what an honest client
// has said before it, in the middle. Whatever follows, a stranger is not believed: no proof of its
// own is taken, and no frame but those of the honest client is handed over.
#include <array>
#include <cstring>
#include <vector>

#include "core/fuzzing.h"
#include "transport/frame_receiver.h"
#include "transport/key_handshake.h"
#include "transport/send_queue.h"
#include "wire/codec.h"

namespace forebay::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s));
}

// One conversation, the same each time: the honest client's bytes after the challenge, and its
// frames.
struct Honest {
  AuthKeyRef key = std::make_shared<const AuthKey>(std::string(32, 'k'), "k");
  KeyNonce client{}, server{std::byte{1}};
  std::string hello, answer, frames;
  std::vector<std::string> messages;

  Honest() {
    const auto self = std::make_shared<const Caller>(Caller{1, 2, {3, 4}, {}});
    const KeyAsker asker(key, KeyRole::client, self, client);
    hello = asker.hello();
    KeyAsked asked(key, server);
    const std::string challenge = asked.challenge(bytes_of(hello).first<kKeyHello>()).value();
    FrameSeals seals = asker.answer(bytes_of(challenge).first<kKeyChallenge>()).value();
    answer = seals.first;
    SendQueue queue;
    queue.set_seal(seals.out);
    std::string data(1000, 'd');
    push(queue, wire::encode(wire::Hello{}));
    push(queue, wire::encode(wire::Data{}, 1000), Memory::of(std::as_bytes(std::span(data))));
    push(queue, wire::encode(wire::Cancel{{1, 2}}));
  }

 private:
  void push(SendQueue& queue, std::string head, Memory payload = {}) {
    messages.push_back(head.substr(wire::kHeaderSize));
    queue.push(std::move(head), std::move(payload), {});
    std::array<iovec, 16> pieces;
    while (!queue.empty()) {
      uint64_t n = 0;
      for (const iovec& piece : std::span(pieces).first(queue.gather(pieces))) {
        frames.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
        n += piece.iov_len;
      }
      queue.took(n);
    }
  }
};

class Listener final : public ConnectionHandler {
 public:
  explicit Listener(const Honest& honest) : honest_(honest) {}
  Result<Memory> on_message(const wire::FrameHeader& header, Bytes message) override {
    FOREBAY_ASSERT(heard_ < honest_.messages.size(), "a frame from nobody");
    const std::string& said = honest_.messages[heard_++];
    FOREBAY_ASSERT(
        message.size() == said.size() && std::memcmp(message.data(), said.data(), said.size()) == 0,
        "a frame that nobody sent so");
    payload_.resize(header.payload_size);
    return Memory::of(std::span(payload_));
  }
  void on_payload() override {
    for (const std::byte b : payload_) FOREBAY_ASSERT(b == std::byte{'d'});
  }
  void on_closed(const Error&) override {}

 private:
  const Honest& honest_;
  size_t heard_ = 0;
  std::vector<std::byte> payload_;
};

void receive(KeyAsked& asked, const Honest& honest, Bytes stream) {
  FrameSeals seals = asked.seals();
  FrameReceiver in;
  in.set_seal(seals.in);
  Listener listener(honest);
  while (!stream.empty()) {
    std::array<iovec, FrameReceiver::kIovecs> space;
    const auto d = in.space(space);
    uint64_t fed = 0;
    for (const iovec& piece : std::span(space).first(d.count)) {
      const size_t n = std::min(piece.iov_len, stream.size());
      std::memcpy(piece.iov_base, stream.data(), n);
      stream = stream.subspan(n);
      fed += n;
    }
    in.received(fed);
    for (;;) {
      const auto more = in.step(listener);
      if (!more) return;
      if (!*more) break;
    }
  }
}

void run_one(Bytes input) {
  static const Honest honest;
  if (input.empty()) return;
  const auto from = std::to_integer<unsigned>(input[0]) % 4;
  std::string said;  // by the honest client, and then by a stranger
  if (from >= 1) said += honest.hello;
  if (from >= 2) said += honest.answer;
  if (from >= 3) said += honest.frames.substr(0, honest.frames.size() / 2);
  said.append(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);

  Bytes rest = bytes_of(said);
  KeyAsked asked(honest.key, honest.server);
  if (rest.size() < kKeyHello || !asked.challenge(rest.first<kKeyHello>())) return;
  rest = rest.subspan(kKeyHello);
  if (rest.size() < kKeyAnswer) return;
  const auto groups = asked.answer(rest.first<kKeyAnswer>());
  const bool honestly = rest.size() >= honest.answer.size() &&
                        std::memcmp(rest.data(), honest.answer.data(), kKeyAnswer) == 0 &&
                        said.starts_with(honest.hello);
  FOREBAY_ASSERT(!groups || honestly, "a proof of nobody is taken");
  if (!groups) return;
  rest = rest.subspan(kKeyAnswer);
  if (rest.size() < *groups || !asked.groups(rest.first(*groups))) return;
  FOREBAY_ASSERT(asked.caller() == (Caller{1, 2, {3, 4}, {}}));
  receive(asked, honest, rest.subspan(*groups));
}

void make_corpus(const std::filesystem::path& folder) {
  const Honest honest;
  write_seed(folder / "whole", std::string(1, '\0') + honest.hello + honest.answer + honest.frames);
  write_seed(folder / "answer", std::string(1, '\1') + honest.answer + honest.frames);
  write_seed(folder / "frames", std::string(1, '\2') + honest.frames);
  write_seed(folder / "rest",
             std::string(1, '\3') + honest.frames.substr(honest.frames.size() / 2));
}

}  // namespace
}  // namespace forebay::fuzz

int main(int argc, char** argv) {
  using namespace forebay;
  return FuzzProgram({"keyed_fuzz", fuzz::run_one, fuzz::make_corpus}).main(argc, argv);
}
