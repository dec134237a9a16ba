// Numbers and appends that clients share.
#include <map>
#include <set>

#include "rig.h"

namespace forebay {
namespace {

class CapiShared : public Capi {};

int collect(void* context, const char* name, uint64_t value) {
  (*static_cast<std::map<std::string, uint64_t>*>(context))[name] = value;
  return 0;
}

TEST_F(CapiShared, Numbers) {
  fb_file* const file = open("/f");
  uint64_t value = 0;
  EXPECT_ERRNO(ENODATA, fb_attr_get(file, "n", &value));
  EXPECT_OK(fb_attr_create(file, "n", 5));
  EXPECT_ERRNO(EEXIST, fb_attr_create(file, "n", 5));
  EXPECT_OK(fb_attr_fetch_add(file, "n", 2, &value));
  EXPECT_EQ(value, 5u);
  EXPECT_OK(fb_attr_fetch_add(file, "n", static_cast<uint64_t>(-1), nullptr));
  EXPECT_OK(fb_attr_cas(file, "n", 6, 10, &value));
  EXPECT_EQ(value, 6u);
  EXPECT_ERRNO(ENODATA, fb_attr_set(file, "m", 1));
  EXPECT_OK(fb_attr_create(file, "m", 1));
  EXPECT_OK(fb_attr_set(file, "m", 3));
  std::map<std::string, uint64_t> all;
  EXPECT_OK(fb_attr_list(file, collect, &all));
  EXPECT_EQ(all, (std::map<std::string, uint64_t>{{"m", 3}, {"n", 10}}));
  EXPECT_OK(fb_attr_remove(file, "n"));
  EXPECT_ERRNO(ENODATA, fb_attr_get(file, "n", &value));
  EXPECT_ERRNO(EINVAL, fb_attr_get(file, nullptr, &value));
  EXPECT_ERRNO(ENAMETOOLONG, fb_attr_create(file, std::string(256, 'x').c_str(), 0));
  fb_request* request = nullptr;
  EXPECT_OK(fb_iattr_fetch_add(file, "m", 4, &value, &request));
  EXPECT_EQ(fb_wait(&request), 0);
  EXPECT_EQ(value, 3u);
  EXPECT_OK(fb_close(file));
  EXPECT_ERRNO(EBADF, fb_attr_get(file, "m", &value));
}

TEST_F(CapiShared, Appends) {
  fb_file* const file = open("/f");
  write(file, "12345");
  uint64_t place = 0;
  EXPECT_EQ(fb_append(file, "abc", 3, &place), 3) << fb_error();
  EXPECT_EQ(place, 5u);
  EXPECT_EQ(fb_append(file, "d", 1, nullptr), 1);
  constexpr size_t kMany = 40;
  fb_request* requests[kMany];
  uint64_t places[kMany];
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_OK(fb_iappend(file, "0123456789", 10, &places[i], &requests[i]));
  }
  EXPECT_OK(fb_wait_all(kMany, requests, nullptr));
  const std::set<uint64_t> different(std::begin(places), std::end(places));
  EXPECT_EQ(different.size(), kMany);
  EXPECT_EQ(*different.begin(), 9u);
  EXPECT_EQ(*different.rbegin(), 9 + 10 * (kMany - 1));
  EXPECT_EQ(read(file, 19), "12345abcd0123456789");
  EXPECT_EQ(fb_append(file, "", 0, &place), 0);
  EXPECT_EQ(place, 9 + 10 * kMany);
  EXPECT_OK(fb_close(file));
}

}  // namespace
}  // namespace forebay
