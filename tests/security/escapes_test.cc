// Tests that code inside a tenant's process gets nowhere: an operator library
// of the worker tries to leave it.
#include "tests/security/escapes.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>

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

class EscapesTest : public testing::Test {
 protected:
  EscapesTest() {
    // Makes the operator's schema known to Op().
    EXPECT_NE(dlopen(LibraryPath().c_str(), RTLD_NOW), nullptr) << dlerror();
  }

  const Walls walls_{"{mode: process, executors: 3}",
                     /*workers=*/1,
                     /*more_attackers=*/0,
                     {.of_workers = absl::StrCat("operator_libraries: [{path: ",
                                                 LibraryPath(), "}]\n")}};
};

TEST_F(EscapesTest, EachIsRefusedLoggedAndCounted) {
  RawClient victim(walls_, "victim");
  RawClient attacker(walls_, "attacker");
  const pid_t other = walls_.PidAt(victim.address());
  ASSERT_GT(other, 0);
  const float refused = EPERM;
  for (int64_t escape = 0; escape <= static_cast<int64_t>(kLastEscape);
       ++escape) {
    EXPECT_EQ(attacker.Attack(AttemptOf(escape, other)),
              FloatBytes({refused, refused, refused, refused}))
        << "escape " << escape;
  }
  EXPECT_TRUE(victim.Works());
  EXPECT_TRUE(attacker.Works());
  const std::string log = walls_.log();
  EXPECT_THAT(log, testing::HasSubstr("msg=\"sandbox refused a system call\""));
  EXPECT_THAT(log, testing::HasSubstr("path=/etc/passwd"));
  EXPECT_TRUE(Eventually([&] {
    return ValueOf(walls_.Metrics(),
                   "djinn_worker_refused_system_calls_total") >
           static_cast<int>(kLastEscape);
  }));
}

TEST_F(EscapesTest, AProcessOfTooManyThreadsEndsAlone) {
  RawClient victim(walls_, "victim");
  RawClient attacker(walls_, "attacker");
  attacker.Send(
      Define(2, AttemptOf(static_cast<int64_t>(Escape::kManyThreads), 0)));
  attacker.Send(RunOf(2, 1, 1, 3));
  EXPECT_EQ(attacker.session().WaitLeaseEnd(), "THREAD_LIMIT");
  EXPECT_TRUE(victim.Works());
}

}  // namespace
}  // namespace djinn
