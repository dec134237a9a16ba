#include "assembly/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace forebay {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "forebay-config-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    // The configuration of whoever runs the test must not matter.
    sources_.environment = {"XDG_CONFIG_HOME=" + folder_, "HOME=/nonexistent"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text, const std::string& name = "c.toml") {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  Result<Config> load(const std::string& text) {
    sources_.file = write(text);
    return load_config(sources_);
  }
  std::string error(const std::string& text) {
    const auto config = load(text);
    return config ? "no error" : config.error().what();
  }

  std::string folder_;
  ConfigSources sources_;
};

TEST_F(ConfigTest, NothingGivenIsTheDefaults) {
  const auto config = load_config(sources_);
  ASSERT_TRUE(config) << config.error().what();
  EXPECT_EQ(config->server.grace, 30s);
  EXPECT_TRUE(config->exports.empty());
}

TEST_F(ConfigTest, TheFileIsFoundInTheUsualPlace) {
  write("[server]\nname = \"usual\"\n", "forebay.toml");
  EXPECT_EQ(load_config(sources_)->server.name, "usual");
  sources_.environment.push_back("FOREBAY_CONFIG=" + write("[server]\nname = \"by variable\"\n"));
  EXPECT_EQ(load_config(sources_)->server.name, "by variable");
}

TEST_F(ConfigTest, EveryTypeIsRead) {
  const auto config = load(R"(
[server]
listen = ["unix", "tcp:127.0.0.1:4711"]
workers = 3
eager = "16KiB"
grace = "1500ms"
[export.scratch]
path = "/scratch"
pool = 8388608
trace = true
[client]
export = "scratch"
)");
  ASSERT_TRUE(config) << config.error().what();
  EXPECT_THAT(config->server.listen, ElementsAre("unix", "tcp:127.0.0.1:4711"));
  EXPECT_EQ(config->server.workers, 3u);
  EXPECT_EQ(config->server.eager, 16_KiB);
  EXPECT_EQ(config->server.grace, 1500ms);
  ASSERT_EQ(config->exports.size(), 1u);
  EXPECT_EQ(config->exports[0].name, "scratch");
  EXPECT_EQ(config->exports[0].pool, 8_MiB);
  EXPECT_TRUE(config->exports[0].trace);
  EXPECT_EQ(config->client.export_name, "scratch");
}

TEST_F(ConfigTest, EnvironmentBeatsFileAndCommandLineBeatsBoth) {
  sources_.environment.push_back("FOREBAY_SERVER_GRACE=2s");
  sources_.environment.push_back("FOREBAY_SERVER_STALL=3s");
  sources_.overrides = {{"server.stall", "4s"}};
  const auto config = load("[server]\ngrace = \"1s\"\nstall = \"1s\"\ndeadline = \"1s\"\n");
  ASSERT_TRUE(config) << config.error().what();
  EXPECT_EQ(config->server.deadline, 1s);
  EXPECT_EQ(config->server.grace, 2s);
  EXPECT_EQ(config->server.stall, 4s);
}

TEST_F(ConfigTest, EnvironmentReachesExportsOfTheFileAndMakesNewOnes) {
  sources_.environment.push_back("FOREBAY_EXPORT_MY_DATA_KEY_FILE=/k");
  sources_.environment.push_back("FOREBAY_EXPORT_EXTRA_STORE=memory");
  const auto config = load("[export.my-data]\npath = \"/d\"\n");
  ASSERT_TRUE(config) << config.error().what();
  ASSERT_EQ(config->exports.size(), 2u);
  EXPECT_EQ(config->exports[0].key_file, "/k");
  EXPECT_EQ(config->exports[1].name, "extra");
  EXPECT_EQ(config->exports[1].store, "memory");
}

TEST_F(ConfigTest, UnknownNamesAreErrorsThatNameTheNearest) {
  EXPECT_THAT(
      error("[server]\n\ngrase = \"1s\"\n"),
      AllOf(HasSubstr("c.toml:3:"), HasSubstr("'grase'"), HasSubstr("did you mean 'grace'")));
  EXPECT_THAT(error("[sever]\n"), HasSubstr("did you mean 'server'"));
  EXPECT_THAT(error("[export.a]\npaht = \"/\"\n"), HasSubstr("did you mean 'path'"));
  EXPECT_THAT(error("[client]\ncolour = 1\n"), HasSubstr("known are: server, key_file, transport"));
  EXPECT_THAT(error("grace = \"1s\"\n"), HasSubstr("outside of a section"));
  EXPECT_THAT(error("[export]\npath = \"/\"\n"), HasSubstr("[export.NAME]"));
}

