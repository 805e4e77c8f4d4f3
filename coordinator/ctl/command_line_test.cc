#include "coordinator/ctl/command_line.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Command Parse(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.value_or(Command());
}

// Returns the text of the error that a wrong command line causes.
std::string Wrong(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  EXPECT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(command.status().message());
}

TEST(CommandLineTest, KindsAreSingularOrPlural) {
  for (const char* kind : {"worker", "workers"}) {
    const Command command = Parse({"get", kind, "w0"});
    EXPECT_EQ(command.verb, "get");
    EXPECT_EQ(command.kind, "worker");
    EXPECT_EQ(command.name, "w0");
    EXPECT_EQ(command.output, "table");
  }
  EXPECT_EQ(Parse({"get", "leases"}).name, "");
  EXPECT_EQ(Parse({"cordon", "workers", "w0"}).kind, "worker");
  EXPECT_EQ(Parse({"stop", "queues", "get"}).name, "get");
}

TEST(CommandLineTest, FlagsStandAnywhereAndAreSpelledEitherWay) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"-o", "json", "--token-file=t", "get", "workers"},
           {"get", "--token_file", "t", "workers", "-o=json"},
           {"get", "workers", "--output=json", "--token-file", "t"}}) {
    const Command command = Parse(arguments);
    EXPECT_EQ(command.output, "json");
    EXPECT_EQ(command.kind, "worker");
    EXPECT_EQ(command.token_file, "t");
    EXPECT_EQ(command.coordinator, "127.0.0.1:7070");
  }
}

TEST(CommandLineTest, EnvironmentAllowsAnotherHostWithoutTls) {
  EXPECT_FALSE(Parse({"get", "workers"}).insecure);
  EXPECT_TRUE(Parse({"get", "workers", "--insecure"}).insecure);
  setenv("DJINN_INSECURE", "1", 1);
  EXPECT_TRUE(Parse({"get", "workers"}).insecure);
  setenv("DJINN_INSECURE", "0", 1);
  EXPECT_FALSE(Parse({"get", "workers"}).insecure);
  setenv("DJINN_INSECURE", "maybe", 1);
  EXPECT_THAT(Wrong({"get", "workers"}), HasSubstr("--insecure"));
  unsetenv("DJINN_INSECURE");
}

TEST(CommandLineTest, AnEmptyValueIsAFlagThatIsNotGiven) {
  const Command command =
      Parse({"get", "workers", "--token-file=", "--tls-ca-file=ca.pem"});
  EXPECT_EQ(command.token_file, "");
  EXPECT_EQ(command.tls.ca_file, "ca.pem");
}

TEST(CommandLineTest, SwitchesTakeNoWord) {
  const Command command = Parse({"stop", "queue", "--drain", "red"});
  EXPECT_TRUE(command.drain);
  EXPECT_EQ(command.name, "red");
  EXPECT_FALSE(Parse({"stop", "queue", "red"}).drain);
  EXPECT_FALSE(Parse({"stop", "queue", "red", "--drain=false"}).drain);
  EXPECT_TRUE(Parse({"simulate", "f"}).preemption);
  EXPECT_FALSE(Parse({"simulate", "f", "--nopreemption"}).preemption);
  EXPECT_FALSE(Parse({"simulate", "f", "--preemption=false"}).preemption);
  Wrong({"stop", "queue", "red", "--drain=perhaps"});
}

TEST(CommandLineTest, DashAloneOrBehindTwoIsAWord) {
  EXPECT_EQ(Parse({"simulate", "-"}).name, "-");
  EXPECT_EQ(Parse({"get", "worker", "--", "-w"}).name, "-w");
}

TEST(CommandLineTest, MistakesAreNamed) {
  Wrong({});
  EXPECT_THAT(Wrong({"gett", "workers"}), HasSubstr("gett"));
  EXPECT_THAT(Wrong({"get"}), HasSubstr("KIND"));
  EXPECT_THAT(Wrong({"cordon", "tenant", "red"}),
              HasSubstr("\"tenant\" is none of worker"));
  EXPECT_THAT(Wrong({"describe", "workers"}), HasSubstr("NAME"));
  EXPECT_THAT(Wrong({"simulate"}), HasSubstr("FILE"));
  EXPECT_THAT(Wrong({"get", "workers", "w0", "w1"}), HasSubstr("w1"));
  EXPECT_THAT(Wrong({"reload", "workers"}), HasSubstr("workers"));
  EXPECT_THAT(Wrong({"get", "workers", "--dry-run"}), HasSubstr("--dry-run"));
  EXPECT_THAT(Wrong({"get", "workers", "--colour=red"}),
              HasSubstr("--colour=red"));
  EXPECT_THAT(Wrong({"get", "workers", "--coordinator"}),
              HasSubstr("--coordinator"));
  EXPECT_EQ(Wrong({"get", "runs"}), "get runs needs a session");
  EXPECT_THAT(Wrong({"explain", "tenant", "red", "--size=1GB"}),
              HasSubstr("are of explain placement"));
  EXPECT_THAT(Wrong({"migrate", "session", "ab", "--device=-1"}),
              HasSubstr("--device"));
  EXPECT_THAT(Wrong({"watch", "queues", "--count=0"}), HasSubstr("--count"));
}

