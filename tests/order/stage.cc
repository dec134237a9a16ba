#include "stage.h"

#include <fmt/format.h>

#include <cstring>
#include <set>

namespace forebay::order {

using namespace std::chrono_literals;

namespace {

constexpr unsigned kCellsOfOne = 64;  // values of one request: its number times this, and more

const Address kServer{Address::Kind::simulated, "server", 0};

std::string text(const Happened& h) {
  std::string where;
  for (const Range& r : h.where) where += fmt::format(" {}-{}", r.at, r.at + r.count - 1);
  return fmt::format("  client {} {}{}, steps {} to {}{}: {}\n", h.client,
                     h.write ? "write" : "read", where, h.sent, h.ended, h.lost ? ", lost" : "",
                     fmt::join(h.cells, " "));
}

}  // namespace

SimOptions even_network() {
  SimOptions o;
  o.delay_min = o.delay_max = 5us;
  o.pieces_max = 1;
  return o;
}

Stage::Stage(const Setting& setting, uint64_t seed)
    : setting_(setting),
      loop_(seed),
      network_(loop_, seed + 1, setting.network),
      server_side_(network_.transport("server")) {
  start_server();
  make_file();
  connect();
  warm_up();
  store_->holding = true;
  store_->applied = [this](const Request& r) { note(r); };
}

// The server first: clients whose requests are unanswered would wait for it.
Stage::~Stage() {
  store_->holding = false;
  while (store_->held() > 0) store_->end(0);
  loop_.run_until([this] { return !waiting(); }, 10s);
  real_.clear();
  raw_.clear();
  listener_.reset();
  server_.reset();
}

void Stage::start_server() {
  ServerOptions options;
  options.boot = 1;
  options.slots = 16;
  options.eager_max = 1_KiB;
  options.eager_session = 64_KiB;
  server_ = std::make_unique<Server>(options, loop_, std::vector<Loop*>{&loop_}, counters_);
  ExportOptions exported;
  exported.name = "main";
  exported.chunk = 4_KiB;
  exported.pool = setting_.pool;
  exported.in_flight = setting_.in_flight;
  exported.pipeline = setting_.pipeline;
  exported.scheduler = setting_.scheduler;
  auto store = std::make_unique<HeldStore>(setting_.concurrency);
  store_ = store.get();
  server_->add_export(exported, std::move(store)).value();
  listener_ =
      server_side_->listen(kServer, loop_, [this](auto c) { server_->accept(std::move(c)); })
          .value();
}

void Stage::make_file() {
  Request create = server::request(Op::create, store_->root().value(), "file");
  create.caller = caller_;
  create.mode = 0600;
  create.access = Access::both;
  const Reply made = store_->call(std::move(create)).value();
  file_ = {made.handle, made.right};
  reset();
}

void Stage::connect() {
  for (unsigned i = 0; i < kClients; ++i) {
    if (!setting_.real) {
      raw_.push_back(std::make_unique<server::RawClient>(loop_, network_, host(i)));
      FOREBAY_ASSERT(raw_.back()->connect());
      continue;
    }
    RemoteOptions options;
    options.address = []() -> Result<Address> { return kServer; };
    options.export_name = "main";
    RemoteRuntime runtime;
    runtime.loop = &loop_;
    runtime.make_transport = [this, i](Loop&) { return network_.transport(host(i)); };
    real_.push_back(RemoteStore::connect(std::move(options), std::move(runtime)).value());
    real_.back()->root().value();
  }
}

// Requests are merged only when their right has proved good, and small writes take their short way
// only when it has in their own session.
void Stage::warm_up() {
  send(0, {false, {{0, 1}}});
  for (unsigned i = 0; i < kClients; ++i) send(i, {true, {{1, 1}}});
  settle();
  reset();
}

void Stage::reset() {
  sent_.clear();
  written_.clear();
  step_ = 0;
  Cells cells(kFileCells);
  for (unsigned i = 0; i < kFileCells; ++i) cells[i] = static_cast<uint16_t>(i);
  std::string bytes = bytes_of(cells);
  Request write = request({true, {{0, kFileCells}}});
  write.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  store_->memory.call(std::move(write)).value();
}

// ---- Steps ----

Request Stage::request(const Ask& ask) const {
  std::vector<Extent> blocks;
  for (const Range& r : ask.where) {
    blocks.push_back({Offset(r.at * setting_.cell), Length(r.count * setting_.cell)});
  }
  Request r = server::data_request(ask.write ? Op::write : Op::read, file_,
                                   Extents::make(std::move(blocks)).value());
  r.caller = caller_;
  return r;
}

void Stage::send(unsigned client, const Ask& ask) {
  Sent& sent = sent_.emplace_back();
  Happened& h = sent.happened;
  h = {client, ask.write, ask.where, {}, ++step_, 0, false};
  unsigned value = static_cast<unsigned>(sent_.size()) * kCellsOfOne;
  for (const Range& r : ask.where) {
    for (unsigned i = 0; i < r.count; ++i) h.cells.push_back(static_cast<uint16_t>(value++));
  }
  Request r = request(ask);
  sent.bytes = ask.write ? bytes_of(h.cells) : std::string(r.file.total().value, '\0');
  if (setting_.real) {
    r.memory = Memory::of(std::as_writable_bytes(std::span(sent.bytes)));
    real_[client]->submit(
        std::move(r), [&sent](Result<Reply>&& result) { sent.result.emplace(std::move(result)); });
  } else {
    r.caller = nullptr;
    sent.raw = raw_[client]->send(std::move(r), sent.bytes);
  }
}

void Stage::end_call(unsigned which) {
  ++step_;
  store_->end(which);
}

void Stage::cut(unsigned client) {
  for (Sent& sent : sent_) {
    if (sent.happened.client == client && sent.happened.ended == 0) sent.happened.lost = true;
  }
  network_.cut(host(client));
}

void Stage::settle() {
  while (loop_.run_one(1ms)) {
  }
  look();
}

void Stage::run(unsigned events) {
  while (events-- > 0 && loop_.run_one(1ms)) {
  }
  look();
  ++step_;
}

void Stage::look() {
  for (Sent& sent : sent_) {
    if (sent.raw && sent.raw->done() && !sent.result) {
      sent.result = sent.raw->result;
      if (!sent.happened.write) sent.bytes = sent.raw->in;
    }
    if (sent.result && sent.happened.ended == 0) sent.happened.ended = step_;
  }
}

bool Stage::waiting(unsigned client) const {
  for (const Sent& sent : sent_) {
    if (sent.happened.client == client && sent.happened.ended == 0) return true;
  }
  return false;
}

bool Stage::waiting() const {
  return std::ranges::any_of(sent_, [](const Sent& s) { return s.happened.ended == 0; });
}

// ---- What came of it ----

std::string Stage::bytes_of(const Cells& cells) const {
  std::string bytes(cells.size() * setting_.cell, '\0');
  char* to = bytes.data();
  for (const uint16_t cell : cells) {
    for (size_t i = 0; i < setting_.cell; i += sizeof cell, to += sizeof cell) {
      std::memcpy(to, &cell, sizeof cell);
    }
  }
  return bytes;
}

// A cell that is not of one value throughout is one that nobody wrote.
Cells Stage::cells_of(const std::string& bytes) const {
  Cells cells;
  for (size_t at = 0; at < bytes.size(); at += setting_.cell) {
    uint16_t cell;
    const char* const from = bytes.data() + at;
    std::memcpy(&cell, from, sizeof cell);
    const bool whole = std::memcmp(from, from + sizeof cell, setting_.cell - sizeof cell) == 0;
    cells.push_back(whole ? cell : UINT16_MAX);
  }
  return cells;
}

Cells Stage::content() {
  std::string bytes(kFileCells * setting_.cell, '\0');
  Request read = request({false, {{0, kFileCells}}});
  read.memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  store_->memory.call(std::move(read)).value();
  return cells_of(bytes);
}

void Stage::note(const Request& applied) {
  if (applied.op != Op::write) return;
  std::string bytes(applied.file.total().value, '\0');
  copy_out(applied.memory, std::as_writable_bytes(std::span(bytes)));
  std::set<unsigned> requests;
  for (const uint16_t cell : cells_of(bytes)) {
    ++written_[cell];
    requests.insert(cell / kCellsOfOne);
  }
  merged_ += requests.size() > 1;
}

std::string Stage::verdict() {
  std::vector<Happened> history;
  std::string wrong;
  for (Sent& sent : sent_) {
    Happened& h = sent.happened;
    if (!sent.result || !*sent.result) {
      wrong += sent.result ? sent.result->error().message() : "no answer";
    } else if ((*sent.result)->count != sent.bytes.size()) {
      wrong += "short";
    }
    if (!h.write) h.cells = cells_of(sent.bytes);
    for (const uint16_t cell : h.cells) {
      if (h.write && written_[cell] != 1) wrong += fmt::format("{}: {}x ", cell, written_[cell]);
    }
    history.push_back(h);
  }
  Cells before(kFileCells);
  for (unsigned i = 0; i < kFileCells; ++i) before[i] = static_cast<uint16_t>(i);
  const Cells after = content();
  if (!legal(history, before, after)) wrong += "no legal order gives this";
  if (wrong.empty()) return {};
  wrong += ":\n";
  for (const Happened& h : history) wrong += text(h);
  return fmt::format("{}  in the end: {}\n", wrong, fmt::join(after, " "));
}

uint64_t Stage::reconnects() const {
  uint64_t sum = 0;
  for (const auto& client : real_) sum += client->stats().reconnects;
  return sum;
}

}  // namespace forebay::order
