#include "client_lib/cluster/child_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

class ChildProcessTest : public testing::Test {
 protected:
  ChildProcessTest() { EXPECT_EQ(pipe2(lifeline_, O_CLOEXEC), 0); }
  ~ChildProcessTest() override {
    close(lifeline_[0]);
    if (lifeline_[1] >= 0) close(lifeline_[1]);
  }

  absl::Status Run(const std::string& script) {
    return child_.Start("/bin/sh", {"-c", script}, lifeline_[0],
                        testing::TempDir() + "/child.log");
  }

  int lifeline_[2] = {-1, -1};
  ChildProcess child_;
};

TEST_F(ChildProcessTest, TellsHowItEndedAndWhatItSaid) {
  ASSERT_TRUE(Run("echo once; echo twice >&2; exit 3").ok());
  EXPECT_TRUE(child_.WaitForExit(absl::Seconds(10)));
  EXPECT_EQ(child_.DescribeEnd(), "ended with status 3");
  EXPECT_NE(child_.LogTail().find("once\ntwice\n"), std::string::npos);
}

TEST_F(ChildProcessTest, SeesTheEndOfItsLifeline) {
  ASSERT_TRUE(Run("cat <&3").ok());
  EXPECT_TRUE(child_.Running());
  close(lifeline_[1]);
  lifeline_[1] = -1;
  EXPECT_TRUE(child_.WaitForExit(absl::Seconds(10)));
  EXPECT_EQ(child_.DescribeEnd(), "ended with status 0");
}

TEST_F(ChildProcessTest, InheritsNothingElse) {
  const int leaked = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  ASSERT_TRUE(Run("ls /proc/self/fd | wc -l").ok());
  EXPECT_TRUE(child_.WaitForExit(absl::Seconds(10)));
  close(leaked);
  // `ls` sees five descriptors: the three standard ones, the lifeline, and the
  // folder that it reads.
  EXPECT_NE(child_.LogTail().find("5\n"), std::string::npos)
      << child_.LogTail();
}

TEST_F(ChildProcessTest, IsKilledWhenItDoesNotListen) {
  ASSERT_TRUE(Run("trap '' TERM; echo ready; while :; do sleep 1; done").ok());
  for (Patience patience;
       child_.LogTail().find("ready") == std::string::npos;) {
    patience.Yield();
  }
  child_.Stop(absl::Milliseconds(20));
  EXPECT_FALSE(child_.Running());
  EXPECT_EQ(child_.DescribeEnd(), "was ended by signal 9");
}

TEST_F(ChildProcessTest, SaysWhatCannotBeStarted) {
  const absl::Status status = child_.Start("/no/such/program", {}, lifeline_[0],
                                           testing::TempDir() + "/child.log");
  EXPECT_EQ(ErrorReason(status), "CANNOT_START");
  EXPECT_NE(status.message().find("/no/such/program"), std::string::npos);
}

TEST(FindProgramsTest, SaysWhereItLooked) {
  setenv("DJINN_BIN_DIR", "/no/such/folder", 1);
  const absl::Status status = FindClusterPrograms().status();
  unsetenv("DJINN_BIN_DIR");
  EXPECT_EQ(ErrorReason(status), "PROGRAM_MISSING");
  EXPECT_NE(status.message().find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace djinn
