// Tests that code inside a tenant's process gets nowhere: an operator library
// of the worker tries to leave it.
#include "tests/security/escapes.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/wire_messages.h"
#include "tests/security/raw_client.h"
#include "tests/security/walls.h"

namespace djinn {
namespace {

std::string LibraryPath() {
  return std::filesystem::absolute("tests/security/libescaping_operators.so");
}

// r = attempt(x, escape, other)
v1::Graph AttemptOf(int64_t escape, pid_t other) {
  v1::Graph graph = CallOf(Op("escape::attempt"));
  v1::Node* const node = graph.mutable_nodes(0);
  node->clear_arguments();
  *node->add_arguments()->mutable_tensor() = View(0);
  *node->add_arguments() = Integer(escape);
  *node->add_arguments() = Integer(other);
  return graph;
}

// Returns the value of a metric without labels.
int ValueOf(const std::string& metrics, const std::string& name) {
  int value = -1;
  for (absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (absl::ConsumePrefix(&line, name + " ")) {
      EXPECT_TRUE(absl::SimpleAtoi(line, &value));
    }
  }
  return value;
}

// A cluster whose workers load the library.
Walls WithLibrary(
    const std::string& isolation = "{mode: process, executors: 3}",
    MoreOfWalls more = {}) {
  // Makes the operator's schema known to Op().
  EXPECT_NE(dlopen(LibraryPath().c_str(), RTLD_NOW), nullptr) << dlerror();
  absl::StrAppend(&more.of_workers,
                  "operator_libraries: [{path: ", LibraryPath(), "}]\n");
  return Walls(isolation, /*workers=*/1, /*more_attackers=*/0, more);
}

// Returns the output of an attempt that fails with the error; 0: that succeeds.
std::string Error(float error) {
  return FloatBytes({error, error, error, error});
}

TEST(EscapesTest, EachIsRefusedLoggedAndCounted) {
  const Walls walls = WithLibrary();
  RawClient victim(walls, "victim");
  RawClient attacker(walls, "attacker");
  const pid_t other = walls.PidAt(victim.address());
  ASSERT_GT(other, 0);
  for (int64_t escape = 0; escape <= static_cast<int64_t>(kLastEscape);
       ++escape) {
    EXPECT_EQ(attacker.Attack(AttemptOf(escape, other)), Error(EPERM))
        << "escape " << escape;
  }
  EXPECT_TRUE(victim.Works());
  EXPECT_TRUE(attacker.Works());
  const std::string log = walls.log();
  EXPECT_THAT(log, testing::HasSubstr("sandbox refused a system call"));
  EXPECT_THAT(log, testing::HasSubstr("path=/etc/passwd"));
  EXPECT_TRUE(Eventually([&] {
    return ValueOf(walls.Metrics(), "djinn_worker_refused_system_calls_total") >
           static_cast<int>(kLastEscape);
  }));
}

TEST(EscapesTest, LogOfTheWorkerIsNotTheExecutors) {
  const Walls walls = WithLibrary();
  RawClient victim(walls, "victim");
  RawClient attacker(walls, "attacker");
  const auto attempt = [&](Attempt what) {
    return attacker.Attack(AttemptOf(static_cast<int64_t>(what), 0));
  };
  EXPECT_EQ(attempt(Attempt::kShutLogDown), Error(ENOTSOCK));
  EXPECT_EQ(attempt(Attempt::kForgeLine), Error(0));
  EXPECT_TRUE(
      Eventually([&] { return absl::StrContains(walls.log(), "forged"); }));
  const std::vector<std::string> lines = absl::StrSplit(walls.log(), '\n');
  for (const std::string& line : lines) {
    if (!absl::StrContains(line, "forged")) continue;
    EXPECT_THAT(line, testing::HasSubstr(" role=worker msg=\"executor wrote\" "
                                         "tenant=attacker number="));
  }
  EXPECT_THAT(WithoutQuotes(walls.log()), testing::HasSubstr(kForged));
  EXPECT_TRUE(victim.Works());
}

TEST(EscapesTest, ExecutorCannotTamperWithTheSupervisorsDescriptors) {
  MoreOfWalls more;
  more.shared_memory = false;
  const Walls walls =
      WithLibrary("{mode: process, executors: 3, content_memory: 64MiB}", more);
  RawClient victim(walls, "victim");
  RawClient attacker(walls, "attacker");
  const auto attempt = [&](Attempt what) {
    return attacker.Attack(AttemptOf(static_cast<int64_t>(what), 0));
  };
  EXPECT_EQ(attempt(Attempt::kTakeEvent), Error(EBADF));
  EXPECT_TRUE(victim.Works());
  EXPECT_TRUE(attacker.Works());
  // Where the kernel does not refuse it, the supervisor ends the executor.
  const std::string sent = attempt(Attempt::kSendDescriptors);
  EXPECT_NE(sent, Error(0));
  EXPECT_TRUE(victim.Works());
}

TEST(EscapesTest, AProcessOfTooManyThreadsEndsAlone) {
  const Walls walls = WithLibrary();
  RawClient victim(walls, "victim");
  RawClient attacker(walls, "attacker");
  attacker.Send(
      Define(2, AttemptOf(static_cast<int64_t>(Attempt::kStartThreads), 0)));
  attacker.Send(RunOf(2, 1, 1, 3));
  EXPECT_EQ(attacker.session().WaitLeaseEnd(), "THREAD_LIMIT");
  EXPECT_TRUE(victim.Works());
}

}  // namespace
}  // namespace djinn
