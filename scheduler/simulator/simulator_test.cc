#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <map>
#include <string>

#include "common/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/simulator/generator.h"
#include "scheduler/simulator/trace_file.h"

namespace djinn::scheduler {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SimulationResult Play(const Trace& trace,
                      absl::string_view policy = kDefaultPolicy) {
  absl::StatusOr<SimulationResult> result =
      Simulate(trace, **FindPolicy(policy));
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

WorkerFacts Worker(const std::string& id, uint64_t memory_bytes = 1000) {
  WorkerFacts facts;
  facts.id = id;
  facts.memory_bytes = memory_bytes;
  facts.speed = {1000, 1000, 0};
  facts.link_bytes_per_second = 100;
  return facts;
}

// Takes so many seconds on such a worker.
SimulatedJob Job(double arrival, size_t tenant, uint64_t seconds) {
  SimulatedJob job;
  job.arrival_seconds = arrival;
  job.tenant = tenant;
  job.work.cost.flops = seconds * 1000;
  return job;
}

SimulatedJob WithState(SimulatedJob job, const std::string& state,
                       uint64_t bytes) {
  job.state = state;
  job.state_bytes = bytes;
  return job;
}

TEST(SimulatorTest, EachPolicyWinsItsOwnMetric) {
  const absl::StatusOr<Trace> trace =
      ReadTrace(ConfigReader::FromFile("scheduler/simulator/mixed_trace.yaml"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  struct Metric {
    const char* winner;
    double SimulationResult::* value;
  };
  for (const Metric& metric :
       {Metric{"minimize_latency", &SimulationResult::mean_latency_seconds},
        Metric{"maximize_throughput", &SimulationResult::busy_seconds},
        Metric{"minimize_cost", &SimulationResult::cost},
        Metric{"load_balance", &SimulationResult::imbalance}}) {
    const SimulationResult best = Play(*trace, metric.winner);
    EXPECT_EQ(best.finished, trace->jobs.size());
    for (const char* other : {"minimize_latency", "maximize_throughput",
                              "minimize_cost", "load_balance"}) {
      if (std::string(other) == metric.winner) continue;
      EXPECT_LT(best.*metric.value, Play(*trace, other).*metric.value)
          << metric.winner << " beside " << other;
    }
  }
}

TEST(SimulatorTest, TheSameTraceGivesTheSameResult) {
  Trace trace = *ReadTrace(
      ConfigReader::FromFile("scheduler/simulator/mixed_trace.yaml"));
  const SimulationResult once = Play(trace);
  const SimulationResult again = Play(trace);
  EXPECT_EQ(once.workers, again.workers);
  EXPECT_EQ(once.mean_latency_seconds, again.mean_latency_seconds);
  ++trace.seed;
  EXPECT_NE(once.mean_latency_seconds, Play(trace).mean_latency_seconds);
}

TEST(SimulatorTest, StateMovesOnceAndWorkFollowsIt) {
  Trace trace;
  trace.workers = {Worker("a"), Worker("b")};
  trace.tenants = {{"red"}};
  for (int i = 0; i < 5; ++i) {
    trace.jobs.push_back(WithState(Job(20.0 * i, 0, 1), "model", 500));
  }
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.moved_bytes, 500u);
  EXPECT_THAT(result.workers, Each(result.workers[0]));
  // 5 s to fetch it, and 1 s for each.
  EXPECT_DOUBLE_EQ(result.busy_seconds, 10);
  EXPECT_DOUBLE_EQ(result.makespan_seconds, 81);
}

TEST(SimulatorTest, StateOfOneTenantIsNotAnothers) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}, {"blue"}};
  trace.jobs = {WithState(Job(0, 0, 1), "model", 400),
                WithState(Job(0, 1, 1), "model", 400)};
  EXPECT_EQ(Play(trace).moved_bytes, 800u);
}

