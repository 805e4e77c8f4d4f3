#include "common/config/config_reader.h"

#include <fstream>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigReaderTest, ReadsEveryKindOfValue) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/secret") << "  hunter2\n";
  ConfigReader reader = ConfigReader::FromText(R"(
listen: 127.0.0.1:7000
insecure: true
timeout: 1h30m
memory: 1.5GiB
count: 7
price: 2.5
words: [red, blue]
token_file: secret
limits: {inline: 64KiB}
tenants:
  - name: a
  - name: b
)",
                                               "c.yaml", folder);
  ConfigMap root = reader.root();
  EXPECT_EQ(root.String("listen", ""), "127.0.0.1:7000");
  EXPECT_TRUE(root.Bool("insecure", false));
  EXPECT_EQ(root.Duration("timeout", {}), absl::Minutes(90));
  EXPECT_EQ(root.Size("memory", 0), uint64_t{3} << 29);
  EXPECT_EQ(root.UInt("count", 0), 7u);
  EXPECT_EQ(root.Number("price", 0), 2.5);
  EXPECT_EQ(root.Number("absent", 1.5), 1.5);
  EXPECT_THAT(root.Strings("words"), testing::ElementsAre("red", "blue"));
  EXPECT_THAT(root.Strings("absent"), testing::IsEmpty());
  EXPECT_EQ(root.RequiredSecret("token_file"), "hunter2");
  EXPECT_EQ(root.Path("token_file"), folder + "/secret");
  EXPECT_EQ(root.Secret("token_file"), "hunter2");
  EXPECT_EQ(root.Secret("absent"), "");
  EXPECT_EQ(root.Map("limits").Size("inline", 0), 65536u);
  EXPECT_EQ(root.Map("absent").Size("inline", 5), 5u);
  EXPECT_EQ(root.String("absent", "default"), "default");
  std::vector<std::string> names;
  for (ConfigMap& tenant : root.Maps("tenants")) {
    names.push_back(tenant.RequiredString("name"));
  }
  EXPECT_THAT(names, testing::ElementsAre("a", "b"));
  EXPECT_EQ(reader.Finish(), absl::OkStatus());
}

TEST(ConfigReaderTest, UnknownKeysAreNamedWithLineAndPath) {
  ConfigReader reader = ConfigReader::FromText(
      "listen: x\ntenants:\n  - name: a\n    limits:\n      memroy: 2GiB\n",
      "c.yaml");
  ConfigMap root = reader.root();
  root.String("listen", "");
  for (ConfigMap& tenant : root.Maps("tenants")) {
    tenant.String("name", "");
    tenant.Map("limits").Size("memory", 0);
  }
  const absl::Status status = reader.Finish();
  EXPECT_EQ(ErrorReason(status), "BAD_CONFIG");
  EXPECT_EQ(std::string(status.message()),
            "c.yaml:5: tenants[0].limits.memroy: unknown key");
}

TEST(ConfigReaderTest, WrongTypesSayWhatWasExpected) {
  ConfigReader reader = ConfigReader::FromText(
      "a: [1]\nb: maybe\nc: soon\nd: lots\ne: -1\nf: 3\ng: 9\nh: {}\n",
      "c.yaml");
  ConfigMap root = reader.root();
  root.String("a", "");
  root.Bool("b", false);
  root.Duration("c", {});
  root.Size("d", 0);
  root.UInt("e", 0);
  root.Map("f");
  root.UInt("g", 0, 1, 8);
  root.Maps("h");
  root.RequiredString("i");
  EXPECT_EQ(std::string(reader.Finish().message()),
            "c.yaml:1: a: expected text\n"
            "c.yaml:2: b: expected true or false, got \"maybe\"\n"
            "c.yaml:3: c: expected a duration such as 30s, got \"soon\"\n"
            "c.yaml:4: d: expected a size such as 2GiB, got \"lots\"\n"
            "c.yaml:5: e: expected a whole number, got \"-1\"\n"
            "c.yaml:6: f: expected keys and values\n"
            "c.yaml:7: g: expected 1 to 8, got 9\n"
            "c.yaml:8: h: expected a list\n"
            "c.yaml:1: i: required, but missing or empty");
}

TEST(ConfigReaderTest, NumbersAndWordsAreChecked) {
  for (const char* price : {"-1", "much", "inf", "nan", "[1]"}) {
    ConfigReader reader =
        ConfigReader::FromText(std::string("price: ") + price, "c.yaml");
    reader.root().Number("price", 0);
    EXPECT_THAT(std::string(reader.Finish().message()),
                HasSubstr("c.yaml:1: price: expected a number from 0 on"))
        << price;
  }
  for (const char* words : {"red", "[{a: b}]", "['']"}) {
    ConfigReader reader =
        ConfigReader::FromText(std::string("words: ") + words, "c.yaml");
    EXPECT_THAT(reader.root().Strings("words"), testing::IsEmpty());
    EXPECT_THAT(std::string(reader.Finish().message()),
                HasSubstr("words: expected a list"))
        << words;
  }
}

