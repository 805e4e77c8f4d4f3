#include "coordinator/ctl/explanation.h"

#include "coordinator/ctl/parse_testing.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

constexpr char kSession[] = R"pb(
  session_id: "1a2b3c4d"
  tenant: "red"
  policy: "minimize_cost"
  policy_source: "tenant"
  devices {
    virtual_device: 0
    lease_id: "beef"
    state: IN_USE
    decision {
      policy: "minimize_cost"
      policy_source: "tenant"
      asked_bytes: 90900000
      phase: PHASE_LLM_DECODE
      worker_id: "w1"
      reason: "holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease"
      worker_count: 3
      looked_at: 3
      age { seconds: 12 }
      candidates {
        worker_id: "w1"
        holder: true
        score: 0.00125
        terms {
          queue_seconds: 0.001
          compute_seconds: 0.0125
          compute_factor: 1.5
          cost: 0.00125
          load: 0.31
        }
      }
      candidates {
        worker_id: "w0"
        score: 0.0103
        terms {
          missing_bytes: 90900000
          transfer_seconds: 0.0909
          link_bytes_per_second: 1e9
          link_measured: true
          compute_seconds: 0.0125
          compute_factor: 1.5
          cost: 0.0103
        }
      }
      candidates {
        worker_id: "w2"
        terms {
          missing_bytes: 90900000
          transfer_seconds: 0.0909
          link_bytes_per_second: 1000000000
        }
        dropped_by: "cordon"
        drop_reason: "is cordoned"
      }
    }
  }
  devices {
    virtual_device: 1
    gate {
      reason: "NO_CAPACITY"
      message: "no worker has the memory: asked 2.0 GB"
      unblocked_by: "1.0 GB more on w1"
    }
    waited { seconds: 3 }
    refused_in { seconds: 7 }
    decision {
      policy: "load_balance"
      policy_source: "request"
      asked_bytes: 2000000000
      worker_count: 1
      looked_at: 1
      age { nanos: 200000000 }
    }
  }
  devices {
    virtual_device: 4
    lease_id: "cafe"
    state: GRANTED
    yielded {
      count: 3
      time { seconds: 2 nanos: 500000000 }
      last_tenant: "blue"
      last_session_id: "5e6f7a8b"
      last_reason: "higher_priority"
      last_age { seconds: 40 }
    }
  }
)pb";

TEST(ExplanationTest, ASessionShowsItsDecisionsAndGates) {
  const auto explanation = Parse<v1::SessionExplanation>(kSession);
  EXPECT_EQ(
      Explain(explanation, v1::SessionInfo()),
      "session   1a2b3c4d\n"
      "tenant    red\n"
      "policy    minimize_cost, the tenant's\n"
      "priority  interactive, not declared: training counts as batch\n"
      "\n"
      "virtual device 0: lease beef, IN_USE\n"
      "policy   minimize_cost, the tenant's\n"
      "asked    90.9MB\n"
      "phase    llm_decode\n"
      "decided  12.0s ago, looking at 3 of 3 workers\n"
      "chosen   w1: holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease\n"
      "WORKER         SCORE    QUEUE   MISSING  TRANSFER  LINK              "
      "  COMPUTE  FACTOR  COST     LOAD  DROPPED\n"
      "w1 * (holder)  0.00125  0.001s  0B       0s        -                 "
      "  0.0125s  1.5     0.00125  0.31  -\n"
      "w0             0.0103   0s      90.9MB   0.0909s   1.0GB/s (measured) "
      " 0.0125s  1.5     0.0103   0     -\n"
      "w2             -        0s      90.9MB   0.0909s   1.0GB/s           "
      "  0s       0       0        0     cordon: is cordoned\n"
      "\n"
      "virtual device 1: no lease; waits for 3.0s, refused in 7.0s\n"
      "held by  NO_CAPACITY\n"
      "because  no worker has the memory: asked 2.0 GB\n"
      "until    1.0 GB more on w1\n"
      "policy   load_balance, the request's\n"
      "asked    2.0GB\n"
      "phase    -\n"
      "decided  0.2s ago, looking at 1 of 1 worker\n"
      "chosen   none\n"
      "\n"
      "virtual device 4: lease cafe, GRANTED\n"
      "runs yielded  3 times, for 2.5s in all; last 40.0s ago to session "
      "5e6f7a8b of tenant blue, by higher_priority\n"
      "the decision is not known here\n");
}

