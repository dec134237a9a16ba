#include "store/listing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace forebay {
namespace {

// A directory whose cookies are any numbers, read in pieces of `piece`.
struct Directory {
  std::vector<Entry> entries;
  size_t piece;
  int fetches = 0;

  Directory(size_t count, size_t per_fetch) : piece(per_fetch) {
    for (size_t i = 0; i < count; ++i) {
      Entry entry;
      entry.name = "f" + std::to_string(i);
      entry.cookie = (i * 7919 + 1) % 100003 + 1;
      entries.push_back(entry);
    }
  }
  Result<Reply> fetch(uint64_t cookie) {
    ++fetches;
    auto from = entries.begin();
    if (cookie != 0)
      from = std::find_if(from, entries.end(), [&](const Entry& e) { return e.cookie == cookie; });
    if (cookie != 0 && from != entries.end()) ++from;
    Reply reply;
    for (; from != entries.end() && reply.entries.size() < piece; ++from)
      reply.entries.push_back(*from);
    reply.end = from == entries.end();
    return reply;
  }
};

std::vector<std::string> read_all(Listing& listing, Directory& directory, size_t room) {
  std::vector<std::string> names;
  uint64_t cookie = 0;
  for (size_t before = SIZE_MAX; before != names.size();) {
    before = names.size();
    size_t left = room;
    EXPECT_TRUE(listing.read(
        cookie, [&](uint64_t at) { return directory.fetch(at); },
        [&](const Entry& entry) {
          if (left == 0) return false;
          --left;
          names.push_back(entry.name);
          cookie = entry.cookie;
          return true;
        }));
  }
  return names;
}

TEST(Listing, EveryEntryOnceWhateverTheSizes) {
  for (const size_t count : {0u, 1u, 2u, 10u, 100u})
    for (const size_t piece : {1u, 3u, 64u})
      for (const size_t room : {1u, 2u, 5u, 1000u}) {
        Directory directory(count, piece);
        Listing listing;
        const auto names = read_all(listing, directory, room);
        ASSERT_EQ(names.size(), count + 2) << count << " " << piece << " " << room;
        EXPECT_EQ(names[0], ".");
        EXPECT_EQ(names[1], "..");
        for (size_t i = 0; i < count; ++i) EXPECT_EQ(names[i + 2], directory.entries[i].name);
        EXPECT_LE(directory.fetches, static_cast<int>(count / piece) + 2);
      }
}

TEST(Listing, FromTheStartIsReadAnew) {
  Directory directory(3, 64);
  Listing listing;
  EXPECT_EQ(read_all(listing, directory, 10).size(), 5u);
  directory.entries.pop_back();
  EXPECT_EQ(read_all(listing, directory, 10).size(), 4u);
}

TEST(Listing, GoesBackToACookie) {
  Directory directory(10, 4);
  Listing listing;
  (void)read_all(listing, directory, 3);
  std::vector<std::string> names;
  const auto fetch = [&](uint64_t at) { return directory.fetch(at); };
  EXPECT_TRUE(listing.read(directory.entries[1].cookie, fetch, [&](const Entry& entry) {
    names.push_back(entry.name);
    return true;
  }));
  ASSERT_EQ(names.size(), 8u);
  EXPECT_EQ(names[0], "f2");
}

TEST(Listing, AnErrorIsToldUnlessSomethingWasGiven) {
  Listing listing;
  const auto fails = [](uint64_t) -> Result<Reply> { return Error(EIO); };
  const auto takes = [](const Entry&) { return true; };
  EXPECT_TRUE(listing.read(0, fails, takes));
  const auto again = listing.read(Listing::kAfterDotDot, fails, takes);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), EIO);
}

}  // namespace
}  // namespace forebay
