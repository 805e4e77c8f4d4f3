#include "coordinator/ctl/command_line.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;

Command Parse(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.value_or(Command());
}

// What is said of a command line that is wrong.
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
  EXPECT_EQ(Parse({"stop", "queues", "red"}).kind, "queue");
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
    EXPECT_EQ(command.Flag("token_file"), "t");
    EXPECT_FALSE(command.Has("coordinator"));
  }
}

TEST(CommandLineTest, WhatIsTrueOrFalseTakesNoWord) {
  const Command command = Parse({"stop", "queue", "--drain", "red"});
  EXPECT_TRUE(command.IsSet("drain"));
  EXPECT_EQ(command.name, "red");
  EXPECT_FALSE(Parse({"stop", "queue", "red"}).IsSet("drain"));
  EXPECT_FALSE(Parse({"stop", "queue", "red", "--drain=false"}).IsSet("drain"));
  EXPECT_TRUE(Parse({"simulate", "f"}).IsSet("preemption", true));
  EXPECT_FALSE(
      Parse({"simulate", "f", "--nopreemption"}).IsSet("preemption", true));
  EXPECT_EQ(Wrong({"stop", "queue", "red", "--drain=yes"}),
            "--drain is true or false, not \"yes\"");
}

TEST(CommandLineTest, ADashAloneOrBehindTwoIsAWord) {
  EXPECT_EQ(Parse({"simulate", "-"}).name, "-");
  EXPECT_EQ(Parse({"get", "worker", "--", "-w"}).name, "-w");
}

TEST(CommandLineTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(Wrong({}), "what to do? --help lists all commands");
  EXPECT_EQ(Wrong({"gett", "workers"}),
            "there is no command \"gett\": --help lists all");
  EXPECT_EQ(Wrong({"get"}),
            "get of what? worker, session, tenant, queue, lease, graph, run");
  EXPECT_EQ(Wrong({"cordon", "tenant", "red"}),
            "there is no cordon of \"tenant\": worker");
  EXPECT_EQ(Wrong({"describe", "workers"}), "describe worker needs a name");
  EXPECT_EQ(Wrong({"simulate"}), "simulate needs a file");
  EXPECT_EQ(Wrong({"get", "workers", "w0", "w1"}),
            "\"w1\" is one word too many for get");
  EXPECT_EQ(Wrong({"reload", "workers"}),
            "\"workers\" is one word too many for reload");
  EXPECT_EQ(Wrong({"get", "workers", "--dry-run"}),
            "--dry-run is no flag of get, but of quota");
  EXPECT_EQ(Wrong({"get", "workers", "--colour=red"}),
            "there is no flag --colour=red");
  EXPECT_EQ(Wrong({"get", "workers", "--nocoordinator"}),
            "there is no flag --nocoordinator");
  EXPECT_EQ(Wrong({"get", "workers", "--coordinator"}),
            "--coordinator needs a value");
}

TEST(CommandLineTest, OutputsAreTheCommands) {
  EXPECT_EQ(Parse({"get", "workers", "-o", "yaml"}).output, "yaml");
  EXPECT_EQ(Parse({"get", "graph", "ab", "-o", "dot"}).output, "dot");
  EXPECT_EQ(Wrong({"get", "graphs", "-o", "dot"}),
            "-o dot draws one graph: get graph NAME");
  EXPECT_EQ(Wrong({"get", "worker", "w0", "-o", "svg"}),
            "-o svg draws one graph: get graph NAME");
  EXPECT_EQ(Wrong({"get", "workers", "-o", "xml"}),
            "get has no output \"xml\": table, wide, json, yaml");
  EXPECT_EQ(Wrong({"describe", "worker", "w0", "-o", "json"}),
            "describe has no output \"json\": table");
}

TEST(CommandLineTest, AQuotaIsOnlyTried) {
  const Command command =
      Parse({"quota", "set", "red", "memory_bytes", "--nominal=64GiB",
             "--borrowing-limit=none", "--dry-run"});
  EXPECT_EQ(command.kind, "set");
  EXPECT_EQ(command.name, "red");
  EXPECT_EQ(command.resource, "memory_bytes");
  EXPECT_EQ(command.Flag("borrowing_limit"), "none");
  const std::string why =
      Wrong({"quota", "set", "red", "memory_bytes", "--nominal=64GiB"});
  EXPECT_THAT(why, HasSubstr("quota.memory_bytes (nominalQuota, "
                             "borrowingLimit, lendingLimit) of red in "
                             "tenants, then `djinnctl reload`"));
  EXPECT_THAT(Wrong({"quota", "set", "red"}),
              HasSubstr("a tenant and a resource"));
  EXPECT_EQ(Wrong({"quota", "set", "red", "memory_bytes", "--dry-run"}),
            "quota set needs --nominal");
}

TEST(CommandLineTest, IntervalsAreDurationsOrSeconds) {
  EXPECT_EQ(*IntervalOf(Parse({"watch", "workers"})), absl::Seconds(2));
  EXPECT_EQ(*IntervalOf(Parse({"watch", "workers", "--interval=5"})),
            absl::Seconds(5));
  EXPECT_EQ(*IntervalOf(Parse({"top", "workers", "--interval=250ms"})),
            absl::Milliseconds(250));
  for (const char* wrong : {"--interval=0", "--interval=soon", "--interval=inf",
                            "--interval=nan", "--interval=-1s"}) {
    EXPECT_FALSE(IntervalOf(Parse({"watch", "workers", wrong})).ok()) << wrong;
  }
}

TEST(CommandLineTest, HelpNamesEverything) {
  EXPECT_EQ(Parse({"get", "workers", "--help"}).verb, "help");
  EXPECT_EQ(Parse({"help"}).verb, "help");
  const std::string usage = Usage();
  for (const char* part :
       {"  get worker|session|tenant|queue|lease|graph|run [NAME]\n",
        "  quota set TENANT RESOURCE --dry-run\n", "  simulate FILE\n",
        "  reload\n", "--borrowing-limit=VALUE  (quota) "}) {
    EXPECT_THAT(usage, HasSubstr(part));
  }
}

}  // namespace
}  // namespace djinn::ctl
