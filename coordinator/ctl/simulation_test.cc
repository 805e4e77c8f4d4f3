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
  const auto text = ShowSimulation(TwoJobs(), "load_balance", /*json=*/false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            "POLICY        FINISHED  REFUSED  LATENCY  P99     MAKESPAN  BUSY "
            "   COST  IMBALANCE  MOVED\n"
            "load_balance  2         0        3.000s   2.000s  4.000s    "
            "4.000s  8     0.000      0B\n");
}

TEST(SimulationTest, WithoutANameAllPoliciesPlay) {
  const auto text = ShowSimulation(TwoJobs(), "", /*json=*/true);
  ASSERT_TRUE(text.ok()) << text.status();
  for (const char* name : {"load_balance", "maximize_throughput",
                           "minimize_cost", "minimize_latency"}) {
    EXPECT_THAT(*text, HasSubstr(std::string("{\"policy\": \"") + name +
                                 "\", \"finished\": 2, \"refused\": 0, "
                                 "\"mean_latency_seconds\": 3,"));
  }
}

TEST(SimulationTest, ErrorsAreTheSimulators) {
  EXPECT_EQ(ErrorReason(ShowSimulation(TwoJobs(), "best", false).status()),
            "POLICY_UNKNOWN");
  EXPECT_EQ(ErrorReason(ShowSimulation({}, "", false).status()), "BAD_TRACE");
}

}  // namespace
}  // namespace djinn::ctl