TEST(SimulatorTest, WhatNoJobUsesGivesWayAndIsFetchedAgain) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  trace.jobs = {WithState(Job(0, 0, 1), "x", 600),
                WithState(Job(100, 0, 1), "y", 600),
                WithState(Job(200, 0, 1), "x", 600)};
  EXPECT_EQ(Play(trace).moved_bytes, 1800u);
}

TEST(SimulatorTest, AJobWaitsForMemoryThatIsInUse) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  trace.jobs = {WithState(Job(0, 0, 4), "x", 600),
                WithState(Job(1, 0, 4), "y", 600),
                WithState(Job(2, 0, 4), "z", 2000)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  // Larger than any worker.
  EXPECT_EQ(result.refused, 1u);
  EXPECT_THAT(result.workers, ElementsAre(0, 0, -1));
  // Each takes 6 s to fetch and 4 s to do; the second begins when the first
  // has ended, and was then waiting for 9 s.
  EXPECT_DOUBLE_EQ(result.makespan_seconds, 20);
  EXPECT_DOUBLE_EQ(result.mean_latency_seconds, (10 + 19) / 2.0);
}

// The queue of the worker is the real one.
TEST(SimulatorTest, TenantsShareAWorkerByWeight) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red", 3}, {"blue", 1}};
  for (int i = 0; i < 400; ++i) trace.jobs.push_back(Job(0, i % 2, 1));
  const SimulationResult all = Play(trace);
  EXPECT_THAT(all.device_seconds, ElementsAre(200, 200));
  // Red's 200 jobs are done when blue had a third of that: at about 267 s, at
  // 133 s on the average; blue's last at 400 s.
  EXPECT_NEAR(all.mean_latency_seconds, (133.5 + 266.5) / 2, 10);
  trace.tenants[0].weight = 1;
  EXPECT_NEAR(Play(trace).mean_latency_seconds, 200, 2);
}

// However many workers there are.
TEST(SimulatorTest, ADecisionLooksAtFewWorkers) {
  Trace trace;
  for (size_t w = 0; w < 10'000; ++w) {
    trace.workers.push_back(Worker("w" + std::to_string(w), 10'000));
  }
  Randomness random(3);
  for (size_t t = 0; t < 1000; ++t) {
    trace.tenants.push_back({"t" + std::to_string(t)});
  }
  // All are queued at once.
  for (size_t j = 0; j < 100'000; ++j) {
    trace.jobs.push_back(WithState(Job(0, Draw(&random, 1000), 1), "m", 500));
  }
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, trace.jobs.size());
  EXPECT_EQ(result.decisions, trace.jobs.size());
  EXPECT_LE(result.looked_at, result.decisions * (CandidateWalk::kMaxHolders +
                                                  PlacementOptions().draws));
}

TEST(SimulatorTest, ABadTraceIsRefused) {
  Trace trace;
  const auto refusal = [&] {
    const absl::Status status =
        Simulate(trace, **FindPolicy(kDefaultPolicy)).status();
    EXPECT_EQ(ErrorReason(status), "BAD_TRACE");
    return std::string(status.message());
  };
  EXPECT_EQ(refusal(), "there are no workers");
  trace.workers = {Worker("a"), Worker("a")};
  EXPECT_EQ(refusal(), "there are no tenants");
  trace.tenants = {{"red", 0}};
  EXPECT_EQ(refusal(), "worker a is there twice");
  trace.workers[1] = WorkerFacts{.id = "b"};
  EXPECT_EQ(refusal(), "worker b has no speed");
  trace.workers.pop_back();
  EXPECT_EQ(refusal(), "tenant red has no weight");
  trace.tenants[0].weight = 1;
  trace.jobs = {Job(2, 0, 1), Job(1, 0, 1)};
  EXPECT_EQ(refusal(), "jobs do not come in order of arrival");
  trace.jobs = {Job(2, 7, 1)};
  EXPECT_EQ(refusal(), "there is no tenant 7");
}

TEST(SimulatorTest, NoJobsAreNoTrouble) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  EXPECT_EQ(Play(trace).finished, 0u);
}

}  // namespace
}  // namespace djinn::scheduler
