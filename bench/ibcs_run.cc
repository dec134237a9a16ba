#include "bench/ibcs_run.h"

#include <algorithm>
#include <cmath>

#include "bench/ibcs_store.h"

namespace forebay::bench {

namespace {

class Run {
 public:
  Run(const IbcsModel& model, const IbcsLoad& load, Strategy strategy, bool write)
      : model_(model),
        load_(load),
        strategy_(strategy),
        write_(write),
        striping_{static_cast<uint64_t>(model.stripe), load.targets},
        network_(time_, model_, load.aggregators + load.targets),
        processes_(load.processes) {
    for (uint32_t t = 0; t < load.targets; ++t) targets_.emplace_back(time_, model_);
  }

  IbcsResult all() {
    for (uint64_t call = 0; call < load_.calls; ++call) {
      for (const auto& windows : windows_of(model_, load_, strategy_, call)) iteration(windows);
    }
    result_.seconds = time_.now();
    result_.bytes = load_.calls * load_.bytes;
    result_.verified = true;
    for (uint32_t t = 0; t < load_.targets; ++t) account(t);
    return result_;
  }

 private:
  using Window = std::vector<Piece>;
  using Shares = std::vector<uint64_t>;  // of each process in a window

  void account(uint32_t t) {
    result_.seeks += targets_[t].seeks();
    result_.revocations += targets_[t].revocations();
    const uint64_t expected = striping_.on_target(t, result_.bytes);
    uint64_t moved = 0;
    for (const Extent& one : targets_[t].served()) moved += one.length.value;
    const ExtentSet set = normalise(targets_[t].served());
    const bool whole = set.size() == 1 && set[0] == Extent{Offset(0), Length(expected)};
    result_.verified = result_.verified && moved == expected && whole;
  }

  void iteration(const std::vector<Window>& windows) {
    ++result_.iterations;
    std::vector<size_t> served(load_.targets);
    std::vector<Shares> shares;
    for (const Window& window : windows) {
      for (const Piece& piece : window) ++served[piece.target];
      shares.push_back(shares_of(window));
    }
    result_.most_at_a_target = std::max(result_.most_at_a_target, std::ranges::max(served));
    if (write_) {
      exchange(shares, [&](uint32_t a) { access(a, windows[a], [] {}); });
    } else {
      for (uint32_t a = 0; a < load_.aggregators; ++a) {
        access(a, windows[a], [&, a] { deal_out(a, shares[a]); });
      }
    }
    time_.run();
    synchronise();
  }

  Shares shares_of(const Window& window) const {
    Shares shares(load_.processes);
    for (const Piece& piece : window) {
      for (uint64_t at = piece.offset; at < piece.offset + piece.bytes;) {
        const uint64_t end =
            std::min(piece.offset + piece.bytes, (at / striping_.stripe + 1) * striping_.stripe);
        const uint64_t in_file = striping_.file_offset(piece.target, at);
        load_.owners(in_file, in_file + (end - at), shares);
        at = end;
      }
    }
    return shares;
  }

  // Of a write: every process sends to every aggregator what it has for it, one after the other.
  void exchange(const std::vector<Shares>& shares, const std::function<void(uint32_t)>& complete) {
    waiting_.assign(load_.aggregators, 0);
    for (uint32_t a = 0; a < load_.aggregators; ++a) {
      waiting_[a] = std::ranges::count_if(shares[a], [](uint64_t n) { return n > 0; });
    }
    for (uint32_t p = 0; p < load_.processes; ++p) {
      for (uint32_t a = 0; a < load_.aggregators; ++a) {
        if (shares[a][p] == 0) continue;
        message(p, load_.process_of(a), shares[a][p], [this, a, complete] {
          if (--waiting_[a] == 0) complete(a);
        });
        result_.pairs.emplace(p, a);
      }
    }
  }

  // Of a read: an aggregator sends what it has to everybody.
  void deal_out(uint32_t a, const Shares& shares) {
    for (uint32_t p = 0; p < load_.processes; ++p) {
      if (shares[p] == 0) continue;
      message(load_.process_of(a), p, shares[p], [] {});
      result_.pairs.emplace(p, a);
    }
  }

  double copying(uint64_t bytes) const { return static_cast<double>(bytes) / model_.copy; }

  void message(uint32_t from, uint32_t to, uint64_t bytes, VirtualTime::Action done) {
    if (from == to) {
      time_.at(processes_[from].take(time_.now(), copying(bytes)), std::move(done));
      return;
    }
    ++result_.messages;
    const double sent = processes_[from].take(time_.now(), model_.message + copying(bytes));
    const auto take = [this, to, bytes, done = std::move(done)] {
      time_.at(processes_[to].take(time_.now(), model_.message + copying(bytes)), done);
    };
    const uint32_t here = load_.node_of(from), there = load_.node_of(to);
    if (here == there) {
      time_.at(sent, take);
      return;
    }
    result_.crossing_bytes += bytes;
    time_.at(sent, [this, here, there, bytes, take] { network_.send({here, there, bytes, take}); });
  }

  // Moves a window between an aggregator's node and the targets.
  void access(uint32_t a, const Window& window, VirtualTime::Action done) {
    const std::vector<Piece> requests = cut(window);
    const auto left = std::make_shared<size_t>(requests.size());
    const auto one_done = [left, done = std::move(done)] {
      if (--*left == 0) done();
    };
    const uint32_t node = load_.node_of(load_.process_of(a));
    for (const Piece& piece : requests) {
      const uint32_t server = load_.aggregators + piece.target;
      Target::Request request{a, write_, {Offset(piece.offset), Length(piece.bytes)}, {}};
      if (write_) {
        request.served = [this, one_done] { time_.at(time_.now() + model_.latency, one_done); };
        network_.send({node, server, piece.bytes,
                       [this, piece, request] { targets_[piece.target].add(request); }});
      } else {
        request.served = [this, server, node, piece, one_done] {
          network_.send({server, node, piece.bytes, one_done});
        };
        time_.at(time_.now() + model_.latency,
                 [this, piece, request] { targets_[piece.target].add(request); });
      }
    }
  }

  // Into requests that the servers take.
  std::vector<Piece> cut(const Window& window) const {
    const auto most = static_cast<uint64_t>(model_.rpc);
    std::vector<Piece> result;
    for (const Piece& piece : window) {
      for (uint64_t at = piece.offset, end = at + piece.bytes; at < end;) {
        const uint64_t next = std::min(end, (at / most + 1) * most);
        result.push_back({piece.target, at, next - at});
        at = next;
      }
    }
    return result;
  }

  // A tree of messages.
  void synchronise() {
    const double rounds = std::ceil(std::log2(load_.processes));
    time_.at(time_.now() + rounds * (model_.latency + model_.message), [] {});
    time_.run();
  }

  const IbcsModel& model_;
  const IbcsLoad& load_;
  const Strategy strategy_;
  const bool write_;
  const Striping striping_;
  VirtualTime time_;
  Network network_;
  std::vector<Serial> processes_;
  std::vector<Target> targets_;
  std::vector<ptrdiff_t> waiting_;  // messages that each aggregator still lacks
  IbcsResult result_;
};

}  // namespace

IbcsResult simulate(const IbcsModel& model, const IbcsLoad& load, Strategy strategy, bool write) {
  return Run(model, load, strategy, write).all();
}

}  // namespace forebay::bench
