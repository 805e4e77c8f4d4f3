#include "common/config/effective_config.h"

#include <fstream>
#include <string>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Reads a configuration of every kind of key.
absl::Status Configure(ConfigReader reader) {
  ConfigMap root = reader.root();
  root.RequiredString("name");
  root.RequiredSecret("token_file");
  root.Duration("timeout", absl::Seconds(30));
  root.Strings("words");
  ConfigMap device = root.Map("device");
  device.String("kind", "cpu");
  device.UInt("threads", 0);
  ConfigMap tls = root.Map("tls");
  tls.Path("certificate_file");
  for (ConfigMap& tenant : root.Maps("tenants")) {
    tenant.RequiredString("name");
    tenant.Map("limits").Size("memory", 7);
  }
  root.Maps("cohorts");
  if (root.Has("most")) root.Size("most", 0);
  return reader.Finish();
}

class EffectiveConfigTest : public testing::Test {
 protected:
  EffectiveConfigTest() {
    std::ofstream(folder_ + "/secret.token") << "0123456789abcdef-secret\n";
  }
  absl::StatusOr<std::string> Show(const std::string& text) {
    std::ofstream(folder_ + "/w.yaml") << text;
    return EffectiveConfig(folder_ + "/w.yaml", Configure);
  }

  const std::string folder_ = testing::TempDir();
};

TEST_F(EffectiveConfigTest, EachValueHasItsSource) {
  EXPECT_EQ(Show(R"(name: "a: b"
token_file: secret.token
# A comment.
device: {threads: 4}
words: [x, "y z"]
tenants:
  - limits:
      memory: 1GiB
    name: red
  - name: blue
)")
                .value(),
            R"(name: "a: b"  # w.yaml:1
token_file: secret.token  # w.yaml:2
device:  # w.yaml:4
  threads: 4  # w.yaml:4
  # kind: cpu  # default
words: [x, y z]  # w.yaml:5
tenants:  # w.yaml:6
  - limits:  # w.yaml:7
      memory: 1GiB  # w.yaml:8
    name: red  # w.yaml:9
  - name: blue  # w.yaml:10
    # limits:
    #   memory: 7  # default
# timeout: 30s  # default
# tls:
#   certificate_file: ""  # default
# cohorts: []  # default
# most:  # not set
)");
}

TEST_F(EffectiveConfigTest, ALimitThatIsGivenIsShown) {
  EXPECT_THAT(Show("name: a\ntoken_file: secret.token\nmost: 0\n").value(),
              HasSubstr("\nmost: 0  # w.yaml:3\n"));
}

TEST_F(EffectiveConfigTest, ShownConfigurationCanBeReadAgain) {
  const std::string shown =
      Show("name: a\ntoken_file: secret.token\ntenants: [{name: red}]\n")
          .value();
  EXPECT_EQ(Show(shown)->size(), shown.size());
  EXPECT_TRUE(Show(shown).ok());
}

TEST_F(EffectiveConfigTest, ItHasNoSecret) {
  EXPECT_THAT(Show("name: a\ntoken_file: secret.token\n").value(),
              Not(HasSubstr("0123456789abcdef")));
}

TEST_F(EffectiveConfigTest, AFileWithErrorsIsNotShown) {
  const absl::Status status =
      Show("name: a\ntoken_file: secret.token\nnmae: b\n").status();
  EXPECT_EQ(ErrorReason(status), "BAD_CONFIG");
  EXPECT_THAT(std::string(status.message()), HasSubstr("nmae"));
}

}  // namespace
}  // namespace djinn
