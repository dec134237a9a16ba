#include "store/trace.h"

#include <fmt/format.h>

namespace forebay {

namespace {

using Line = fmt::memory_buffer;

template <class... Args>
void put(Line& line, fmt::format_string<Args...> f, Args&&... args) {
  fmt::format_to(std::back_inserter(line), f, std::forward<Args>(args)...);
}

std::string short_hash(std::string_view bytes) {
  if (bytes.empty()) return "-";
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const unsigned char c : bytes) hash = (hash ^ c) * 16777619u;
  return fmt::format("{:08x}", hash);
}

std::string in_quotes(std::string_view name) {
  std::string out = "\"";
  for (const unsigned char c : name) {
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20 || c >= 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out += '"';
}

const char* access_name(Access access) {
  constexpr const char* kNames[] = {"none", "read", "write", "both"};
  return kNames[static_cast<int>(access) & 3];
}

void put_names(Line& line, const Request& r, uint32_t fields) {
  if (fields & kName) put(line, " {}", in_quotes(r.name));
  if (fields & kHandle2) put(line, " {}", short_hash(r.handle2.bytes));
  if (fields & kName2) put(line, " {}", in_quotes(r.name2));
}

void put_arguments(Line& line, const Request& r, uint32_t fields) {
  if (fields & kAccess) put(line, " access={}", access_name(r.access));
  if (fields & kMode) put(line, " mode={:o}", r.mode);
  if (fields & kSet) put(line, " set={:#x}", r.set.what);
  if (fields & kOffset) put(line, " offset={}", r.offset.value);
  if ((fields & kLength) && r.length) put(line, " length={}", r.length.value);
  if ((fields & kCookie) && (r.op != Op::write || r.cookie != 0)) {
    put(line, " cookie={}", r.cookie);
  }
  if (fields & kData) put(line, " data={} B", r.data.size());
  if (fields & kFile) {
    const Extent bounds = r.file.bounds();
    put(line, " file={} {}, {} B in [{}, {})", r.file.pieces(),
        r.file.pieces() == 1 ? "piece" : "pieces", r.file.total().value, bounds.offset.value,
        bounds.end().value);
  }
  if (r.flags) put(line, " flags={:#x}", r.flags);
}

std::string duration(Duration took) {
  return fmt::format("{:.1f} us", static_cast<double>(took.count()) / 1000);
}

}  // namespace

std::string format(const Request& r) {
  const OpInfo& info = op_info(r.op);
  const uint32_t fields = info.needs | info.may;
  Line line;
  put(line, "{} {}", info.name, short_hash(r.handle.bytes));
  put_names(line, r, fields);
  put_arguments(line, r, fields);
  if (r.caller) put(line, " uid={}", r.caller->uid);
  return fmt::to_string(line);
}

std::string format(Op op, const Result<Reply>& result, Duration took) {
  Line line;
  if (!result) {
    const Error& e = result.error();
    put(line, "{}", errno_name(e.code()));
    if (e.done() != 0) put(line, " after {} B", e.done());
    if (e.is_outcome_unknown()) put(line, " (outcome unknown)");
  } else if (op == Op::read || op == Op::write) {
    put(line, "{} B", result->count);
  } else if (op == Op::readdir) {
    put(line, "{} entries{}", result->entries.size(), result->end ? ", end" : "");
  } else if (!result->handle.empty()) {
    put(line, "ok {}", short_hash(result->handle.bytes));
  } else {
    put(line, "ok");
  }
  put(line, ", {}", duration(took));
  return fmt::to_string(line);
}

TraceStore::TraceStore(std::unique_ptr<Store> inner, const Clock& clock, TraceSink sink)
    : Decorator(std::move(inner)), clock_(clock), sink_(std::move(sink)) {}

struct TraceStore::Pending {
  const TraceStore* store;
  std::string request;
  Op op;
  Time start;
  Completion done;

  void complete(Result<Reply>&& result) {
    const Duration took = store->clock_.now() - start;
    store->sink_(request + " -> " + format(op, result, took));
    done(std::move(result));
  }
};

void TraceStore::submit(Request&& request, Completion&& done) {
  auto pending = std::make_unique<Pending>(
      Pending{this, format(request), request.op, clock_.now(), std::move(done)});
  inner().submit(std::move(request), [p = std::move(pending)](Result<Reply>&& result) mutable {
    p->complete(std::move(result));
  });
}

}  // namespace forebay
