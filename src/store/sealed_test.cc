#include "store/sealed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "core/testing.h"

namespace forebay {
namespace {

std::string path_in(const TempDir& dir, const char* name) {
  return std::string(dir.path()) + "/" + name;
}

TEST(Sealed, GivesTheBodyBack) {
  const SealKey key = SealKey::random();
  for (const std::string& body : {std::string(), std::string("a"), std::string(4096, '\0')}) {
    const std::string sealed = key.seal(SealDomain::handle, body);
    EXPECT_EQ(sealed.size(), body.size() + SealKey::kSealBytes);
    EXPECT_EQ(key.unseal(SealDomain::handle, sealed), body);
  }
}

// RFC 4231's HMAC is OpenSSL's business; this pins our domain byte and truncation, which servers of
// different versions must share. HMAC-SHA256(key = 00..1f, "Habc").
TEST(Sealed, FormatIsStable) {
  SealKey::Bytes bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  const std::string sealed = SealKey(bytes).seal(SealDomain::handle, "abc");
  std::string hex;
  for (const unsigned char c : sealed.substr(3)) {
    hex += "0123456789abcdef"[c >> 4];
    hex += "0123456789abcdef"[c & 15];
  }
  EXPECT_EQ(sealed.substr(0, 3), "abc");
  EXPECT_EQ(hex, "332d09721097d857e153b656342c2149");
}

TEST(Sealed, RefusesEveryFlippedBit) {
  const SealKey key = SealKey::random();
  const std::string sealed = key.seal(SealDomain::right, "the body");
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string bad = sealed;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(key.unseal(SealDomain::right, bad)) << "bit " << bit;
  }
}

TEST(Sealed, RefusesOtherLengthsDomainsAndKeys) {
  const SealKey key = SealKey::random();
  const std::string sealed = key.seal(SealDomain::handle, "x");
  EXPECT_FALSE(key.unseal(SealDomain::right, sealed));
  EXPECT_FALSE(SealKey::random().unseal(SealDomain::handle, sealed));
  EXPECT_FALSE(key.unseal(SealDomain::handle, ""));
  EXPECT_FALSE(key.unseal(SealDomain::handle, sealed.substr(1)));
  EXPECT_FALSE(key.unseal(SealDomain::handle, sealed.substr(0, sealed.size() - 1)));
  EXPECT_FALSE(key.unseal(SealDomain::handle, sealed + "x"));
}

TEST(Sealed, KeyFileIsMadeOnceAndPrivate) {
  TempDir dir;
  const std::string path = path_in(dir, "key");
  auto first = SealKey::load_or_create(path);
  ASSERT_TRUE(first) << first.error().message();
  auto second = SealKey::load_or_create(path);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_TRUE(second->unseal(SealDomain::right, first->seal(SealDomain::right, "r")));
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_EQ(st.st_size, 32);
  const auto begin = std::filesystem::directory_iterator(std::string(dir.path()));
  EXPECT_EQ(std::distance(begin, {}), 1) << "something was left beside the key";
}

TEST(Sealed, RacingServersAgreeOnOneKey) {
  TempDir dir;
  const std::string path = path_in(dir, "key");
  std::vector<std::string> seals(8);
  {
    std::vector<std::jthread> threads;
    for (auto& seal : seals) {
      threads.emplace_back([&] {
        auto key = SealKey::load_or_create(path);
        if (key) seal = key->seal(SealDomain::handle, "same");
      });
    }
  }
  for (const auto& seal : seals) EXPECT_EQ(seal, seals[0]);
  EXPECT_FALSE(seals[0].empty());
}

TEST(Sealed, SaysWhatIsWrongWithAKeyFile) {
  TempDir dir;
  const std::string brief = path_in(dir, "brief"), open = path_in(dir, "open");
  std::ofstream(brief) << "too short";
  chmod(brief.c_str(), 0600);
  std::ofstream(open) << std::string(32, 'k');
  chmod(open.c_str(), 0644);
  EXPECT_EQ(SealKey::load_or_create(brief).error().code(), EINVAL);
  EXPECT_EQ(SealKey::load_or_create(open).error().code(), EPERM);
  EXPECT_EQ(SealKey::load_or_create(std::string(dir.path())).error().code(), EINVAL);
  EXPECT_EQ(SealKey::load_or_create(path_in(dir, "no/such/key")).error().code(), ENOENT);
}

TEST(Sealed, AKeyOfSomebodyElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  TempDir dir;
  const std::string path = path_in(dir, "key");
  std::ofstream(path) << std::string(32, 'k');
  chmod(path.c_str(), 0600);
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  auto key = SealKey::load_or_create(path);
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code(), EPERM);
  EXPECT_NE(key.error().what().find("belongs to user 12345"), std::string::npos);
}

TEST(Sealed, ManyThreadsShareOneKey) {
  const SealKey key = SealKey::random();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const std::string body = std::to_string(t * 10000 + i);
        EXPECT_EQ(key.unseal(SealDomain::right, key.seal(SealDomain::right, body)), body);
      }
    });
  }
}

}  // namespace
}  // namespace forebay
