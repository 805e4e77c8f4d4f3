// Tests daemons in children of this process, which signals end.
#include "common/daemon/daemon.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() {
    EXPECT_EQ(pipe(events_), 0);
    EXPECT_EQ(pipe(lifeline_), 0);
    std::ofstream(config_) << "{}\n";
    daemon_.role = "test";
    daemon_.configure = [](ConfigReader reader) { return reader.Finish(); };
    daemon_.start = [this]() -> absl::StatusOr<std::string> {
      Say('s');
      return "127.0.0.1:1";
    };
    daemon_.monitoring_address = [] { return ""; };
    daemon_.reload = [this] { Say('r'); };
    daemon_.stop = [this] { Say('e'); };
  }
  ~DaemonTest() override {
    for (const int fd : {events_[0], events_[1], lifeline_[0], lifeline_[1]}) {
      if (fd >= 0) close(fd);
    }
  }

  // Runs the daemon in a child of this process.
  void Run() {
    child_ = fork();
    if (child_ == 0) {
      close(lifeline_[1]);
      std::string arguments[] = {"djinn-test", "--config=" + config_,
                                 absl::StrCat("--lifeline_fd=", lifeline_[0])};
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      _exit(RunDaemon(daemon_, static_cast<int>(argv.size()), argv.data()));
    }
    // The child alone writes, so reading ends with it.
    close(events_[1]);
    events_[1] = -1;
  }
  // Called in the child.
  void Say(char event) { EXPECT_EQ(write(events_[1], &event, 1), 1); }
  // Returns the child's next event, or 0 when it has ended.
  char Next() {
    char event = 0;
    return read(events_[0], &event, 1) == 1 ? event : '\0';
  }
  // Returns the child's exit status, or -1 if a signal ended it.
  int Status() {
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void StartNeverEnds() {
    daemon_.start = [this]() -> absl::StatusOr<std::string> {
      Say('s');
      for (;;) pause();
    };
  }

  const std::string config_ = testing::TempDir() + "/daemon.yaml";
  Daemon daemon_;
  int events_[2], lifeline_[2], go_[2];
  pid_t child_ = -1;
};

TEST_F(DaemonTest, SigtermStopsAProcessThatServes) {
  Run();
  EXPECT_EQ(Next(), 's');
  kill(child_, SIGTERM);
  EXPECT_EQ(Status(), 0);
}

TEST_F(DaemonTest, SignalsEndAProcessThatStarts) {
  StartNeverEnds();
  for (const int signal : {SIGTERM, SIGINT}) {
    close(events_[0]);
    close(events_[1]);
    ASSERT_EQ(pipe(events_), 0);
    Run();
    EXPECT_EQ(Next(), 's');
    kill(child_, signal);
    EXPECT_EQ(Next(), 0);
    EXPECT_EQ(Status(), 0);
  }
}

TEST_F(DaemonTest, EndOfTheLifelineEndsAProcessThatStarts) {
  StartNeverEnds();
  Run();
  EXPECT_EQ(Next(), 's');
  close(lifeline_[1]);
  lifeline_[1] = -1;
  EXPECT_EQ(Status(), 0);
}

TEST_F(DaemonTest, FaultGivesAFailingStatus) {
  daemon_.failed = [] { return true; };
  StartNeverEnds();
  Run();
  EXPECT_EQ(Next(), 's');
  kill(child_, SIGTERM);
  EXPECT_EQ(Status(), 1);
}

TEST_F(DaemonTest, ReloadDuringTheStartFollowsIt) {
  daemon_.start = [this]() -> absl::StatusOr<std::string> {
    Say('s');
    // Goes on when the test has sent its signal, which the watch may take
    // before or after that.
    char ignored;
    EXPECT_EQ(read(go_[0], &ignored, 1), 1);
    Say('S');
    return "127.0.0.1:1";
  };
  ASSERT_EQ(pipe(go_), 0);
  Run();
  EXPECT_EQ(Next(), 's');
  kill(child_, SIGHUP);
  ASSERT_EQ(write(go_[1], "g", 1), 1);
  EXPECT_EQ(Next(), 'S');
  EXPECT_EQ(Next(), 'r');
  kill(child_, SIGTERM);
  EXPECT_EQ(Next(), 'e');
  EXPECT_EQ(Status(), 0);
}

}  // namespace
}  // namespace djinn
