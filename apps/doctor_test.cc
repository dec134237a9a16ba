#include "doctor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace forebay {
namespace {

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    char name[] = "/tmp/forebay-doctor-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~DoctorTest() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    ::chmod(path.c_str(), 0755);
    return path;
  }
  std::string folder_;
};

TEST_F(DoctorTest, OrdinaryProgramsAreServed) {
  const auto found = diagnose("cat");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->covered());
  EXPECT_TRUE(found->path.ends_with("/cat"));
}

TEST_F(DoctorTest, OfAScriptItsInterpreterCounts) {
  for (const char* line : {"#!/bin/sh\n", "#! /usr/bin/env sh\n"}) {
    const auto found = diagnose(file("script", line));
    ASSERT_TRUE(found) << line;
    EXPECT_TRUE(found->covered());
    EXPECT_TRUE(found->path.ends_with("/sh"));
  }
}

TEST_F(DoctorTest, SetUidProgramsAreNot) {
  const std::string path = folder_ + "/cat";
  std::filesystem::copy_file("/bin/cat", path);
  ::chmod(path.c_str(), 04755);
  const auto found = diagnose(path);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->not_served.size(), 1u);
}

TEST_F(DoctorTest, StaticOnesAreNot) {
  std::string elf(4096, '\0');
  elf.replace(0, 5, "\177ELF\2");
  const auto found = diagnose(file("static", elf));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->not_served.size(), 1u);
  EXPECT_NE(found->not_served[0].find("static"), std::string::npos);
}

TEST_F(DoctorTest, WhatIsNoProgramIsAnError) {
  EXPECT_EQ(diagnose(file("text", "hello")).error().code(), ENOEXEC);
  EXPECT_EQ(diagnose(folder_ + "/missing").error().code(), ENOENT);
}

}  // namespace
}  // namespace forebay
