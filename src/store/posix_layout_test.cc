#include "store/posix_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/testing.h"

namespace forebay::posix {
namespace {

TEST(PosixLayout, OfCephFs) {
  EXPECT_EQ(ceph_layout("stripe_unit=65536 stripe_count=4 object_size=4194304 pool=cephfs_data"),
            (Layout{65536, 4, 0}));
  EXPECT_EQ(ceph_layout("stripe_unit=65536 stripe_count=4 object_size=4194304 pool=7 "
                        "pool_namespace=stripe_count=9"),
            (Layout{65536, 4, 0}));
  // One object after the other: whoever owns one owns its lock.
  EXPECT_EQ(ceph_layout("stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=d"),
            (Layout{4194304, 1, 0}));
  EXPECT_EQ(ceph_layout("stripe_unit=65536 stripe_count=1 object_size=4194304"),
            (Layout{4194304, 1, 0}));
}

TEST(PosixLayout, OfCephFsThatMakesNoSense) {
  for (const char* text :
       {"", "stripe_unit=", "stripe_unit=65536", "stripe_unit=65536 stripe_count=4",
        "stripe_unit=65536 stripe_count=4 object_size=",
        "stripe_unit=-1 stripe_count=4 "
        "object_size=4194304",
        "stripe_unit=0 stripe_count=4 object_size=4194304",
        "stripe_unit=65536 stripe_count=0 object_size=4194304",
        "stripe_unit=65536 stripe_count=4 object_size=0",
        "stripe_unit=65536 stripe_count=4 object_size=65537",
        "stripe_unit=99999999999999999999 stripe_count=4 object_size=4194304",
        "stripe_unit=65536x stripe_count=4 object_size=4194304",
        "stripe_count=4 stripe_unit=65536 object_size=4194304",
        "stripe_unit=65536  stripe_count=4 object_size=4194304"})
    EXPECT_EQ(ceph_layout(text), std::nullopt) << text;
}

// What a Lustre client gives for a file on OSTs first, first + 1 ...
struct Lov {
  uint32_t magic = 0x0BD10BD0, pattern = 1, stripe = 1 << 20;
  uint16_t count = 3;
  uint32_t first = 5;
  bool big = false;
  size_t objects = 3;

