// Messages of a connection as a whole: how it begins and ends, and control.
#include <fmt/format.h>

#include "wire/message.h"

namespace forebay::wire {

std::string encode(const Hello& m) {
  Builder& b = scratch();
  const auto export_name = put_text(b, m.export_name, kMaxMessage);
  const auto session_key = put_bytes(b, m.session_key);
  const auto auth_method = put_text(b, m.auth_method, kMaxMessage);
  const auto auth = put_bytes(b, m.auth);
  const auto host = put_text(b, m.host, kMaxLabel);
  const auto program = put_text(b, m.program, kMaxLabel);
  const auto job = put_text(b, m.job, kMaxLabel);
  const auto relay = put_text(b, m.relay, kMaxLabel);
  const auto home = put_text(b, m.home, kMaxLabel);
  const auto servers = put_text(b, m.servers, kMaxServers);
  const auto root = put_bytes(b, m.root.bytes);
  return finish(b, FrameType::hello,
                fbs::CreateHello(b, m.version_min, m.version_max, static_cast<uint8_t>(m.purpose),
                                 export_name, m.session, session_key, auth_method, auth, host,
                                 program, m.pid, job, m.chunk, relay, home, servers, root));
}

Result<Hello> decode_hello(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Hello>(message, bytes.size(), "hello", 1);
  if (!opened) return opened.error();
  const fbs::Hello& t = **opened;
  Fields fields("hello");
  Hello m;
  m.version_min = t.version_min();
  m.version_max = t.version_max();
  m.session = t.session();
  m.pid = t.pid();
  m.chunk = t.chunk();
  fields.enumeration("purpose", t.purpose(), Hello::Purpose::control, m.purpose);
  fields.text("export", t.export_(), kMaxLabel, m.export_name);
  fields.bytes("session key", t.session_key(), kMaxKey, m.session_key);
  fields.text("authentication method", t.auth_method(), kMaxLabel, m.auth_method);
  fields.bytes("credential", t.auth(), kMaxAuth, m.auth);
  fields.text("host", t.host(), kMaxLabel, m.host);
  fields.text("program", t.program(), kMaxLabel, m.program);
  fields.text("job", t.job(), kMaxLabel, m.job);
  fields.text("relay", t.relay(), kMaxLabel, m.relay);
  fields.text("home", t.home(), kMaxLabel, m.home);
  fields.text("servers", t.servers(), kMaxServers, m.servers);
  fields.bytes("root", t.root(), kMaxHandle, m.root.bytes);
  return checked(std::move(m), fields);
}

std::string encode(const Welcome& m) {
  Builder& b = scratch();
  const auto session_key = put_bytes(b, m.session_key);
  const auto root = put_bytes(b, m.root.bytes);
  return finish(b, FrameType::welcome,
                fbs::CreateWelcome(b, m.version, m.boot, m.session, session_key, m.resumed, root,
                                   m.slots, m.eager_bytes, m.eager_max, m.chunk, m.max_list_bytes,
                                   m.grace_ms, m.state));
}

Result<Welcome> decode_welcome(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Welcome>(message, bytes.size(), "welcome", 1);
  if (!opened) return opened.error();
  const fbs::Welcome& t = **opened;
  Fields fields("welcome");
  if (t.version() < kProtocolMin || t.version() > kProtocolMax)
    fields.fail(0,
                fmt::format("the server chose protocol version {}, but this side offered {} to {}",
                            t.version(), kProtocolMin, kProtocolMax));
  if (t.slots() == 0) fields.fail(0, "it grants no slots");
  Welcome m;
  m.version = t.version();
  m.boot = t.boot();
  m.session = t.session();
  m.resumed = t.resumed();
  m.slots = t.slots();
  m.eager_bytes = t.eager_bytes();
  m.max_list_bytes = t.max_list_bytes();
  m.grace_ms = t.grace_ms();
  m.state = t.state();
  fields.bytes("session key", t.session_key(), kMaxKey, m.session_key);
  fields.bytes("root handle", t.root(), kMaxHandle, m.root.bytes);
  fields.number("eager_max", t.eager_max(), kMaxPayload, m.eager_max);
  fields.number("chunk", t.chunk(), kMaxPayload, m.chunk);
  return checked(std::move(m), fields);
}

std::string encode_refused(const Error& error) {
  Builder& b = scratch();
  return finish(b, FrameType::refused, fbs::CreateRefused(b, put_error(b, error)));
}

Result<Refused> decode_refused(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Refused>(message, bytes.size(), "refused", 2);
  if (!opened) return opened.error();
  Fields fields("refused");
  auto error = get_error((*opened)->error(), fields);
  if (!error) return *fields.error();
  return Refused{*std::move(error)};
}

std::string encode_goodbye(std::string_view reason, bool written) {
  Builder& b = scratch();
  return finish(b, FrameType::goodbye,
                fbs::CreateGoodbye(b, put_text(b, reason, kMaxText), written));
}

Result<Goodbye> decode_goodbye(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Goodbye>(message, bytes.size(), "goodbye", 1);
  if (!opened) return opened.error();
  Fields fields("goodbye");
  Goodbye m;
  fields.text("reason", (*opened)->reason(), kMaxText, m.reason);
  m.written = (*opened)->written();
  return checked(std::move(m), fields);
}

std::string encode(const Control& m) {
  Builder& b = scratch();
  return finish(b, FrameType::control, fbs::CreateControl(b, put_text(b, m.verb, kMaxMessage)));
}

Result<Control> decode_control(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Control>(message, bytes.size(), "control", 1);
  if (!opened) return opened.error();
  Fields fields("control");
  Control m;
  fields.text("verb", (*opened)->verb(), kMaxLabel, m.verb);
  return checked(std::move(m), fields);
}

std::string encode(const ControlReply& m) {
  if (m.json && m.json->size() > kMaxJson)
    return encode(ControlReply{Error(
        E2BIG, fmt::format("the answer has {} bytes; the limit is {}", m.json->size(), kMaxJson))});
  Builder& b = scratch();
  const auto error = m.json ? 0 : put_error(b, m.json.error());
  const auto json = m.json ? put_text(b, *m.json, kMaxJson) : 0;
  return finish(b, FrameType::control_reply, fbs::CreateControlReply(b, error, json));
}

Result<ControlReply> decode_control_reply(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::ControlReply>(message, bytes.size(), "control reply", 2);
  if (!opened) return opened.error();
  const fbs::ControlReply& t = **opened;
  Fields fields("control reply");
  if (t.error()) {
    auto error = get_error(t.error(), fields);
    if (!error) return *fields.error();
    return ControlReply{*std::move(error)};
  }
  std::string json;
  fields.text("text", t.json(), kMaxJson, json);
  return checked(ControlReply{std::move(json)}, fields);
}

Result<uint16_t> negotiate(const Hello& hello) {
  const auto range = [](uint16_t min, uint16_t max) {
    return min == max ? fmt::format("version {}", min) : fmt::format("versions {} to {}", min, max);
  };
  if (hello.version_min > hello.version_max)
    return Error(EPROTO,
                 fmt::format("the client offers an empty range of protocol versions, {} to {}",
                             hello.version_min, hello.version_max));
  const uint16_t highest = std::min(hello.version_max, kProtocolMax);
  if (highest >= std::max(hello.version_min, kProtocolMin)) return highest;
  const bool client_is_older = hello.version_max < kProtocolMin;
  return Error(EPROTO, fmt::format("the client speaks protocol {}, this server {}: update the {}",
                                   range(hello.version_min, hello.version_max),
                                   range(kProtocolMin, kProtocolMax),
                                   client_is_older ? "client" : "server"));
}

}  // namespace forebay::wire
