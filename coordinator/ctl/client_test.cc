// Tests commands against a coordinator in this process, over real gRPC.
#include "coordinator/ctl/client.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/net/channel_options.h"
#include "coordinator/server/coordinator.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    config_.tenants[0].cohort = "lab";
    config_.tenants[0].quotas[0].nominal = 1000;
    config_.tenants[0].quotas[0].lending_limit = 100;
    auto started = coordinator::Coordinator::Start(
        config_, &clock_, &random_,
        [this]() -> absl::StatusOr<coordinator::Config> { return config_; },
        /*tick=*/false);
    EXPECT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
  }

  // Executes the command and returns its status; `printed_` holds its output.
  absl::Status Try(const std::vector<std::string>& arguments,
                   const std::string& token = "admin-token") {
    const absl::StatusOr<Command> command = ParseCommand(arguments);
    if (!command.ok()) return command.status();
    printed_.clear();
    return RunCommand(
        *command, MakeChannel(coordinator_->address()).value(), token,
        {.print =
             [this](absl::string_view text) {
               absl::StrAppend(&printed_, text);
             },
         .sleep = [this](absl::Duration time) { slept_.push_back(time); },
         .clears = clears_});
  }
  std::string Run(const std::vector<std::string>& arguments) {
    const absl::Status status = Try(arguments);
    EXPECT_EQ(status, absl::OkStatus());
    return printed_;
  }

  coordinator::Config config_ = coordinator::TestConfig();
  FakeClock clock_;
  FakeRandomSource random_;
  std::unique_ptr<coordinator::Coordinator> coordinator_;
  std::string printed_;
  std::vector<absl::Duration> slept_;
  bool clears_ = false;
};

TEST_F(ClientTest, EveryKindHasATableThatMayBeWide) {
  for (const char* kind :
       {"workers", "sessions", "tenants", "queues", "leases", "graphs"}) {
    const std::string narrow = Run({"get", kind});
    const std::string wide = Run({"get", kind, "-o", "wide"});
    EXPECT_FALSE(narrow.empty());
    EXPECT_GT(wide.find('\n'), narrow.find('\n')) << kind;
    EXPECT_THAT(Run({"get", kind, "-o", "json"}), StartsWith("{"));
    EXPECT_THAT(Run({"get", kind, "-o", "yaml"}), StartsWith(kind));
  }
  EXPECT_THAT(Run({"get", "tenant", "red"}), StartsWith("tenant "));
  EXPECT_THAT(Run({"get", "tenant", "red", "-o", "wide"}),
              StartsWith("TENANT "));
  EXPECT_THAT(Run({"get", "tenant", "red", "-o", "yaml"}),
              StartsWith("tenant: \"red\"\n"));
}

TEST_F(ClientTest, AQueueIsStoppedAndResumed) {
  EXPECT_THAT(Run({"stop", "queue", "red"}),
              HasSubstr("state             stopped since "));
  EXPECT_THAT(Run({"get", "queues"}), HasSubstr("\nred     stopped "));
  EXPECT_THAT(Run({"get", "tenants"}), HasSubstr("stopped"));
  EXPECT_THAT(Run({"stop", "queue", "red", "--drain", "-o", "yaml"}),
              HasSubstr("\nstop:\n  drain: true\n"));
  EXPECT_THAT(Run({"explain", "tenant", "red"}), HasSubstr("its leases end"));
  EXPECT_THAT(Run({"resume", "queue", "red"}), HasSubstr("active\n"));
  EXPECT_THAT(Run({"get", "queues"}), Not(HasSubstr("stopped")));
  const absl::Status unknown = Try({"stop", "queue", "green"});
  EXPECT_EQ(ErrorReason(unknown), "TENANT_UNKNOWN");
  EXPECT_EQ(ExitStatus(unknown), kRefused);
}

TEST_F(ClientTest, ABundleHasTheStateAndNoToken) {
  const std::string file = testing::TempDir() + "/bundle.tar";
  std::remove(file.c_str());
  EXPECT_THAT(
      Run({"bundle", file}),
      AllOf(StartsWith("versions.txt\nstate/workers.json\n"),
            HasSubstr("state/graphs.json\n"), Not(HasSubstr("missing"))));
  std::ifstream stream(file, std::ios::binary);
  const std::string archive{std::istreambuf_iterator<char>(stream),
                            std::istreambuf_iterator<char>()};
  EXPECT_THAT(archive, HasSubstr(absl::StrCat("coordinator  ", kVersion)));
  EXPECT_THAT(archive, HasSubstr("\"tenant\": \"red\""));
  EXPECT_THAT(archive, Not(HasSubstr("admin-token")));
}

