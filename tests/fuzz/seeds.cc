#include <vector>

#include "script.h"
#include "wire/codec.h"

namespace forebay::fuzz {
namespace {

// Writes one conversation.
class Script {
 public:
  explicit Script(unsigned mode = 0) : bytes_(1, static_cast<char>(mode)) {}
  const std::string& bytes() const { return bytes_; }

  Script& frame(const std::string& head, const std::string& payload = {}) {
    bytes_ += head + payload;
    return *this;
  }
  Script& mark(std::string_view word) {
    bytes_ += word;
    bytes_.append(kMarkSize - word.size(), '\0');
    return *this;
  }
  Script& hello(wire::Hello::Purpose purpose = wire::Hello::Purpose::data) {
    wire::Hello h;
    h.purpose = purpose;
    h.export_name = purpose == wire::Hello::Purpose::data ? "x" : "";
    return frame(wire::encode(h));
  }

  // Requests, each on a slot and with the next number of it.
  Script& request(Request r, uint16_t slot = 0) {
    wire::RequestMessage m;
    m.id = {slot, ++sequences_[slot]};
    m.total = r.file.total().value;
    m.request = std::move(r);
    return frame(wire::encode(m));
  }
  Script& eager(uint64_t offset, const std::string& data, uint16_t slot = 0) {
    wire::RequestMessage m;
    m.id = {slot, ++sequences_[slot]};
    m.request = data_request(Op::write, offset, data.size());
    m.total = data.size();
    m.eager = true;
    return frame(wire::encode(m, static_cast<uint32_t>(data.size())), data);
  }
  Script& list(Op op, const std::vector<Extent>& blocks, uint16_t slot = 0) {
    const Extents made = Extents::make(blocks).value();
    wire::RequestMessage m;
    m.id = {slot, ++sequences_[slot]};
    m.request = data_request(op, 0, 0);
    m.request.file = {};
    m.total = made.total().value;
    m.list_blocks = blocks.size();
    m.list_bounds = made.bounds();
    frame(wire::encode(m));
    std::string payload(blocks.size() * wire::kBlockBytes, '\0');
    wire::encode_blocks(blocks, std::as_writable_bytes(std::span(payload)));
    return data(payload, wire::Part::list, 0, slot);
  }
  Script& data(const std::string& payload, wire::Part part = wire::Part::stream,
               uint64_t position = 0, uint16_t slot = 0) {
    return frame(wire::encode(wire::Data{{slot, sequences_[slot]}, part, position},
                              static_cast<uint32_t>(payload.size())),
                 payload);
  }
  // The last request of the slot once more, as a client does after it came back.
  Script& again(uint16_t slot = 0) {
    --sequences_[slot];
    return *this;
  }
  Script& cancel(uint16_t slot = 0) {
    return frame(wire::encode(wire::Cancel{{slot, sequences_[slot]}}));
  }
  Script& create() { return request(named(Op::create, "f")); }

  static Request named(Op op, std::string name) {
    Request r;
    r.op = op;
    r.handle.bytes = "@0";
    r.name = std::move(name);
    if (op == Op::create) r.access = Access::both;
    if (op == Op::create || op == Op::mkdir) r.mode = 0755;
    return r;
  }
  static Request data_request(Op op, uint64_t offset, uint64_t length) {
    Request r;
    r.op = op;
    r.handle.bytes = "@1";
    r.right.bytes = "#0";
    r.file = Extents(Extent{Offset(offset), Length(length)});
    return r;
  }

