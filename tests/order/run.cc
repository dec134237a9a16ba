#include "run.h"

#include <algorithm>

namespace forebay::order {

namespace {

constexpr unsigned kStepsPerCut = 12;  // where steps mix, and chance decides

class Run {
 public:
  Run(Stage& stage, const Script& script, const Rules& rules, Chooser& chooser)
      : stage_(stage), script_(script), rules_(rules), chooser_(chooser) {}

  bool go() {
    // The limit is for a server that answers never: the verdict says so.
    for (unsigned steps = 0; steps < 10'000 && step(); ++steps) {
    }
    stage_.settle();
    return was_cut_;
  }

 private:
  bool step() {
    const std::vector<unsigned> senders = may_send();
    const bool calls_too = senders.empty() || rules_.arrivals == Arrivals::any;
    const auto sends = static_cast<unsigned>(senders.size());
    const unsigned calls = rules_.calls_in_order ? std::min(stage_.calls(), 1u) : stage_.calls();
    const unsigned options = sends + (calls_too ? calls : 0);
    if (options == 0) {
      if (rules_.settle || !stage_.waiting()) return false;
      stage_.run(1);
      return true;
    }
    const unsigned taken = chooser_.pick(options);
    if (taken < sends) {
      const unsigned client = senders[taken];
      stage_.send(client, script_[client][sent_[client]++]);
    } else {
      stage_.end_call(taken - sends);
    }
    maybe_cut();
    if (rules_.settle) {
      stage_.settle();
      maybe_cut();
      if (was_cut_) stage_.settle();
    } else {
      stage_.run(chooser_.pick(16));
    }
    return true;
  }

  std::vector<unsigned> may_send() const {
    std::vector<unsigned> clients;
    for (unsigned c = 0; c < kClients; ++c) {
      if (sent_[c] == script_[c].size()) continue;
      if (rules_.arrivals == Arrivals::answered && stage_.waiting(c)) continue;
      clients.push_back(c);
    }
    return clients;
  }

  void maybe_cut() {
    if (was_cut_) return;
    std::vector<unsigned> clients;
    for (const unsigned c : rules_.cut) {
      if (stage_.waiting(c)) clients.push_back(c);
    }
    if (clients.empty()) return;
    if (!rules_.settle && chooser_.pick(kStepsPerCut) != 0) return;
    const unsigned taken = chooser_.pick(static_cast<unsigned>(clients.size()) + 1);
    if (taken == 0) return;
    was_cut_ = true;
    stage_.cut(clients[taken - 1]);
  }

  Stage& stage_;
  const Script& script_;
  const Rules rules_;
  Chooser& chooser_;
  std::array<size_t, kClients> sent_{};
  bool was_cut_ = false;
};

}  // namespace

bool run(Stage& stage, const Script& script, const Rules& rules, Chooser& chooser) {
  return Run(stage, script, rules, chooser).go();
}

Script random_script(Chooser& dice) {
  Script script;
  for (auto& asks : script) {
    for (int i = 0; i < 3; ++i) {
      Ask ask{dice.pick(2) == 0, {}};
      const unsigned ranges = dice.pick(2) == 0 ? 1 : 2 + dice.pick(3);
      const unsigned most = kFileCells - 4;
      for (unsigned r = 0; r < ranges; ++r) {
        const unsigned count = 1 + dice.pick(most / ranges);
        ask.where.push_back({dice.pick(kFileCells - count + 1), count});
      }
      asks.push_back(std::move(ask));
    }
  }
  return script;
}

}  // namespace forebay::order