TEST_F(ClientTest, ABundleReplacesAFileOnlyWithForceAndIsForItsOwner) {
  const std::string file = testing::TempDir() + "/own.tar";
  std::ofstream(file) << "mine";
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(Try({"bundle", file}).message(),
            file + " exists: name another file, or say --force");
  struct stat found = {};
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_size, 4);
  Run({"bundle", "--force", file});
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_GT(found.st_size, 1024);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(ClientTest, ABundleWithoutACoordinatorSaysWhatIsMissing) {
  coordinator_->Stop();
  const std::string file = testing::TempDir() + "/alone.tar";
  std::remove(file.c_str());
  EXPECT_THAT(
      Run({"bundle", file, "--log=" + file + ".absent"}),
      AllOf(HasSubstr("missing.txt\n\nmissing:\nstate of the cluster: "),
            HasSubstr(".absent: cannot be read\n")));
  EXPECT_EQ(Try({"bundle", "/no/such/folder/b.tar"}).message(),
            "cannot write /no/such/folder/b.tar: No such file or directory");
}

TEST_F(ClientTest, ADescriptionHasTheDetailAndTheReasons) {
  EXPECT_THAT(Run({"describe", "tenant", "red"}),
              AllOf(StartsWith("tenant "), HasSubstr("memory limit"),
                    HasSubstr("held devices"), HasSubstr("red *")));
  EXPECT_THAT(Run({"describe", "queue", "red"}),
              AllOf(StartsWith("queue "), HasSubstr("held devices")));
  EXPECT_EQ(ErrorReason(Try({"describe", "worker", "w9"})), "WORKER_UNKNOWN");
  // For a tenant that was removed, only the stop is left.
  Run({"stop", "queue", "red"});
  config_.tenants.erase(config_.tenants.begin());
  Run({"reload"});
  EXPECT_THAT(Run({"describe", "queue", "red"}),
              AllOf(HasSubstr("stopped since"), Not(HasSubstr("held"))));
}

TEST_F(ClientTest, AWatchRepeatsItself) {
  const std::string once = Run({"get", "queues"});
  EXPECT_EQ(Run({"watch", "queues", "--count=2", "--interval=5s"}),
            once + "\n" + once);
  EXPECT_THAT(slept_, ElementsAre(absl::Seconds(5)));
  clears_ = true;
  EXPECT_EQ(Run({"watch", "queues", "--count", "1"}), "\x1b[H\x1b[2J" + once);
  // An error ends the watch.
  EXPECT_EQ(ErrorReason(Try({"watch", "worker", "w9", "--count=3"})),
            "WORKER_UNKNOWN");
}

TEST_F(ClientTest, TopLooksOnceAtWorkersAndTwiceAtTenants) {
  EXPECT_THAT(Run({"top", "workers"}), StartsWith("WORKER "));
  EXPECT_THAT(slept_, IsEmpty());
  EXPECT_THAT(Run({"top", "tenants"}),
              AllOf(StartsWith("TENANT "), HasSubstr("red     0.00")));
  EXPECT_THAT(slept_, ElementsAre(absl::Seconds(2)));
}

TEST_F(ClientTest, AQuotaIsTried) {
  EXPECT_THAT(Run({"quota", "set", "red", "memory_bytes=2000", "--dry-run"}),
              AllOf(HasSubstr("nominal          1000 (1.0kB) -> 2000 (2.0kB)"),
                    HasSubstr("lending limit    100\n"),
                    HasSubstr("nothing was changed")));
  EXPECT_THAT(Run({"get", "tenant", "red"}), HasSubstr(" of 1000,"));
  EXPECT_EQ(ErrorReason(Try({"quota", "set", "red", "memory=1", "--dry-run"})),
            "RESOURCE_UNKNOWN");
  EXPECT_EQ(ErrorReason(
                Try({"quota", "set", "green", "memory_bytes=1", "--dry-run"})),
            "TENANT_UNKNOWN");
  const absl::Status wrong =
      Try({"quota", "set", "red", "memory_bytes=much", "--dry-run"});
  EXPECT_TRUE(absl::IsInvalidArgument(wrong));
  EXPECT_EQ(ErrorReason(wrong), "");
}

