#include "coordinator/ctl/lineage.h"

#include <string>

#include "coordinator/ctl/parse_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;

v1::SessionLineage Lineage() {
  return Parse<v1::SessionLineage>(R"pb(
    session_id: "abcd"
    tenant: "red"
    devices {
      virtual_device: 0
      mode: "replay"
      nodes: 2
      bytes: 2000
      budget_bytes: 1000000
      value_count: 2
      lost_count: 1
      values {
        storage: 5
        version: 1
        size_bytes: 4
        fate: LOST
        why: "replay_memory was full"
      }
      values {
        storage: 7
        version: 3
        size_bytes: 400
        fate: REPLAYED
        why: "a run of 2 calls"
        messages: 2
        node: 2
      }
      graph { number: 1 text: "an \"upload\"" }
      graph { number: 2 text: "a run of 2 calls" operands: 1 }
    }
  )pb");
}

TEST(LineageTest, NamesAreParsed) {
  EXPECT_EQ(ParseLineage("session", "abcd")->session_id(), "abcd");
  EXPECT_EQ(ParseLineage("storage", "abcd/7")->storage(), 7u);
  for (const char* const name : {"abcd", "/7", "abcd/", "abcd/0", "abcd/x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLineage("storage", name).status()))
        << name;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(ParseLineage("session", "abcd/7").status()));
}

TEST(LineageTest, TableSaysWhatWouldHappenToEachValue) {
  const std::string text = ShowLineage(Lineage());
  EXPECT_THAT(text, HasSubstr("it goes on"));
  EXPECT_THAT(text, HasSubstr("2, 1 of them not kept"));
  EXPECT_THAT(text, HasSubstr("lost            -         replay_memory was"));
  EXPECT_THAT(text, HasSubstr("computed again  2         a run of 2 calls"));
}

TEST(LineageTest, SessionWithoutDevicesHasNoTable) {
  EXPECT_THAT(ShowLineage(v1::SessionLineage()),
              HasSubstr("it has used no virtual device"));
}

TEST(LineageTest, PictureLeadsFromMessagesToValues) {
  const std::string dot = LineageToDot(Lineage());
  EXPECT_THAT(dot, HasSubstr("d0n1 [label=\"an \\\"upload\\\"\""));
  EXPECT_THAT(dot, HasSubstr("d0n1 -> d0n2;"));
  EXPECT_THAT(dot, HasSubstr("d0n2 -> d0s7 [style=dashed];"));
  EXPECT_THAT(dot, HasSubstr("d0s5 [shape=ellipse"));
}

TEST(LineageTest, RecoveryNamesTheTermsOfItsTime) {
  EXPECT_EQ(
      DescribeRecovery(Parse<v1::RecoveryInfo>(R"pb(
        age { seconds: 3 }
        report {
          kind: WORKER_LOST
          from_worker_id: "w0"
          to_worker_id: "w1"
          cause { message: "Connection refused" }
          attempts: 1
          replayed_nodes: 7
          total_time { nanos: 300000000 }
          lease_time { nanos: 100000000 }
          connect_time { nanos: 50000000 }
          send_time { nanos: 50000000 }
          replay_time { nanos: 100000000 }
        }
      )pb")),
      "3.0s ago, worker lost, from w0 to w1, because Connection refused; 7 "
      "messages again, 0 values from checkpoints, 1 attempt, in 300ms (lease "
      "100ms, connect 50ms, send 50ms, replay 100ms)");
}

TEST(LineageTest, FailedRecoverySaysWhy) {
  EXPECT_EQ(DescribeRecovery(Parse<v1::RecoveryInfo>(R"pb(
              age { seconds: 3 }
              report {
                kind: WORKER_LOST
                from_worker_id: "w0"
                cause { reason: "WORKER_LOST" message: "gone" }
                failure { message: "no worker" }
                total_time { seconds: 30 }
              }
            )pb")),
            "3.0s ago, worker lost, from w0 to -, because WORKER_LOST: gone; "
            "it failed after 30s: no worker");
}

}  // namespace
}  // namespace djinn::ctl
