#include "coordinator/ctl/simulation.h"

#include "common/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;

scheduler::Trace TwoJobs() {
  scheduler::Trace trace;
  scheduler::WorkerFacts worker;
  worker.id = "a";
  worker.memory_bytes = 1000;
  worker.speed = {1000, 1000, 0};
  worker.price_per_second = 2;
  trace.workers = {worker};
  trace.tenants = {{"red"}};
  scheduler::SimulatedJob job;
  job.work.cost.flops = 2000;
  trace.jobs = {job, job};
  return trace;
}

TEST(SimulationTest, ATableHasALineForThePolicy) {
  const auto text =
      ShowSimulation(TwoJobs(), "load_balance", /*preemption=*/true,
                     /*json=*/false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            "POLICY        FINISHED  REFUSED  LATENCY  P99     INTERACTIVE  "
            "MAKESPAN  BUSY    COST  IMBALANCE  MOVED  GAVE WAY\n"
            "load_balance  2         0        3.000s   2.000s  2.000s       "
            "4.000s    4.000s  8     0.000      0B     0\n");
}

TEST(SimulationTest, WithoutANameAllPoliciesPlay) {
  const auto text =
      ShowSimulation(TwoJobs(), "", /*preemption=*/true, /*json=*/true);
  ASSERT_TRUE(text.ok()) << text.status();
  for (const char* name : {"load_balance", "maximize_throughput",
                           "minimize_cost", "minimize_latency"}) {
    EXPECT_THAT(*text, HasSubstr(std::string("{\"policy\": \"") + name +
                                 "\", \"finished\": 2, \"refused\": 0, "
                                 "\"mean_latency_seconds\": 3,"));
  }
}

TEST(SimulationTest, TrainingGivesWayUnlessItShallNot) {
  scheduler::Trace trace = TwoJobs();
  trace.jobs[0].work.phase = semantics::Phase::kTraining;
  trace.jobs[0].work.calls = 4;
  const auto with = ShowSimulation(trace, "load_balance", true, true);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_THAT(*with, HasSubstr("\"interactive_p99_seconds\": 2.5, "
                               "\"preemptions\": 1, "));
  const auto without = ShowSimulation(trace, "load_balance", false, true);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(*without, HasSubstr("\"interactive_p99_seconds\": 4, "
                                  "\"preemptions\": 0, "));
}

TEST(SimulationTest, ErrorsAreTheSimulators) {
  EXPECT_EQ(
      ErrorReason(ShowSimulation(TwoJobs(), "best", true, false).status()),
      "POLICY_UNKNOWN");
  EXPECT_EQ(ErrorReason(ShowSimulation({}, "", true, false).status()),
            "BAD_TRACE");
}

}  // namespace
}  // namespace djinn::ctl