TEST_F(ClientTest, AQuotaIsSetAndUnset) {
  EXPECT_THAT(Run({"get", "tenants"}), HasSubstr("configured"));
  EXPECT_THAT(
      Run({"quota", "set", "red", "memory_bytes=2000", "bytes_per_second=50"}),
      AllOf(HasSubstr("0 of 2000, 0 borrowed, 0 lent, at most 100 "
                      "lent; set by admin since "),
            HasSubstr(" until the coordinator restarts, in place of "
                      "1000, at most 100 lent"),
            HasSubstr("in place of none")));
  EXPECT_THAT(Run({"get", "tenants"}), HasSubstr("set"));
  EXPECT_THAT(Run({"explain", "tenant", "red"}),
              HasSubstr("0 of 2000, 0 borrowed, 0 lent, at most 100 lent; set "
                        "by admin since "));
  // A reload keeps what is set.
  Run({"reload"});
  EXPECT_THAT(Run({"get", "tenant", "red"}), HasSubstr("0 of 2000,"));
  EXPECT_EQ(ErrorReason(Try({"quota", "set", "red", "memory_bytes=1.5"})),
            "BAD_QUOTA");
  EXPECT_EQ(ErrorReason(Try({"quota", "set", "red", "memory=1"})),
            "RESOURCE_UNKNOWN");
  EXPECT_EQ(ErrorReason(Try({"quota", "unset", "red", "cache_bytes"})),
            "QUOTA_NOT_SET");
  EXPECT_THAT(Run({"quota", "unset", "red", "memory_bytes"}),
              AllOf(HasSubstr("0 of 1000,"), HasSubstr("0 of 50,")));
  EXPECT_THAT(Run({"quota", "unset", "red"}),
              AllOf(HasSubstr("0 of 1000,"), Not(HasSubstr("set by")),
                    Not(HasSubstr("bytes_per_second"))));
  EXPECT_EQ(ErrorReason(Try({"quota", "unset", "red"})), "QUOTA_NOT_SET");
  EXPECT_EQ(ErrorReason(Try({"quota", "unset", "green"})), "TENANT_UNKNOWN");
}

TEST_F(ClientTest, AQuotaNeedsAnOperator) {
  config_.operators = {{"vera", coordinator::Role::kViewer, "vera-token"},
                       {"olaf", coordinator::Role::kOperator, "olaf-token"}};
  Run({"reload"});
  const std::vector<std::string> set = {"quota", "set", "red",
                                        "memory_bytes=2000"};
  EXPECT_EQ(ErrorReason(Try(set, "vera-token")), "ROLE_REQUIRED");
  EXPECT_EQ(ErrorReason(Try({"quota", "unset", "red"}, "vera-token")),
            "ROLE_REQUIRED");
  EXPECT_THAT(Run({"get", "tenant", "red"}), HasSubstr(" of 1000,"));
  EXPECT_EQ(Try(set, "olaf-token"), absl::OkStatus());
  EXPECT_THAT(printed_, HasSubstr("set by olaf since "));
}

TEST_F(ClientTest, AVersionIsTheCoordinators) {
  EXPECT_EQ(Run({"version"}), std::string("coordinator  ") + kVersion + "\n");
}

TEST_F(ClientTest, FlagsThatAreWrongAreNamed) {
  EXPECT_EQ(Try({"explain", "placement", "red", "--phase=x"}).message(),
            "there is no phase \"x\"");
}

TEST_F(ClientTest, TenantsTokenIsRefused) {
  const absl::Status status = Try({"get", "queues"}, "red-token");
  EXPECT_EQ(ErrorReason(status), "TOKEN_UNKNOWN");
  EXPECT_EQ(ExitStatus(status), kRefused);
}

TEST_F(ClientTest, UnreachableCoordinatorHasItsOwnExitStatus) {
  const std::string address = coordinator_->address();
  coordinator_.reset();
  const absl::Status status = RunCommand(
      *ParseCommand({"get", "queues"}), MakeChannel(address).value(),
      "admin-token",
      {.print = [](absl::string_view) {}, .sleep = [](absl::Duration) {}});
  EXPECT_EQ(ExitStatus(status), kUnreachable);
}

}  // namespace
}  // namespace djinn::ctl