TEST_F(ConfigTest, UnknownVariablesAreErrorsThatNameTheNearest) {
  for (const auto& [wrong, right] : std::vector<std::pair<std::string, std::string>>{
           {"FOREBAY_SERVER_GRASE", "FOREBAY_SERVER_GRACE"},
           {"FOREBAY_SEVER_GRACE", "FOREBAY_SERVER_GRACE"},
           {"FOREBAY_CONFG", "FOREBAY_CONFIG"}}) {
    ConfigSources sources = sources_;
    sources.environment.push_back(wrong + "=1s");
    const auto config = load_config(sources);
    ASSERT_FALSE(config) << wrong;
    EXPECT_THAT(config.error().what(), AllOf(HasSubstr(wrong), HasSubstr("'" + right + "'")));
  }
  sources_.environment.push_back("FOREBAY_TEST_WHATEVER=1");
  sources_.environment.push_back("FOREBAY_SEED=1");
  EXPECT_TRUE(load_config(sources_));
}

TEST_F(ConfigTest, WrongValuesSayWhereAndWhatWouldBeRight) {
  EXPECT_THAT(error("[server]\ngrace = 30\n"), AllOf(HasSubstr(":2:"), HasSubstr("30s")));
  EXPECT_THAT(error("[server]\nlog_level = \"inof\"\n"), HasSubstr("did you mean 'info'"));
  EXPECT_THAT(error("[server]\nslots = 0\n"), HasSubstr("out of range: from 1 to 4096"));
  EXPECT_THAT(error("[server]\nslots = -1\n"), HasSubstr("not a whole number"));
  EXPECT_THAT(error("[server]\nlisten = [1]\n"), HasSubstr("must be a list"));
  EXPECT_THAT(error("[export.a]\nstore = \"posix\"\n"), HasSubstr("needs a path"));
  EXPECT_THAT(error("[export.a]\npath = \"/\"\npool = \"1MiB\"\n"), HasSubstr("four chunks"));
  EXPECT_THAT(error("[export.\"a/b\"]\npath = \"/\"\n"), HasSubstr("cannot name an export"));
  EXPECT_THAT(error("[server\n"), HasSubstr("c.toml:1:"));
}

TEST_F(ConfigTest, WrongOverridesAreErrors) {
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{
           {"grace", "not a key"}, {"server.grase", "'grace'"}, {"export.a.paht", "'path'"}}) {
    ConfigSources sources = sources_;
    sources.overrides = {{key, "1s"}};
    const auto config = load_config(sources);
    ASSERT_FALSE(config) << key;
    EXPECT_THAT(config.error().what(), HasSubstr(text));
  }
}

TEST_F(ConfigTest, AFileThatCannotBeReadIsAnError) {
  sources_.file = folder_ + "/absent.toml";
  auto config = load_config(sources_);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().what(),
              AllOf(HasSubstr("absent.toml"), HasSubstr("No such file or directory")));
  sources_.file = folder_;
  config = load_config(sources_);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().what(), HasSubstr("Is a directory"));
}

TEST_F(ConfigTest, AnEmptyFileIsFine) {
  EXPECT_TRUE(load(""));
}

TEST_F(ConfigTest, WhatWeWriteWeRead) {
  auto config = load("[server]\nname = \"a \\\"b\\\" \\\\c\"\n[export.x]\npath = \"/x\"\n");
  ASSERT_TRUE(config) << config.error().what();
  config->client.retry_for = 5min;
  const auto again = load(config_text(*config));
  ASSERT_TRUE(again) << again.error().what();
  EXPECT_EQ(config_text(*again), config_text(*config));
  EXPECT_EQ(again->server.name, "a \"b\" \\c");
}

TEST(ConfigDocs, ThePageHoldsTheTable) {
  std::ifstream in(FOREBAY_TEST_DOCS "/configuration.md");
  std::ostringstream page;
  page << in.rdbuf();
  EXPECT_THAT(page.str(), HasSubstr(config_reference()))
      << "docs/configuration.md is out of date: paste the output of `forebay config --reference`";
}

}  // namespace
}  // namespace forebay