  void add(std::string& to, uint64_t value, size_t size) const {
    for (size_t i = 0; i < size; ++i)
      to.push_back(static_cast<char>(value >> 8 * (big ? size - 1 - i : i)));
  }
  std::string bytes() const {
    std::string all;
    add(all, magic, 4);
    add(all, pattern, 4);
    add(all, 0x1234567890, 8);  // whose it is
    add(all, 2, 8);
    add(all, stripe, 4);
    add(all, count, 2);
    add(all, 0, 2);  // the generation, which is not told
    if (magic == 0x0BD30BD0) all += std::string("flash") + std::string(11, '\0');
    for (size_t i = 0; i < objects; ++i) {
      add(all, 1000 + i, 8);
      add(all, 0, 8);
      add(all, 0, 4);
      add(all, first + i, 4);
    }
    return all;
  }
};

TEST(PosixLayout, OfLustre) {
  for (const bool big : {false, true}) {
    EXPECT_EQ(lustre_layout(Lov{.big = big}.bytes()), (Layout{1 << 20, 3, 5}));
    EXPECT_EQ(lustre_layout(Lov{.magic = 0x0BD30BD0, .first = 70000, .big = big}.bytes()),
              (Layout{1 << 20, 3, 70000}));
  }
  EXPECT_EQ(Lov{}.bytes().size(), 32u + 3 * 24);
  EXPECT_EQ(lustre_layout(Lov{.pattern = 0x201}.bytes()), (Layout{1 << 20, 3, 5}));
  EXPECT_EQ(lustre_layout(Lov{.objects = 4}.bytes()), (Layout{1 << 20, 3, 5})) << "more than said";
  EXPECT_EQ(lustre_layout(Lov{.count = 2000, .objects = 2000}.bytes()), (Layout{1 << 20, 2000, 5}));
}

TEST(PosixLayout, OfLustreThatSaysNothingOfTheWholeFile) {
  EXPECT_EQ(lustre_layout(Lov{.magic = 0x0BD70BD0}.bytes()), std::nullopt) << "foreign";
  EXPECT_EQ(lustre_layout(Lov{.pattern = 0x100}.bytes()), std::nullopt) << "on the MDT";
  EXPECT_EQ(lustre_layout(Lov{.pattern = 0x80000001}.bytes()), std::nullopt) << "released";
  EXPECT_EQ(lustre_layout(Lov{.stripe = 0}.bytes()), std::nullopt);
  EXPECT_EQ(lustre_layout(Lov{.count = 0}.bytes()), std::nullopt);
  EXPECT_EQ(lustre_layout(Lov{.count = 4}.bytes()), std::nullopt) << "an object is missing";
  EXPECT_EQ(lustre_layout(Lov{.count = 0xffff}.bytes()), std::nullopt) << "as many as there are";
}

// Parts of a file, each with a layout of its own.
std::string composite(const std::vector<Lov>& parts, uint32_t flags = 0x10, bool big = false) {
  const Lov order{.big = big};
  std::string all, layouts;
  order.add(all, 0x0BD60BD0, 4);
  order.add(all, 0, 4);
  order.add(all, 7, 4);
  order.add(all, 0, 2);
  order.add(all, parts.size(), 2);
  all.resize(32);
  for (Lov part : parts) {
    part.big = big;
    order.add(all, 1, 4);
    order.add(all, flags, 4);
    order.add(all, 0, 8);
    order.add(all, UINT64_MAX, 8);
    order.add(all, 32 + 48 * parts.size() + layouts.size(), 4);
    order.add(all, part.bytes().size(), 4);
    all.resize(all.size() + 16);
    layouts += part.bytes();
  }
  return all + layouts;
}

TEST(PosixLayout, OfLustreInParts) {
  const Lov one{.count = 1, .objects = 1}, many{.magic = 0x0BD30BD0, .count = 8, .objects = 8};
  const Lov later{.count = 0xffff, .objects = 0};  // has no objects yet
  const Lov on_mdt{.pattern = 0x100, .stripe = 65536, .count = 0, .objects = 0};
  const Lov other{.stripe = 4 << 20}, none{.stripe = 0};
  for (const bool big : {false, true})
    EXPECT_EQ(lustre_layout(composite({one, many, later}, 0x10, big)), (Layout{1 << 20, 1, 0}));
  EXPECT_EQ(lustre_layout(composite({on_mdt, many})), (Layout{1 << 20, 1, 0}));
  EXPECT_EQ(lustre_layout(composite({one, other})), std::nullopt) << "of several sizes";
  EXPECT_EQ(lustre_layout(composite({one, none})), std::nullopt);
  EXPECT_EQ(lustre_layout(composite({on_mdt})), std::nullopt);
  EXPECT_EQ(lustre_layout(composite({one, many}, 0x40)), std::nullopt) << "room for more only";
  EXPECT_EQ(lustre_layout(composite({})), std::nullopt);
  EXPECT_EQ(lustre_layout(composite({{.magic = 0x0BD60BD0}})), std::nullopt) << "in itself";
}

// Whatever is cut off or turned round: no byte beyond the value is looked at (a copy in memory of
// its own size, so that sanitizers see it), and what comes out can be used.
TEST(PosixLayout, OfAnyBytes) {
  std::mt19937_64 random(test_seed());
  const std::string good[] = {Lov{}.bytes(), Lov{.magic = 0x0BD30BD0}.bytes(),
                              composite({Lov{}, Lov{}}), composite({Lov{}}, 0x10, true),
                              "stripe_unit=65536 stripe_count=4 object_size=4194304 pool=d"};
  for (const std::string& whole : good) {
    for (size_t length = 0; length <= whole.size(); ++length) {
      for (int change = 0; change < 8; ++change) {
        std::vector<char> bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
        for (int i = 0; i < change && length > 0; ++i)
          bytes[random() % length] = static_cast<char>(random());
        const std::string_view value(bytes.data(), bytes.size());
        for (const auto& found : {ceph_layout(value), lustre_layout(value)}) {
          if (!found) continue;
          EXPECT_GT(found->stripe_size, 0u);
          EXPECT_GT(found->stripe_count, 0u);
        }
      }
    }
  }
}

}  // namespace
}  // namespace forebay::posix
