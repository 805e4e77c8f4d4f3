#include "common/io/read_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

std::string Why(const std::string& path, size_t max_bytes) {
  return std::string(ReadFile(path, max_bytes).status().message());
}

TEST(ReadFileTest, ReadsUpToItsLimit) {
  const std::string path = testing::TempDir() + "/file";
  std::ofstream(path) << "12345";
  EXPECT_EQ(ReadFile(path, 5).value(), "12345");
  EXPECT_EQ(Why(path, 4), "larger than 4 bytes");
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(ReadFile(path, 0).value(), "");
}

TEST(ReadFileTest, ReadsFilesThatDoNotTellTheirSize) {
  EXPECT_THAT(ReadFile("/proc/self/comm", 100).value(), HasSubstr("_test"));
}

TEST(ReadFileTest, ThroughSymbolicLinks) {
  const std::string target = testing::TempDir() + "/target";
  const std::string link = testing::TempDir() + "/link";
  std::ofstream(target) << "word";
  std::remove(link.c_str());
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  EXPECT_EQ(ReadFile(link, 100).value(), "word");
}

TEST(ReadFileTest, RefusesWhatIsNoRegularFile) {
  const std::string pipe = testing::TempDir() + "/pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path :
       {pipe, std::string("/dev/zero"), testing::TempDir()}) {
    EXPECT_EQ(Why(path, 100), "not a regular file") << path;
  }
  EXPECT_EQ(Why("/no/such/file", 100), "No such file or directory");
}

}  // namespace
}  // namespace djinn