TEST(ExplanationTest, ADeviceShowsTheLeaseThatItLost) {
  const auto explanation = Parse<v1::SessionExplanation>(R"pb(
    session_id: "1a2b3c4d"
    devices {
      lease_id: "beef"
      state: IN_USE
      gate { reason: "WAITS_FOR_TURN" message: "it waits" unblocked_by: "time" }
      lost_lease {
        lease_id: "cafe"
        worker_id: "w0"
        reason: "QUOTA_RECLAIMED"
        for_tenant: "blue"
        lost { seconds: 12 }
        age { seconds: 41 }
      }
    }
    devices {
      virtual_device: 1
      lost_lease {
        lease_id: "babe"
        worker_id: "w1"
        reason: "WORKER_LOST"
        lost { nanos: 500000000 }
        age { seconds: 3 }
      }
    }
  )pb");
  const std::string text = Explain(explanation, v1::SessionInfo());
  EXPECT_EQ(text.substr(text.find("\nvirtual")),
            "\nvirtual device 0: lease beef, IN_USE\n"
            "held by  WAITS_FOR_TURN\n"
            "because  it waits\n"
            "until    time\n"
            "lost  lease cafe at w0, 41.0s ago, QUOTA_RECLAIMED for tenant "
            "blue; 12.0s of device time\n"
            "the decision is not known here\n"
            "\nvirtual device 1: no lease\n"
            "lost  lease babe at w1, 3.0s ago, WORKER_LOST; 0.5s of device "
            "time\n"
            "the decision is not known here\n");
}

TEST(ExplanationTest, ATenantIsShownBesideItsPeers) {
  const auto explanation = Parse<v1::TenantExplanation>(R"pb(
    tenant: "red"
    policy: "minimize_latency"
    policy_source: "cluster"
    held {
      session_id: "1a2b3c4d"
      virtual_device: 2
      gate { reason: "OUT_OF_CREDIT" unblocked_by: "more credits" }
    }
    standings {
      tenant: "blue"
      session_count: 1
      lease_count: 1
      used {
        device_time { seconds: 30 }
        bytes: 1000
      }
      device_time_share: 0.75
      weight: 1
      fair_share: 0.25
    }
    standings {
      tenant: "red"
      session_count: 2
      lease_count: 1
      waiting_count: 1
      used { device_time { seconds: 10 } }
      device_time_share: 0.25
      weight: 3
      fair_share: 0.75
    }
  )pb");
  EXPECT_EQ(Explain(explanation),
            "tenant        red\n"
            "policy        minimize_latency, the cluster's\n"
            "held devices  1\n"
            "\n"
            "SESSION   DEVICE  HELD BY        UNTIL\n"
            "1a2b3c4d  2       OUT_OF_CREDIT  more credits\n"
            "\n"
            "TENANT  SESSIONS  LEASES  WAITING  WEIGHT  FAIR   DEVICE-TIME  "
            "SHARE  BYTES\n"
            "blue    1         1       0        1       25.0%  30.0s        "
            "75.0%  1.0kB\n"
            "red *   2         1       1        3       75.0%  10.0s        "
            "25.0%  0B\n");
}

TEST(ExplanationTest, ASessionSaysWhatItsModelsHave) {
  const auto explanation = Parse<v1::SessionExplanation>(R"pb(
    session_id: "1a2b3c4d"
    tenant: "red"
    policy: "load_balance"
    policy_source: "session"
  )pb");
  const auto session = Parse<v1::SessionInfo>(R"pb(
    urgency { priority_class: PRIORITY_CLASS_BATCH }
    use {
      model_count: 1
      model_bytes: 3000
      refused_models: 2
      models { name: "Net" size_bytes: 3000 }
    }
  )pb");
  EXPECT_EQ(Explain(explanation, session),
            "session   1a2b3c4d\n"
            "tenant    red\n"
            "policy    load_balance, the session's\n"
            "priority  batch\n"
            "models    1 model, 3.0kB: Net 3.0kB; refused 2 times\n");
}

TEST(ExplanationTest, ADryRunSaysWhatWouldUnblockIt) {
  const auto response = Parse<v1::TryPlacementResponse>(R"pb(
    decision {
      policy: "minimize_latency"
      policy_source: "cluster"
      asked_bytes: 5
    }
    gate {
      reason: "NO_WORKER"
      message: "no worker can be reached"
      unblocked_by: "a worker that joins"
    }
  )pb");
  EXPECT_EQ(Explain(response),
            "held by  NO_WORKER\n"
            "because  no worker can be reached\n"
            "until    a worker that joins\n"
            "policy   minimize_latency, the cluster's\n"
            "asked    5B\n"
            "phase    -\n"
            "decided  0.0s ago, looking at 0 of 0 workers\n"
            "chosen   none\n");
}