 private:
  std::string bytes_;
  uint64_t sequences_[4] = {};
};

std::vector<Extent> every_other(uint64_t n) {
  std::vector<Extent> blocks;
  for (uint64_t i = 0; i < n; ++i) blocks.push_back({Offset(i * 16), Length(8)});
  return blocks;
}

Request attribute(Op op, uint64_t value, Once once = {}) {
  Request r;
  r.op = op;
  r.handle.bytes = "@1";
  r.right.bytes = "#0";
  r.name = "n";
  r.value = value;
  r.once = once;
  return r;
}

Request append(uint64_t length, Once once = {}) {
  Request r = Script::data_request(Op::write, 0, length);
  r.flags = kFlagAppend;
  r.once = once;
  return r;
}

Request lease(uint32_t flags) {
  Request r;
  r.op = Op::lease;
  r.handle.bytes = "@1";
  r.right.bytes = "#0";
  r.flags = flags;
  if (flags & kFlagReclaim) r.cookie = kLastLease;
  return r;
}

Request kept(uint64_t length) {
  Request r = Script::data_request(Op::write, 0, length);
  r.cookie = kLastLease;
  return r;
}

Request readdir() {
  Request r;
  r.op = Op::readdir;
  r.handle.bytes = "@0";
  r.length = Length(4096);
  r.flags = kFlagPlus;
  return r;
}

Request close_file() {
  Request r;
  r.op = Op::close;
  r.handle.bytes = "@1";
  r.right.bytes = "#0";
  return r;
}

}  // namespace

std::map<std::string, std::string> seeds() {
  std::map<std::string, std::string> all;
  constexpr uint64_t kBulk = kEagerMax + 44;
  const std::string small(40, 's'), bulk(kBulk, 'b');
  const Request write = Script::data_request(Op::write, 8, kBulk);
  const Request read = Script::data_request(Op::read, 0, kBulk);
  const auto save = [&](const char* name, const Script& s) { all[name] = s.bytes(); };
  const auto begun = [](unsigned mode = 0) { return Script(mode).hello().create(); };

  save("eager", begun().eager(0, small).request(close_file()));
  save("read", begun().eager(0, small).request(read).request(
                   Script::data_request(Op::read, 0, small.size())));
  save("bulk", begun().request(write).data(bulk).request(read).frame(wire::encode_goodbye("done")));
  save("overlap",
       begun().request(write).request(write, 1).data(bulk).data(bulk, wire::Part::stream, 0, 1));
  save("list", begun().list(Op::write, every_other(4)).data(std::string(32, 'l')));
  save("list-read", begun().eager(0, small).list(Op::read, every_other(4)));
  save("names", begun()
                    .request(Script::named(Op::mkdir, "d"))
                    .request(Script::named(Op::lookup, "d"))
                    .request(readdir())
                    .request(Script::named(Op::remove, "f")));
  save("attributes", begun()
                         .request(attribute(Op::attr_create, 5))
                         .request(attribute(Op::attr_fetch_add, 1, {1, 2, 1, 0}))
                         .request(attribute(Op::attr_fetch_add, 1, {1, 2, 1, 0}), 1)
                         .request(attribute(Op::attr_cas, 7))
                         .request(attribute(Op::attr_remove, 0)));
  save("append", begun()
                     .request(append(kBulk, {1, 2, 1, 0}))
                     .request(append(kBulk), 1)
                     .data(bulk)
                     .data(bulk, wire::Part::stream, 0, 1)
                     .mark(kCut)
                     .hello());
  save("lease", begun()
                    .request(lease(kFlagShared))
                    .eager(0, small, 1)
                    .request(lease(kFlagShared | kFlagReclaim))
                    .mark(kCut)
                    .hello()
                    .request(write)
                    .data(bulk));
  save("write-lease", begun()
                          .request(lease(0))
                          .request(kept(kBulk))
                          .data(bulk)
                          .mark(kResume)
                          .request(kept(kBulk))
                          .data(bulk)
                          .mark(kCut)
                          .hello()
                          .request(readdir())
                          .request(read, 1)
                          .frame(wire::encode(wire::Released{1}))
                          .mark(kWait));
  save("cancel", begun().request(write).cancel().request(write, 1).cancel(1));
  save("cut", begun().request(write).mark(kCut).hello());
  save("resume", begun().request(write).mark(kResume).again().request(write).data(bulk));
  save("resume-slow", begun(kSlowStore)
                          .mark(kWait)
                          .request(write)
                          .data(bulk)
                          .mark(kResume)
                          .again()
                          .request(write)
                          .mark(kWait)
                          .request(read));
  save("failing",
       begun(kFailing).create().create().request(write).data(bulk).request(read).eager(9, small));
  save("rude", begun(kRude).request(write));
  save("at-once", begun(kAtOnce).request(write).data(bulk));
  save("control", Script()
                      .hello(wire::Hello::Purpose::control)
                      .frame(wire::encode(wire::Control{"status"}))
                      .frame(wire::encode(wire::Control{"stop"})));
  return all;
}

}  // namespace forebay::fuzz
