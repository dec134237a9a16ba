// Where every store enters the suite.
#include "conformance.h"
#include "core/clock.h"
#include "server/scheduled_store.h"
#include "store/fault.h"
#include "store/trace.h"

namespace forebay::conformance {

namespace {

Subject decorated(Subject subject, const char* suffix, Wrap outer) {
  subject.name += suffix;
  subject.make = [make = subject.make, outer](const Wrap& wrap) {
    return make([&](std::unique_ptr<Store> store) { return outer(wrap(std::move(store))); });
  };
  return subject;
}

}  // namespace

Subject under_trace(Subject subject) {
  const auto clock = std::make_shared<SteadyClock>();
  return decorated(std::move(subject), "_traced", [clock](std::unique_ptr<Store> store) {
    return std::make_unique<TraceStore>(std::move(store), *clock, [clock](std::string_view) {});
  });
}

Subject under_idle_faults(Subject subject) {
  return decorated(std::move(subject), "_unfaulted", [](std::unique_ptr<Store> store) {
    return std::make_unique<FaultStore>(std::move(store));
  });
}

// Merges what several threads do at once; the remote subjects merge what one client sends at once.
Subject under_scheduler(Subject subject) {
  const auto pool = std::make_shared<BufferPool>(1_MiB, 64_KiB);
  return decorated(std::move(subject), "_scheduled", [pool](std::unique_ptr<Store> store) {
    return std::make_unique<server::ScheduledStore>(
        std::move(store), SchedulerOptions{.policy = SchedulerOptions::Policy::hbrr}, *pool);
  });
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const auto& part : {memory_subjects(), posix_subjects()})
    all.insert(all.end(), part.begin(), part.end());
  for (Subject& subject : all) subject.lacks[Feature::shared] = "a server keeps it, not its store";
  for (const Subject& subject : remote_subjects()) all.push_back(subject);
  return all;
}

}  // namespace forebay::conformance
