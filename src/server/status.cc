#include "server/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <iterator>

#include "wire/codec.h"

namespace forebay::server {
namespace {

// Texts come from clients. What is not plain ASCII becomes '?': a client's bytes may not be UTF-8.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
    } else {
      out += byte < 0x80 ? c : '?';
    }
  }
  return out += '"';
}

double microseconds(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

// `count` of an operation's number.
template <class Count>
std::string ops_of(Count&& count) {
  std::string out;
  for (int i = 0; i < kOpCount; ++i) {
    if (count(i) == 0) continue;
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ",
                       quoted(op_info(static_cast<Op>(i)).name), count(i));
  }
  return out;
}

std::string to_json(const SchedulerStatus& s) {
  const double ratio =
      s.batches > 0 ? static_cast<double>(s.requests) / static_cast<double>(s.batches) : 1;
  return fmt::format(
      R"({{"policy": {}, "why": {}, "requests": {}, "batches": {}, "requests_per_batch": {:.3f}, )"
      R"("merged": {}, "retried": {}, "bytes": {}, "waiting": {}, "most_waiting": {}, )"
      R"("in_service": {}, "batch_sizes": [{}], )"
      R"("latency_us": {{"p50": {:.1f}, "p90": {:.1f}, "p99": {:.1f}}}}})",
      quoted(s.policy), quoted(s.why), s.requests, s.batches, ratio, s.merged, s.retried, s.bytes,
      s.waiting, s.most_waiting, s.in_service, fmt::join(s.sizes, ", "), microseconds(s.p50),
      microseconds(s.p90), microseconds(s.p99));
}

std::string to_json(const BehindStatus& s) {
  const double ratio =
      s.batches > 0 ? static_cast<double>(s.writes) / static_cast<double>(s.batches) : 1;
  return fmt::format(
      R"({{"when": {}, "memory": {}, "limit": {}, "dirty_files": {}, "writes": {}, "bytes": {}, )"
      R"("through": {}, "rounds": {}, "batches": {}, "writes_per_batch": {:.3f}, "retried": {}, )"
      R"("lost_pieces": {}, "lost_bytes": {}}})",
      quoted(s.when), s.memory, s.limit, s.files, s.writes, s.bytes, s.through, s.rounds, s.batches,
      ratio, s.retried, s.lost_pieces, s.lost_bytes);
}

std::string to_json(const SieveCounters& s) {
  return fmt::format(R"({{"reads": {}, "writes": {}, "windows": {}, "bytes": {}}})", s.reads.get(),
                     s.writes.get(), s.windows.get(), s.bytes.get());
}

std::string to_json(const SharedState::Status& s) {
  return fmt::format(
      R"({{"files": {}, "attributes": {}, "clients": {}, "remembered": {}, "repeated": {}, )"
      R"("appends": {}, "open_places": {}, "holes": {}, "journal": {{"kept": {}, "sync": {}, )"
      R"("failing": {}, "life": {}, "bytes": {}, "records": {}, "writes": {}, "compactions": {}}}}})",
      s.counts.files, s.counts.attributes, s.counts.clients, s.counts.lanes, s.repeated, s.granted,
      s.counts.open, s.counts.holes, s.journaled, s.sync, s.failing, s.life, s.journal_bytes,
      s.records, s.writes, s.compactions);
}

std::string to_json(const ShortcutUse& s) {
  return fmt::format(R"({{"reads": {}, "writes": {}, "bytes_read": {}, "bytes_written": {}}})",
                     s.reads, s.writes, s.bytes_read, s.bytes_written);
}

std::string to_json(const Export& e, const std::vector<SessionStatus>& sessions) {
  ShortcutUse used = e.shortcuts.used();
  for (const SessionStatus& s : sessions) {
    if (s.info->export_name == e.options.name) used += s.info->by_shortcut();
  }
  return fmt::format(
      R"({{"name": {}, "what": {}, "flights": {}, "reservations": {}, "locks": {}, "lock_waits": {}, "leases": {}, "recalls": {}, "errors": {}, "bytes_in": {}, )"
      R"("bytes_out": {}, "pool": {{"buffer": {}, "buffers": {}, "in_use": {}}}, "small": {{"bytes": {}, "used": {}}}, )"
      R"("shortcuts": {{"out": {}, "granted": {}, "wanted_back": {}, "use": {}}}, "scheduler": {}, "sieve": {}, "write_behind": {}, "state": {}, {}"ops": {{{}}}}})",
      quoted(e.options.name), quoted(e.options.what), e.flights.get(), e.reservations.held(),
      e.locks.held(), e.locks.waiting(), e.leases->held(), e.leases->waiting(), e.errors.get(),
      e.bytes_in.get(), e.bytes_out.get(), e.pool.buffer_size(),
      e.pool.capacity() + (e.away ? e.away->capacity() : 0),
      e.pool.in_use() + (e.away ? e.away->in_use() : 0), e.small->most(), e.small->used(),
      e.shortcuts.out(), e.shortcuts.granted.get(), e.shortcuts.recalled.get(), to_json(used),
      to_json(e.store().scheduler()), to_json(e.sieved), to_json(e.store().status()),
      to_json(e.state().status()),
      e.relay ? fmt::format(R"("cluster": {}, )", e.relay->status()) : std::string(),
      ops_of([&](int i) { return e.ops[i]->get(); }));
}

std::string to_json(const SessionStatus& s) {
  const SessionInfo& i = *s.info;
  const ShortcutUse itself = i.by_shortcut();
  return fmt::format(
      R"({{"id": {}, "export": {}, "host": {}, "program": {}, "pid": {}, "uid": {}, "job": {}, )"
      R"("where": {}, "connected": {}, "flights": {}, "requests": {}, "bytes_in": {}, )"
      R"("bytes_out": {}, "by_shortcut": {}, "ops": {{{}}}, )"
      R"("latency_us": {{"p50": {:.1f}, "p99": {:.1f}}}}})",
      i.id, quoted(i.export_name), quoted(i.host), quoted(i.program), i.pid, i.uid, quoted(i.job),
      quoted(s.where), i.connected.load(), i.flights.get(), i.requests.get(), i.bytes_in.get(),
      i.bytes_out.get(), to_json(itself), ops_of([&](int o) { return i.ops[o].get(); }),
      microseconds(i.latency.percentile(0.5)), microseconds(i.latency.percentile(0.99)));
}

// As many as fit in one control reply: a list that is cut is better than none.
std::string sessions_of(const Status& s, size_t& left_out) {
  constexpr size_t kMost = wire::kMaxJson / 4 * 3;
  std::string out;
  for (size_t i = 0; i < s.sessions.size(); ++i) {
    if (out.size() > kMost) {
      left_out = s.sessions.size() - i;
      break;
    }
    if (!out.empty()) out += ", ";
    out += to_json(s.sessions[i]);
  }
  return out;
}

}  // namespace

std::string to_json(const Status& s) {
  std::string exports;
  for (const auto& e : s.exports) {
    if (!exports.empty()) exports += ", ";
    exports += to_json(*e, s.sessions);
  }
  size_t left_out = 0;
  const std::string sessions = sessions_of(s, left_out);
  return fmt::format(
      R"({{"name": {}, "pid": {}, "boot": "{:016x}", "uptime_seconds": {:.3f}, "stopping": {}, )"
      R"("exports": [{}], "sessions": [{}], "sessions_left_out": {}}})",
      quoted(s.name), ::getpid(), s.boot, std::chrono::duration<double>(s.uptime).count(),
      s.stopping, exports, sessions, left_out);
}

}  // namespace forebay::server
