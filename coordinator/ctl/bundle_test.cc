#include "coordinator/ctl/bundle.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ScrubberTest, RemovesSecretsWhereverTheyStand) {
  Scrubber scrubber;
  scrubber.AddSecret("0123456789abcdef");
  scrubber.AddSecret("0123456789abcdef-and-more");
  scrubber.AddSecret("short");
  EXPECT_EQ(scrubber.Scrub("a=0123456789abcdef b=0123456789abcdef-and-more"),
            "a=[removed] b=[removed]");
  EXPECT_EQ(scrubber.Scrub("in short"), "in short");
  EXPECT_EQ(scrubber.Scrub("Authorization: Bearer unheard-of, next"),
            "Authorization: Bearer [removed], next");
  EXPECT_EQ(scrubber.Scrub("x\n-----BEGIN CERTIFICATE-----\nabc\n"
                           "-----END CERTIFICATE-----\n"
                           "-----BEGIN EC PRIVATE KEY-----\nsecret\n"
                           "-----END EC PRIVATE KEY-----\ny"),
            "x\n-----BEGIN CERTIFICATE-----\nabc\n"
            "-----END CERTIFICATE-----\n[removed]\ny");
  // One that is cut off.
  EXPECT_EQ(scrubber.Scrub("-----BEGIN PRIVATE KEY-----\nsecret"), "[removed]");
}

class BundleTest : public testing::Test {
 protected:
  BundleTest() {
    std::filesystem::create_directories(folder_);
    for (const char* const name : {"join", "admin", "red"}) {
      Write(std::string(name) + ".token", std::string(name) + "-0123456789");
    }
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path;
  }
  // Returns all names and texts of the bundle.
  static std::string TextOf(const Bundle& bundle) {
    std::string all;
    for (const ArchivedFile& file : bundle.Finish()) {
      all += file.name + "\n" + file.text + "\n";
    }
    return all;
  }
  // Returns what a bundle has of a log.
  std::string KeptOf(const std::string& log) {
    Bundle bundle("admin-token-in-use");
    bundle.AddLog(Write("long.log", log));
    return bundle.Finish().front().text;
  }

  const std::string folder_ =
      testing::TempDir() + "/" +
      testing::UnitTest::GetInstance()->current_test_info()->name();
  Bundle bundle_{"admin-token-in-use"};
};

TEST_F(BundleTest, NoTokenOfAConfigurationIsInIt) {
  const std::string config = Write("c.yaml",
                                   "join_token_file: join.token\n"
                                   "admin_token_file: admin.token\n"
                                   "tenants:\n"
                                   "  - {name: red, token_file: red.token}\n");
  bundle_.AddLog(Write("c.log",
                       "join-0123456789 admin-0123456789\n"
                       "red-0123456789 admin-token-in-use and the rest\n"));
  // The configuration comes after the log that has its tokens.
  bundle_.AddConfig(config);
  const std::string all = TextOf(bundle_);
  for (const char* const secret : {"join-0123456789", "admin-0123456789",
                                   "red-0123456789", "admin-token-in-use"}) {
    EXPECT_THAT(all, Not(HasSubstr(secret)));
  }
  EXPECT_THAT(all, HasSubstr("and the rest"));
  EXPECT_THAT(all, HasSubstr("join_token_file: join.token  # c.yaml:1"));
  EXPECT_THAT(all, HasSubstr("# session_timeout: 30s  # default"));
  EXPECT_EQ(bundle_.missing(), "");
}

TEST_F(BundleTest, AWorkersConfigurationIsAddedAsItStands) {
  bundle_.AddConfig(
      Write("w.yaml", "worker_id: w0\njoin_token_file: join.token\n"));
  EXPECT_THAT(TextOf(bundle_),
              HasSubstr("worker_id: w0\njoin_token_file: join.token\n"));
  EXPECT_EQ(bundle_.missing(), "");
}

TEST_F(BundleTest, UnreadableFileIsNamed) {
  bundle_.AddConfig(folder_ + "/absent.yaml");
  bundle_.AddLog(folder_ + "/absent.log");
  bundle_.AddConfig(
      Write("w.yaml", "worker_id: w0\njoin_token_file: absent.token\n"));
  const std::string missing = bundle_.missing();
  EXPECT_THAT(missing, HasSubstr("absent.yaml: "));
  EXPECT_THAT(missing, HasSubstr("absent.log: cannot be read"));
  EXPECT_THAT(missing, HasSubstr("a token is not known"));
  EXPECT_EQ(bundle_.Finish().back().name, "missing.txt");
}

// Returns a log with these bytes in its last MiB, which begins behind `before`.
std::string CutLog(const std::string& before, std::string behind) {
  behind += "\n";
  constexpr size_t kKept = size_t{1} << 20;
  behind.append(kKept - behind.size() - 4, 'x');
  return before + behind + "end\n";
}

TEST_F(BundleTest, LongLogKeepsItsLastLines) {
  // The cut is within a line, at its end, and at its beginning.
  std::string text = KeptOf(CutLog("begin", "rest\nnext"));
  EXPECT_THAT(text, StartsWith("next\nxxx"));
  EXPECT_THAT(text, EndsWith("xend\n"));
  EXPECT_THAT(KeptOf(CutLog("begin", "\nnext")), StartsWith("next\nxxx"));
  EXPECT_THAT(KeptOf(CutLog("begin\n", "next")), StartsWith("next\nxxx"));
  // No line begins there.
  EXPECT_EQ(KeptOf("begin" + std::string(2 << 20, 'x') + "end\n"), "");
  // A log that is short enough is kept from its first byte.
  EXPECT_EQ(KeptOf("join\nend\n"), "join\nend\n");
}

TEST_F(BundleTest, CutSecretIsRemoved) {
  EXPECT_THAT(KeptOf(CutLog("token=admin-to", "ken-in-use\nnext")),
              StartsWith("next\nxxx"));
  const std::string key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n";
  const std::string rest = "c2VjcmV0\nc2VjcmV1\n-----END EC PRIVATE KEY-----";
  EXPECT_THAT(KeptOf(CutLog(key, rest + "\nnext")), StartsWith("next\nxxx"));
  EXPECT_THAT(KeptOf(CutLog(key + "c2Vj", rest + " \nnext")),
              StartsWith("next\nxxx"));
  // Even where nothing follows.
  EXPECT_EQ(KeptOf(key + std::string(1 << 20, 'c') + "\n" +
                   "-----END EC PRIVATE KEY-----"),
            "");
  // A block that begins behind the cut leaves the lines before it.
  EXPECT_THAT(KeptOf(CutLog("begin", "\nnext\n" + key + rest + "\nlast")),
              StartsWith("next\n[removed]\nlast\nxxx"));
}

TEST(TarTest, TheSystemsTarReadsIt) {
  const std::string folder = testing::TempDir() + "/tar";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/b.tar") << TarOf(
      {{"a/empty", ""}, {"a/block", std::string(512, 'x')}, {"b", "hello\n"}},
      absl::FromUnixSeconds(86400));
  ASSERT_EQ(
      std::system(("tar -C " + folder + " -xf " + folder + "/b.tar").c_str()),
      0);
  EXPECT_EQ(std::filesystem::file_size(folder + "/a/empty"), 0u);
  EXPECT_EQ(std::filesystem::file_size(folder + "/a/block"), 512u);
  std::string line;
  std::ifstream file(folder + "/b");
  std::getline(file, line);
  EXPECT_EQ(line, "hello");
  struct stat status;
  ASSERT_EQ(stat((folder + "/b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_mtime, 86400);
}

}  // namespace
}  // namespace djinn::ctl
