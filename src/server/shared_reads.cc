#include "server/shared_reads.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "server/sieved_store.h"

namespace forebay::server {
namespace {

constexpr size_t kMostParts = 256;  // of a request
// So often the cell that has waited longest goes first.
constexpr uint64_t kOldestEvery = 4;

}  // namespace

struct SharedReads::Reader {
  Request request;
  Completion done;
  // Under the lock.
  size_t left = 1;                                      // parts, and who hands them out
  uint64_t end = std::numeric_limits<uint64_t>::max();  // the first byte of the stream not there
  int code = 0;                                         // a part has failed
};

struct SharedReads::Reading {
  std::string file;
  std::vector<Part> parts;
  uint64_t begin = 0;         // of the cell
  std::vector<Extent> spans;  // what is read of it
  Buffer buffer;

  void join(uint64_t hole);
  Request request() const;
  Offset end(uint64_t count) const;
  uint64_t copy(const Part& part, Offset end) const;
};

// Windows closer together than so many bytes are read with what lies between them.
void SharedReads::Reading::join(uint64_t hole) {
  for (const Part& part : parts) spans.push_back(part.window);
  std::ranges::sort(spans, {}, &Extent::offset);
  size_t last = 0;
  for (const Extent& span : spans) {
    Extent& before = spans[last];
    if (span.offset.value < before.end().value + hole)
      before.length = std::max(before.end(), span.end()) - before.offset;
    else
      spans[++last] = span;
  }
  spans.resize(last + 1);
}

Request SharedReads::Reading::request() const {
  const Request& first = parts.front().reader->request;
  Request r;
  r.op = Op::read;
  r.caller = first.caller;
  r.handle = first.handle;
  r.right = first.right;
  std::vector<Extent> places;
  for (const Extent& span : spans)
    places.push_back({Offset(span.offset.value - begin), span.length});
  r.file = Extents::make(spans).value();  // they rise
  r.memory = {buffer.bytes().data(), Extents::make(std::move(places)).value()};
  return r;
}

// Where the file ended, if so many bytes were there.
Offset SharedReads::Reading::end(uint64_t count) const {
  for (const Extent& span : spans) {
    if (count < span.length.value) return span.offset + Length(count);
    count -= span.length.value;
  }
  return Offset(kMaxOffset);
}

// How many bytes there were.
uint64_t SharedReads::Reading::copy(const Part& part, Offset file_end) const {
  const Request& r = part.reader->request;
  ExtentCursor place_in_file(r.file), memory(r.memory.shape);
  place_in_file.advance(part.position);
  memory.advance(part.position);
  uint64_t copied = 0;
  while (copied < part.length.value) {
    const Extent piece = place_in_file.current(), place = memory.current();
    const uint64_t left = part.length.value - copied;
    const uint64_t most = std::min({piece.length.value, place.length.value, left});
    const uint64_t n =
        std::min(most, piece.offset < file_end ? (file_end - piece.offset).value : 0);
    std::memcpy(r.memory.at(place.offset), buffer.bytes().data() + (piece.offset.value - begin), n);
    copied += n;
    if (n < most) break;
    place_in_file.advance(Length(n));
    memory.advance(Length(n));
  }
  return copied;
}

SharedReads::SharedReads(Store& store, BufferPool& pool, const plan::SieveCosts& costs,
                         const SieveCounters& counters)
    : store_(store),
      pool_(pool),
      costs_(costs),
      counters_(counters),
      most_out_(std::max(store.concurrency(), 1u)),
      most_of_file_(std::max(most_out_ / 2, 1u)) {}

// ---- In ----

bool SharedReads::cut(const std::shared_ptr<Reader>& reader, std::vector<Part>& parts,
                      std::vector<Part>& stretches) const {
  const Extents& file = reader->request.file;
  plan::Sieve steps(file, costs_);
  Length position;
  for (Offset end; const auto step = steps.next();) {
    const bool stretch = step->window.empty();
    const Extent where = stretch ? file.slice(position, step->stream).bounds() : step->window;
    if (where.offset < end) return false;
    end = where.end();
    (stretch ? stretches : parts).push_back({reader, step->window, position, step->stream});
    position += step->stream;
    if (parts.size() + stretches.size() > kMostParts) return false;
  }
  return true;
}

bool SharedReads::submit(Request& request, Completion& done) {
  const auto reader = std::make_shared<Reader>();
  reader->request = request;
  std::vector<Part> parts, stretches;
  if (!cut(reader, parts, stretches)) return false;
  reader->done = std::move(done);
  const std::string key(store_.identity(reader->request.handle));
  counters_.reads.add();
  {
    std::lock_guard lock(mutex_);
    reader->left += parts.size() + stretches.size();
    if (closing_) {
      reader->code = ESHUTDOWN;
      reader->left = 1;
      parts.clear();
      stretches.clear();
    }
    for (Part& part : parts) {
      Cell& cell = files_[key].cells[part.window.offset.value / costs_.grid];
      if (cell.parts.empty()) cell.since = ++arrived_;
      cell.parts.push_back(std::move(part));
    }
  }
  for (Part& part : stretches) read_apart(std::move(part));
  pump();
  left(reader);
  return true;
}

// ---- To the Store ----

bool SharedReads::begin_issuing() {
  std::lock_guard lock(mutex_);
  if (!closing_) ++issuing_;
  return !closing_;
}

void SharedReads::end_issuing() {
  std::lock_guard lock(mutex_);
  if (--issuing_ == 0 && closing_) quiet_.notify_all();
}

// Not by recursion: what the Store refuses comes back at once.
void SharedReads::pump() {
  std::unique_lock lock(mutex_);
  if (pumping_) return;
  pumping_ = true;
  while (auto reading = next()) {
    ++issuing_;
    lock.unlock();
    issue(std::move(reading));
    lock.lock();
    if (--issuing_ == 0 && closing_) quiet_.notify_all();
  }
  pumping_ = false;
}

// Under the lock. Files in turn.
std::unique_ptr<SharedReads::Reading> SharedReads::next() {
  if (closing_ || out_ >= most_out_ || files_.empty()) return nullptr;
  auto at = files_.find(last_);
  for (size_t tries = files_.size(); tries > 0; --tries) {
    if (at == files_.end() || ++at == files_.end()) at = files_.begin();
    File& file = at->second;
    if (file.cells.empty() || file.out >= most_of_file_) continue;
    auto cell = file.cells.begin();
    if (++issued_ % kOldestEvery == 0)
      cell = std::ranges::min_element(file.cells, {}, [](const auto& c) { return c.second.since; });
    auto reading = std::make_unique<Reading>();
    reading->file = last_ = at->first;
    reading->begin = cell->first * costs_.grid;
    reading->parts = std::move(cell->second.parts);
    file.cells.erase(cell);
    ++file.out;
    ++out_;
    return reading;
  }
  return nullptr;
}

void SharedReads::issue(std::unique_ptr<Reading> reading) {
  Reading* const r = reading.get();
  std::erase_if(r->parts, [&](const Part& part) {
    if (!part.reader->request.stop.stop_requested()) return false;
    failed(part, ECANCELED);
    return true;
  });
  if (!r->parts.empty()) r->buffer = pool_.try_take();
  if (!r->buffer) {
    for (Part& part : r->parts) read_apart(std::move(part));
    r->parts.clear();
    return landed(*r, Reply{});
  }
  r->join(costs_.call);
  counters_.windows.add(r->spans.size());
  for (const Extent& span : r->spans) counters_.bytes.add(span.length.value);
  store_.submit(r->request(), [self = shared_from_this(), held = std::move(reading)](
                                  Result<Reply>&& result) { self->landed(*held, result); });
}

// A part as it is.
void SharedReads::read_apart(Part part) {
  if (!begin_issuing()) return failed(part, ESHUTDOWN);
  Request r = part.reader->request;
  r.file = r.file.slice(part.position, part.length);
  r.memory = r.memory.slice(part.position, part.length);
  store_.submit(std::move(r), [self = shared_from_this(), part](Result<Reply>&& result) {
    result ? self->ended(part, result->count) : self->failed(part, result.error().code());
  });
  end_issuing();
}

void SharedReads::read_again(const std::shared_ptr<Reader>& reader) {
  if (!begin_issuing()) return reader->done(Error(ESHUTDOWN, "the server is going away"));
  store_.submit(std::move(reader->request), std::move(reader->done));
  end_issuing();
}

// ---- Back ----

void SharedReads::landed(Reading& reading, const Result<Reply>& result) {
  const Offset end = result && reading.buffer ? reading.end(result->count) : Offset();
  std::vector<uint64_t> counts;
  if (result)
    for (const Part& part : reading.parts) counts.push_back(reading.copy(part, end));
  reading.buffer.release();
  {
    std::lock_guard lock(mutex_);
    --out_;
    const auto file = files_.find(reading.file);
    if (--file->second.out == 0 && file->second.cells.empty()) files_.erase(file);
  }
  pump();  // before those who are served come again: they would only be in the way
  for (size_t i = 0; i < reading.parts.size(); ++i)
    result ? ended(reading.parts[i], counts[i]) : failed(reading.parts[i], result.error().code());
}

void SharedReads::ended(const Part& part, uint64_t count) {
  if (count < part.length.value) {
    std::lock_guard lock(mutex_);
    part.reader->end = std::min(part.reader->end, part.position.value + count);
  }
  left(part.reader);
}

void SharedReads::failed(const Part& part, int code) {
  {
    std::lock_guard lock(mutex_);
    if (part.reader->code != ECANCELED) part.reader->code = code;
  }
  left(part.reader);
}

void SharedReads::left(const std::shared_ptr<Reader>& reader) {
  {
    std::lock_guard lock(mutex_);
    if (--reader->left > 0) return;
  }
  if (reader->code == ECANCELED) return reader->done(Error(ECANCELED));
  if (reader->code) return read_again(reader);
  Reply reply;
  reply.count = std::min(reader->end, reader->request.file.total().value);
  reader->done(std::move(reply));
}

void SharedReads::close() {
  std::unordered_map<std::string, File> files;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    quiet_.wait(lock, [this] { return issuing_ == 0; });
    for (auto& [key, file] : files_) {
      File& taken = files[key];
      taken.cells = std::exchange(file.cells, {});
    }
  }
  for (const auto& [key, file] : files)
    for (const auto& [number, cell] : file.cells)
      for (const Part& part : cell.parts) failed(part, ESHUTDOWN);
}

}  // namespace forebay::server