TEST(ConfigReaderTest, SecondDocumentIsRefused) {
  const auto complaint = [](const std::string& text) {
    ConfigReader reader = ConfigReader::FromText(text, "c.yaml");
    reader.root().String("a", "");
    return std::string(reader.Finish().message());
  };
  EXPECT_EQ(complaint("%YAML 1.2\n---\n# c\na: b\n...\n\n# end\n"), "");
  EXPECT_EQ(complaint("a: b # ---\n"), "");
  const std::string line = ": a second YAML document begins here";
  EXPECT_EQ(complaint("a: b\n---\nb: 1\n"), "c.yaml:2" + line);
  EXPECT_EQ(complaint("---\n---\n"), "c.yaml:2" + line);
  EXPECT_EQ(complaint("a: b\n...\nb: 1\n"), "c.yaml:3" + line);
}

TEST(ConfigReaderTest, NamesHaveNoControlCharacters) {
  ConfigReader reader = ConfigReader::FromText("name: \"a\\eb\"\n", "c.yaml");
  reader.root().RequiredString("name");
  EXPECT_EQ(reader.Finish().message(),
            "c.yaml:1: name: must not have control characters");
}

TEST(ConfigReaderTest, KeysGivenTwiceAndBadYaml) {
  ConfigReader twice = ConfigReader::FromText("a: 1\na: 2\n", "c.yaml");
  twice.root().UInt("a", 0);
  EXPECT_EQ(std::string(twice.Finish().message()),
            "c.yaml:2: a: key given twice");
  EXPECT_THAT(
      std::string(
          ConfigReader::FromText("a: [1\n", "c.yaml").Finish().message()),
      HasSubstr("c.yaml:"));
  EXPECT_THAT(
      std::string(
          ConfigReader::FromText("just text", "c.yaml").Finish().message()),
      HasSubstr("expected keys and values"));
  EXPECT_THAT(
      std::string(
          ConfigReader::FromFile("/nonexistent/c.yaml").Finish().message()),
      HasSubstr("/nonexistent/c.yaml: cannot read the file: No such file"));
}

TEST(ConfigReaderTest, FilesThatAreNoConfigurationAreNotRead) {
  const std::string large = testing::TempDir() + "/large.yaml";
  std::ofstream(large) << std::string((1 << 20) + 1, '#');
  for (const auto& [path, why] :
       {std::pair<std::string, std::string>{"/dev/zero", "not a regular file"},
        {large, "larger than 1048576 bytes"}}) {
    EXPECT_THAT(std::string(ConfigReader::FromFile(path).Finish().message()),
                HasSubstr(path + ": cannot read the file: " + why));
  }
}

TEST(ConfigReaderTest, BadSecretsAreNotRepeated) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/two_words") << "very secret";
  ConfigReader reader = ConfigReader::FromText(
      "a: two_words\nb: missing_file\n", "c.yaml", folder);
  reader.root().RequiredSecret("a");
  reader.root().RequiredSecret("b");
  const std::string text(reader.Finish().message());
  EXPECT_THAT(text, HasSubstr("one printable ASCII word"));
  EXPECT_THAT(text, HasSubstr("cannot read"));
  EXPECT_THAT(text, Not(HasSubstr("very secret")));
}

TEST(ConfigReaderTest, Sizes) {
  EXPECT_EQ(ParseSize("16GB").value(), 16'000'000'000u);
  EXPECT_EQ(ParseSize("512").value(), 512u);
  EXPECT_EQ(ParseSize("2 MiB").value(), uint64_t{2} << 20);
  for (const char* text : {"", "GiB", "1XB", "-1", "1e30TB", "1.2.3"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(ConfigReaderTest, ListsTheKeysThatAProgramAsksFor) {
  const auto list = [](bool present) {
    std::vector<ConfigKey> keys;
    ConfigReader reader = ConfigReader::ForKeys(present, &keys);
    ConfigMap root = reader.root();
    EXPECT_EQ(root.Duration("timeout", absl::Seconds(30)), absl::Seconds(30));
    root.RequiredSecret("token_file");
    if (root.Has("bytes")) root.Size("bytes", 0);
    for (ConfigMap& tenant : root.Maps("tenants")) {
      tenant.Map("limits").UInt("count", 7);
      tenant.Map("limits").UInt("count", 8);
    }
    std::vector<std::string> lines;
    for (const ConfigKey& key : keys) {
      lines.push_back(key.path + " " + key.type + " " + key.fallback +
                      (key.required ? " required" : "") +
                      (key.conditional ? " conditional" : ""));
    }
    return lines;
  };
  EXPECT_THAT(
      list(false),
      ElementsAre("timeout duration 30s",
                  "token_file file with a token  required", "tenants list ",
                  "tenants[].limits.count whole number 7"));
  EXPECT_THAT(list(true), Contains("bytes size 0 conditional"));
  EXPECT_THAT(list(true), Contains("timeout duration 30s"));
}

}  // namespace
}  // namespace djinn