TEST(ExplanationTest, ADeviceShowsItsStagesAndWhatMovesBetweenThem) {
  auto explanation = Parse<v1::SessionExplanation>(R"pb(
    devices {
      stages {
        fingerprint: "0dd594340efa0000"
        alone_seconds: 0.002
        stages {
          worker_id: "w0"
          node_count: 4
          weight_bytes: 4096
          compute_seconds: 0.001
        }
        stages {
          member: 2
          worker_id: "w2"
          node_count: 5
          weight_bytes: 4096
          input_bytes: 2400
          compute_seconds: 0.0008
          transfer_seconds: 0.0002
        }
        transfers {
          to_member: 2
          slot: 7
          size_bytes: 2400
          seconds: 0.0002
          remaining_seconds: 0.0008
        }
      }
    }
  )pb");
  const std::string text = Explain(explanation, v1::SessionInfo());
  EXPECT_NE(text.find("1      w2      5      4.1kB  2.4kB  0.0008s  0.0002s\n"
                      "MOVES   FROM  TO  BYTES  TRANSFER  REMAINING\n"
                      "slot 7  w0    w2  2.4kB  0.0002s   0.0008s\n"),
            std::string::npos)
      << text;
  v1::StagePlan* const plan = explanation.mutable_devices(0)->mutable_stages();
  for (int i = 0; i < 6; ++i) *plan->add_transfers() = plan->transfers(0);
  EXPECT_NE(Explain(explanation, v1::SessionInfo()).find("\nand 2 more\n"),
            std::string::npos);
}

TEST(ExplanationTest, ADeviceShowsHowABatchIsShared) {
  const auto explanation = Parse<v1::SessionExplanation>(R"pb(
    devices {
      batch {
        fingerprint: "0dd594340efa0000"
        rows: 64
        weight_bytes: 4096
        alone_seconds: 0.002
        stage_seconds: 0.0015
        parts { worker_id: "w0" rows: 40 compute_seconds: 0.00125 }
        parts {
          worker_id: "w1"
          rows: 24
          input_bytes: 2400
          output_bytes: 240
          compute_seconds: 0.00075
          transfer_seconds: 0.0005
        }
      }
    }
    devices {
      virtual_device: 1
      batch { fingerprint: "0dd594340efa0000" problem: "it draws" }
    }
    devices {
      virtual_device: 2
      batch {
        fingerprint: "0dd594340efa0000"
        rows: 64
        weight_bytes: 4096
        alone_seconds: 0.002
        stage_seconds: 0.0012
        parts { rows: 32 compute_seconds: 0.0009 transfer_seconds: 0.0001 }
        parts { rows: 32 compute_seconds: 0.0009 transfer_seconds: 0.0001 }
      }
    }
  )pb");
  const std::string text = Explain(explanation, v1::SessionInfo());
  EXPECT_NE(text.find("batch of graph 0dd594340efa, 64 rows, 4.1kB of "
                      "weights on each; 0.002s on its first worker alone, "
                      "0.0015s in stages\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1     w1      24    2.4kB  240B   0.00075s  0.0005s"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("whole: it draws"), std::string::npos) << text;
  EXPECT_NE(text.find("64 rows, 4.1kB of weights in all; 0.002s on its first "
                      "worker alone, 0.0012s in micro-batches\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1     all stages  32    -      -      0.0009s  0.0001s"),
            std::string::npos)
      << text;
}

TEST(ExplanationTest, ATenantShowsThatItsQueueIsStopped) {
  auto explanation = Parse<v1::TenantExplanation>(R"pb(tenant: "red")pb");
  EXPECT_EQ(Explain(explanation).find("queue"), std::string::npos);
  explanation.mutable_queue_stop()->mutable_stop_time()->set_seconds(43200);
  EXPECT_NE(
      Explain(explanation)
          .find("queue         stopped since 1970-01-01T12:00:00+00:00: no "
                "new leases\n"),
      std::string::npos);
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
        yield_count: 2
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
            "DEVICE-TIME  YIELDED  SHARED  HELD BY\n"
            "0:17  w0      0123456789abcdef  COMPLETED  5.0s  12.3us  15.6us  "
            "15us         2        4       -\n"
            "0:18  w0      -                 WAITING    2.0s  2s      -       "
            "0            0        0       WAITS_FOR_TURN\n"
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
        yield_count: 3
        yielded_for { seconds: 2 nanos: 500000000 }
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
        reason: "YIELDED"
        message: "it has been preempted for 300ms by session 5e6f7a8b"
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
            "yielded      3 times, for 2.5s in all\n"
            "shared       1 product, with 2b3c4d5e of tenant red\n"
            "held by      YIELDED\n"
            "because      it has been preempted for 300ms by session "
            "5e6f7a8b\n"
            "until        the end of that turn\n"
            "\n"
            "WAITED FOR                         TIME  SHARE\n"
            "turns of other tenants             3s    75.0%\n"
            "messages of its session before it  1s    25.0%\n"
            "\n"
            "PREEMPTED BY  TENANT  REASON           COUNT  TIME\n"
            "5e6f7a8b      blue    higher_priority  3      2.5s\n"
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
