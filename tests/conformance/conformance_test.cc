// Runs every case over every subject, plainly and under faults.
#include "conformance.h"

#include <gtest/gtest.h>

#include "env.h"
#include "fsck.h"
#include "store/fault.h"

namespace forebay::conformance {

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& part : {name_cases(), rename_cases(), directory_cases(), data_cases(),
                           list_cases(), access_cases(), attribute_cases(), shared_cases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

namespace {

// Which errno stands for an injected fault. No case expects it.
constexpr int kInjected = EIO;

uint64_t after(uint64_t k, const Subject& subject) {
  return k < subject.every_call ? k + 1 : 2 * k;
}

struct Pair {
  Subject subject;
  Case test;
};

std::ostream& operator<<(std::ostream& out, const Pair& p) {
  return out << p.subject.name << " " << p.test.name;
}

std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (const Subject& subject : subjects()) {
    for (const Case& test : cases()) all.push_back({subject, test});
  }
  return all;
}

class Conformance : public ::testing::TestWithParam<Pair> {
 protected:
  void SetUp() override {
    for (const Feature feature : GetParam().test.needs) {
      const auto lack = GetParam().subject.lacks.find(feature);
      if (lack != GetParam().subject.lacks.end()) GTEST_SKIP() << lack->second;
    }
  }

  static bool has_folders() { return GetParam().subject.lacks.count(Feature::folders) == 0; }

  // After a run: nothing is open, the tree is whole.
  static void inspect(Env& env, Fixture& fixture) {
    env.tidy();
    EXPECT_EQ(fixture.open_rights().value_or(0), 0u) << "rights left open";
    env.caller = this_process_caller();
    fsck(env, has_folders());
  }
};

TEST_P(Conformance, Plain) {
  try {
    auto fixture = GetParam().subject.make([](std::unique_ptr<Store> store) { return store; });
    Env env(fixture->store(), 0);
    GetParam().test.run(env);
    inspect(env, *fixture);
  } catch (const Wrong& wrong) {
    FAIL() << wrong.what();
  }
}

// One run with call k failing; did the fault fire?
bool run_with_fault(const Pair& pair, uint64_t k,
                    const std::function<void(Env&, Fixture&)>& inspect) {
  FaultStore* faults = nullptr;
  auto fixture = pair.subject.make([&](std::unique_ptr<Store> store) {
    auto faulty = std::make_unique<FaultStore>(std::move(store));
    faults = faulty.get();
    return faulty;
  });
  Env env(fixture->store(), kInjected);
  faults->clear();
  faults->add({.nth = k, .error = kInjected});
  try {
    pair.test.run(env);
  } catch (const Surfaced&) {
  }
  const bool fired = faults->fired() != 0;
  faults->clear();
  inspect(env, *fixture);
  return fired;
}

TEST_P(Conformance, UnderFaults) {
  const auto& lacks = GetParam().subject.lacks;
  if (const auto why = lacks.find(Feature::told); why != lacks.end()) GTEST_SKIP() << why->second;
  uint64_t k = 0;
  try {
    while (run_with_fault(GetParam(), k, inspect)) {
      k = after(k, GetParam().subject);
    }
  } catch (const Wrong& wrong) {
    FAIL() << "with call " << k << " failing: " << wrong.what();
  }
}

std::string pair_name(const ::testing::TestParamInfo<Pair>& info) {
  return info.param.subject.name + "__" + info.param.test.name;
}

INSTANTIATE_TEST_SUITE_P(Stores, Conformance, ::testing::ValuesIn(pairs()), pair_name);

}  // namespace
}  // namespace forebay::conformance
