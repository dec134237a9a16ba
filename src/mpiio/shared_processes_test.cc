// Shared state between processes: memory that they map, and an arbiter whose clients are killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "mpiio/testing.h"

namespace forebay::mpiio {
namespace {

using namespace std::chrono_literals;

// What the processes see; the plain numbers are guarded by the lock.
struct Shared {
  NodeMemory node;
  uint64_t left = 0, right = 0;
  std::atomic<uint64_t> writes{0}, torn{0}, taken{0};
  Invitation invitation;
  std::atomic<bool> invited{false};
};

class Mapping {
 public:
  Mapping() {
    void* const at =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FOREBAY_ASSERT(at != MAP_FAILED);
    shared_ = new (at) Shared;
    NodeMemory::create(&shared_->node);
  }
  ~Mapping() { ::munmap(shared_, sizeof(Shared)); }
  Shared& operator*() { return *shared_; }
  Shared* operator->() { return shared_; }

 private:
  Shared* shared_;
};

// A child that ends with 0 if fn does; it has no part in the tests around it.
pid_t fork_child(const std::function<int()>& fn) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(fn());
  return pid;
}

// Clients are forked before there is an arbiter: its thread may be inside a library whose locks a
// child would find taken for ever.
void invite(Shared& shared, Arbiter& arbiter) {
  shared.invitation = arbiter.open_file();
  shared.invited = true;
}

auto accept_invitation(Shared& shared) {
  while (!shared.invited) std::this_thread::sleep_for(1ms);
  return ArbiterClient::connect(shared.invitation);
}

int exit_code(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Reads and writes the pair under locks, and adds to the shared pointer.
int use(Shared& shared, SharedState& state, uint64_t seed, int turns) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < turns; ++i) {
    if (!state.fetch_and_add(kPointer, 1)) return 1;
    const bool write = random() % 2;
    const auto held =
        state.lock(range(0, 1 + random() % 9), write ? LockMode::exclusive : LockMode::shared);
    if (!held) return 2;
    if (shared.left != shared.right) ++shared.torn;
    if (!write) continue;
    ++shared.left;
    if (random() % 64 == 0) std::this_thread::sleep_for(1ms);
    ++shared.right;
    ++shared.writes;
  }
  return 0;
}

TEST(NodeStateProcesses, LocksAndValuesHoldBetweenThem) {
  constexpr int kCrowd = 6, kTurns = 2000;
  const uint64_t seed = test_seed();
  Mapping shared;
  std::vector<pid_t> children;
  for (int i = 0; i < kCrowd; ++i) {
    children.push_back(fork_child([&, i] {
      NodeState state(shared->node);
      return use(*shared, state, seed + i, kTurns);
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
  EXPECT_EQ(shared->torn, 0u);
  EXPECT_EQ(shared->left, shared->writes);
  EXPECT_EQ(shared->right, shared->writes);
  EXPECT_EQ(NodeState(shared->node).get(kPointer).value(), uint64_t{kCrowd} * kTurns);
  EXPECT_EQ(shared->node.sleepers, 0u);
}

TEST(NodeStateProcesses, ASleeperIsWoken) {
  Mapping shared;
  NodeState state(shared->node);
  auto held = state.lock(range(0, 1), LockMode::exclusive).value();
  const pid_t child = fork_child([&] {
    NodeState mine(shared->node);
    return mine.lock(range(0, 1), LockMode::shared) ? 0 : 1;
  });
  while (shared->node.sleepers == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(10ms);
  held.release();
  EXPECT_EQ(exit_code(child), 0);
}

TEST(ArbiterProcesses, LocksAndValuesHoldBetweenThem) {
  constexpr int kCrowd = 4, kTurns = 300;
  const uint64_t seed = test_seed();
  Mapping shared;
  std::vector<pid_t> children;
  for (int i = 0; i < kCrowd; ++i) {
    children.push_back(fork_child([&, i] {
      const auto state = accept_invitation(*shared);
      return state ? use(*shared, **state, seed + i, kTurns) : 3;
    }));
  }
  const auto arbiter = near_arbiter();
  invite(*shared, *arbiter);
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
  EXPECT_EQ(shared->torn, 0u);
  EXPECT_EQ(shared->left, shared->writes);
  const auto last = accept_invitation(*shared).value();
  EXPECT_EQ(last->get(kPointer).value(), uint64_t{kCrowd} * kTurns);
}

TEST(ArbiterProcesses, WhatAKilledOneHeldIsFree) {
  Mapping shared;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(fork_child([&] {
      const auto state = accept_invitation(*shared).value();
      const auto held = state->lock(range(0, 10), LockMode::exclusive);
      ++shared->taken;
      std::this_thread::sleep_for(60s);
      return held ? 1 : 2;
    }));
  }
  const auto arbiter = near_arbiter();
  invite(*shared, *arbiter);
  // One of them has the lock, the others wait for it; each dies with it, or before its turn.
  for (const pid_t child : children) {
    while (shared->taken == 0) std::this_thread::sleep_for(1ms);
    ::kill(child, SIGKILL);
    EXPECT_EQ(exit_code(child), 128 + SIGKILL);
  }
  const auto last = accept_invitation(*shared).value();
  EXPECT_TRUE(last->lock(range(0, 10), LockMode::exclusive));
}

}  // namespace
}  // namespace forebay::mpiio
