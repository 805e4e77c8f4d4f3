#include "coordinator/ctl/run_explanation.h"

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

TEST(RunExplanationTest, RunsAreListed) {
  const auto runs = Parse<v1::ListRunsResponse>(R"pb(
    runs {
      run: "0:17"
      worker_id: "w0"
      record {
        number: 17
        fingerprint: "0123456789abcdef0123"
        state: COMPLETED
        age { seconds: 5 }
        waited { nanos: 12300 }
        served { nanos: 15600 }
        device_time { nanos: 15000 }
        gave_way_count: 2
        shared_products: 4
      }
    }
    runs {
      run: "0:18"
      worker_id: "w0"
      record {
        number: 18
        state: WAITING
        age { seconds: 2 }
        waited { seconds: 2 }
        device_time {}
      }
      gate { reason: "WAITS_FOR_TURN" }
    }
    more_waiting: 3
    silent_workers {
      worker_id: "w1"
      reason: "WORKER_SILENT"
      message: "worker w1 has not answered"
    }
  )pb");
  EXPECT_EQ(ShowRuns(runs),
            "RUN   WORKER  GRAPH             STATE      AGE   WAITED  SERVED  "
            "DEVICE-TIME  GAVE-WAY  SHARED  HELD BY\n"
            "0:17  w0      0123456789abcdef  COMPLETED  5.0s  12.3us  15.6us  "
            "15us         2         4       -\n"
            "0:18  w0      -                 WAITING    2.0s  2s      -       "
            "0            0         0       WAITS_FOR_TURN\n"
            "and 3 more that wait\n"
            "WORKER_SILENT: worker w1 has not answered\n");
}

TEST(RunExplanationTest, ARunThatStandsStillIsExplained) {
  const auto explanation = Parse<v1::RunExplanation>(R"pb(
    run {
      run: "0:17"
      session_id: "1a2b3c4d"
      tenant: "red"
      worker_id: "w0"
      record {
        number: 17
        lane: 1
        fingerprint: "0123456789abcdef0123"
        size: 24
        fast: true
        phase: PHASE_TRAINING
        state: IN_SERVICE
        age { seconds: 9 }
        waited { seconds: 4 }
        waits {
          gate: RUN_GATE_SESSION
          time { seconds: 1 }
        }
        waits {
          gate: RUN_GATE_OTHER_TENANTS
          time { seconds: 3 }
        }
        served { seconds: 5 }
        planned { nanos: 2000000 }
        device_time { seconds: 2 }
        deadline { seconds: 20 }
        gave_way_count: 3
        gave_way { seconds: 2 nanos: 500000000 }
        preemptions {
          tenant: "blue"
          session_id: "5e6f7a8b"
          reason: "higher_priority"
          count: 3
          time { seconds: 2 nanos: 500000000 }
        }
        shared_products: 1
        companions { tenant: "red" session_id: "2b3c4d5e" }
      }
      gate {
        reason: "GAVE_WAY"
        message: "it has stood still for 300ms: session 5e6f7a8b goes first"
        unblocked_by: "the end of that turn"
      }
    }
    device {
      lease_id: "beef"
      state: IN_USE
      decision {
        policy: "minimize_cost"
        policy_source: "tenant"
        worker_id: "w0"
        reason: "is cheapest"
        worker_count: 1
        looked_at: 1
        age { seconds: 12 }
      }
    }
  )pb");
  EXPECT_EQ(Explain(explanation),
            "run          1a2b3c4d/0:17\n"
            "tenant       red\n"
            "worker       w0\n"
            "graph        0123456789abcdef at size 24, fast\n"
            "phase        training\n"
            "lane         1\n"
            "state        IN_SERVICE\n"
            "received     9s ago\n"
            "waited       4s\n"
            "served       5s\n"
            "device time  2s\n"
            "planning     2ms\n"
            "deadline     20s after it was received\n"
            "gave way     3 times, for 2.5s in all\n"
            "shared       1 product, with 2b3c4d5e of tenant red\n"
            "held by      GAVE_WAY\n"
            "because      it has stood still for 300ms: session 5e6f7a8b goes "
            "first\n"
            "until        the end of that turn\n"
            "\n"
            "WAITED FOR                         TIME  SHARE\n"
            "turns of other tenants             3s    75.0%\n"
            "messages of its session before it  1s    25.0%\n"
            "\n"
            "WENT FIRST  TENANT  BY               COUNT  TIME\n"
            "5e6f7a8b    blue    higher_priority  3      2.5s\n"
            "\n"
            "virtual device 0: lease beef, IN_USE\n"
            "policy   minimize_cost, the tenant's\n"
            "asked    0B\n"
            "phase    -\n"
            "decided  12.0s ago, looking at 1 of 1 worker\n"
            "chosen   w0: is cheapest\n");
}

TEST(RunExplanationTest, AFailureNamesItsOperator) {
  const auto explanation = Parse<v1::RunExplanation>(R"pb(
    run {
      run: "2.1:5"
      session_id: "1a2b3c4d"
      record {
        state: FAILED
        waited { seconds: 1 }
        served { seconds: 1 }
        deadline { seconds: 1 nanos: 500000000 }
        failure {
          reason: "OPERATOR_FAILED"
          message: "no such index"
          operator_name: "aten::index"
          node: 7
        }
      }
    }
  )pb");
  const std::string text = Explain(explanation);
  EXPECT_NE(text.find("failure      OPERATOR_FAILED in aten::index, node 7: "
                      "no such index\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("deadline     1.5s after it was received: missed\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("WAITED FOR"), std::string::npos);
}

TEST(RunExplanationTest, NamesAreSessionAndRun) {
  const absl::StatusOr<v1::ExplainRunRequest> run = ParseRun("1a2b3c4d/0:17");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->session_id(), "1a2b3c4d");
  EXPECT_EQ(run->run(), "0:17");
  for (const char* const text : {"", "/", "1a2b3c4d", "1a2b3c4d/", "/0:17"}) {
    EXPECT_FALSE(ParseRun(text).ok()) << text;
  }
}

}  // namespace
}  // namespace djinn::ctl
