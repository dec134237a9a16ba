#include "server/reserve.h"

#include <gtest/gtest.h>

#include "core/testing.h"
#include "loop/sim_loop.h"

namespace forebay::server {
namespace {

Extents range(uint64_t offset, uint64_t length) {
  return Extents(Extent{Offset(offset), Length(length)});
}

TEST(ReservationTable, GrantsInOrderOnTheLoop) {
  SimLoop loop(test_seed());
  ReservationTable table;
  const std::string a = "a", b = "b";
  std::string ran;
  auto note = [&](char c) { return [&ran, c] { ran += c; }; };
  Reservation first, second, third, elsewhere;
  EXPECT_TRUE(table.add(first, a, ReservationTable::Mode::write, range(0, 10), loop, note('1')));
  EXPECT_FALSE(table.add(second, a, ReservationTable::Mode::read, range(5, 10), loop, note('2')));
  EXPECT_FALSE(table.add(third, a, ReservationTable::Mode::write, range(0, 99), loop, note('3')));
  EXPECT_TRUE(table.add(elsewhere, b, ReservationTable::Mode::write, range(0, 9), loop, note('4')));
  EXPECT_EQ(table.held(), 4u);
  first.release();
  EXPECT_EQ(ran, "");  // never inside release()
  loop.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran, "2");
  second.release();
  third.release();  // granted, but its task is only posted: it still runs
  loop.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran, "23");
  elsewhere = Reservation();
  EXPECT_EQ(table.held(), 0u);
}

TEST(ReservationTable, AReleasedWaiterIsForgotten) {
  SimLoop loop(test_seed());
  ReservationTable table;
  auto alive = std::make_shared<int>(0);
  Reservation first, second;
  table.add(first, "a", ReservationTable::Mode::write, range(0, 10), loop, [] {});
  table.add(second, "a", ReservationTable::Mode::write, range(0, 10), loop, [alive] { ++*alive; });
  second.release();
  EXPECT_EQ(alive.use_count(), 1);
  first.release();
  loop.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(*alive, 0);
}

}  // namespace
}  // namespace forebay::server