TEST(CommandLineTest, NamesAreNotEmptyAndUtf8) {
  EXPECT_THAT(Wrong({"get", "session", ""}), HasSubstr("must not be empty"));
  EXPECT_THAT(Wrong({"cordon", "worker", ""}), HasSubstr("must not be empty"));
  EXPECT_THAT(Wrong({"bundle", ""}), HasSubstr("must not be empty"));
  EXPECT_EQ(Wrong({"get", "worker", "w\xff"}), "\"w\\xff\" is not UTF-8");
  EXPECT_EQ(Wrong({"quota", "set", "red", "\x80=1"}),
            "\"\\x80=1\" is not UTF-8");
  EXPECT_THAT(Wrong({"explain", "placement", "red", "--session=\xc3"}),
              HasSubstr("is not UTF-8"));
  EXPECT_EQ(Parse({"get", "worker", "w\xc3\xa4"}).name, "w\xc3\xa4");
  // A file system takes any bytes.
  EXPECT_EQ(Parse({"bundle", "\xff"}).name, "\xff");
}

TEST(CommandLineTest, OutputsDependOnTheCommand) {
  EXPECT_EQ(Parse({"get", "workers", "-o", "yaml"}).output, "yaml");
  EXPECT_EQ(Parse({"get", "graph", "ab", "-o", "dot"}).output, "dot");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"get", "graphs", "-o", "dot"},
           {"get", "worker", "w0", "-o", "dot"}}) {
    EXPECT_EQ(Wrong(arguments), "-o dot draws one graph: get graph NAME");
  }
  EXPECT_EQ(Wrong({"get", "workers", "-o", "xml"}),
            "get has no output \"xml\": table, wide, json, yaml, dot");
  EXPECT_EQ(Wrong({"describe", "worker", "w0", "-o", "json"}),
            "describe has no output \"json\": table");
}

TEST(CommandLineTest, QuotaTakesWordsBehindTheTenant) {
  const Command command =
      Parse({"quota", "set", "red", "memory_bytes=64GiB",
             "memory_bytes.borrowingLimit=none", "--dry-run"});
  EXPECT_EQ(command.kind, "set");
  EXPECT_EQ(command.name, "red");
  EXPECT_THAT(command.words, ElementsAre("memory_bytes=64GiB",
                                         "memory_bytes.borrowingLimit=none"));
  EXPECT_TRUE(command.dry_run);
  EXPECT_FALSE(Parse({"quota", "set", "red", "memory_bytes=1"}).dry_run);
  EXPECT_THAT(Parse({"quota", "unset", "red"}).words, IsEmpty());
  EXPECT_THAT(Parse({"quota", "unset", "red", "memory_bytes"}).words,
              ElementsAre("memory_bytes"));
  EXPECT_EQ(Wrong({"quota", "set", "red"}),
            "quota set needs RESOURCE=AMOUNT, such as memory_bytes=64GiB");
  EXPECT_EQ(Wrong({"quota", "unset", "red", "--dry-run"}),
            "--dry-run is of quota set");
  EXPECT_THAT(Wrong({"quota", "set"}), HasSubstr("TENANT"));
  EXPECT_THAT(Wrong({"get", "tenant", "red", "memory_bytes=1"}),
              HasSubstr("memory_bytes=1"));
}

TEST(CommandLineTest, IntervalsAreDurationsOrSeconds) {
  EXPECT_EQ(Parse({"watch", "workers"}).interval, absl::Seconds(2));
  EXPECT_EQ(Parse({"console", "--interval=500ms"}).interval,
            absl::Milliseconds(500));
  EXPECT_EQ(Parse({"console"}).listen, "127.0.0.1:7090");
  EXPECT_EQ(Parse({"console", "--listen=[::1]:0"}).listen, "[::1]:0");
  EXPECT_EQ(Parse({"watch", "workers", "--interval=5"}).interval,
            absl::Seconds(5));
  EXPECT_EQ(Parse({"top", "workers", "--interval=250ms"}).interval,
            absl::Milliseconds(250));
  for (const char* wrong : {"--interval=0", "--interval=soon", "--interval=inf",
                            "--interval=nan", "--interval=-1s"}) {
    EXPECT_THAT(Wrong({"watch", "workers", wrong}), HasSubstr("--interval"));
  }
}

TEST(CommandLineTest, HelpNamesCommandsAndTheirFlags) {
  const Command help = Parse({"--help"});
  EXPECT_EQ(help.verb, "help");
  for (const char* part : {"simulate", "reload", "--token-file"}) {
    EXPECT_THAT(help.help, HasSubstr(part));
  }
  EXPECT_THAT(Parse({"quota", "--help"}).help, HasSubstr("borrowingLimit"));
}

TEST(ExitStatusTest, TellsRefusalsFromSilence) {
  EXPECT_EQ(ExitStatus(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatus(MakeError(absl::StatusCode::kNotFound, "WORKER_UNKNOWN",
                                 "there is no \"w9\"")),
            1);
  EXPECT_EQ(ExitStatus(MakeError(absl::StatusCode::kUnavailable,
                                 "COORDINATOR_STOPPING", "it stops")),
            1);
  EXPECT_EQ(ExitStatus(absl::UnavailableError("connection refused")), 3);
  EXPECT_EQ(ExitStatus(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitStatus(MakeError(absl::StatusCode::kFailedPrecondition,
                                 "TLS_HANDSHAKE", "wrong authority")),
            3);
}

}  // namespace
}  // namespace djinn::ctl
