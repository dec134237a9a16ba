#include <gtest/gtest.h>

#include "transport/transport.h"

namespace forebay {
namespace {

TEST(Address, ParsesAndPrints) {
  for (const std::string text :
       {"unix:/run/forebay.sock", "unix:relative", "tcp:127.0.0.1:4711", "tcp:localhost:0",
        "tcp:[::1]:65535", "sim:server", "unix:/with:colon"}) {
    auto address = Address::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
    EXPECT_EQ(*Address::parse(address->text()), *address);
  }
  EXPECT_EQ(Address::parse("tcp:[::1]:80")->host, "::1");
  EXPECT_EQ(Address::parse("tcp:[::1]:80")->port, 80);
}

TEST(Address, RefusesWithAReason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "must begin with"},          {"/run/x.sock", "must begin with"},
      {"http://x", "must begin with"},  {"unix:", "a path must follow"},
      {"tcp:127.0.0.1", "HOST:PORT"},   {"tcp::80", "host is missing"},
      {"tcp:h:", "the port must be"},   {"tcp:h:65536", "the port must be"},
      {"tcp:h:-1", "the port must be"}, {"tcp:h:80x", "the port must be"},
      {"tcp:::1:80", "brackets"},       {"sim:", "a name must follow"},
  };
  for (const auto& [text, reason] : cases) {
    auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code(), EINVAL);
    EXPECT_NE(address.error().what().find(reason), std::string::npos) << address.error().what();
  }
}

TEST(Address, AUnixPathHasALimit) {
  const std::string fits = "/" + std::string(106, 'a');
  EXPECT_TRUE(Address::parse("unix:" + fits));
  auto longer = Address::parse("unix:" + fits + "a");
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code(), ENAMETOOLONG);
  EXPECT_NE(longer.error().what().find("107"), std::string::npos);
}

}  // namespace
}  // namespace forebay
