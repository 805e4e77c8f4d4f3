#include "coordinator/ctl/simulation.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

// Returns the results of the simulation as JSON.
Json Simulated(const scheduler::Trace& trace, const std::string& policy,
               bool preemption = true) {
  const auto text = ShowSimulation(trace, policy, preemption, /*json=*/true);
  EXPECT_TRUE(text.ok()) << text.status();
  return Json::parse(text.value_or("[]"));
}

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
  EXPECT_EQ(
      *text,
      "POLICY        FINISHED  REFUSED  LATENCY  P99     INTERACTIVE  "
      "MAKESPAN  BUSY    COST  IMBALANCE  MOVED  YIELDED\n"
      "load_balance  2         0        3.000s   2.000s  2.000s       "
      "4.000s    4.000s  8     0.000      0B     0\n"
      "\n"
      "POLICY        CLASS        JOBS  FINISHED  UNPLACED  LATE  P50     "
      "P99     IN TIME\n"
      "load_balance  interactive  2     2         0         0     2.000s  "
      "2.000s  -\n");
}

TEST(SimulationTest, WithoutANameAllPoliciesPlay) {
  std::vector<std::string> policies;
  for (const Json& result : Simulated(TwoJobs(), "")) {
    policies.push_back(result["policy"]);
    EXPECT_EQ(result["finished"], 2);
    EXPECT_EQ(result["refused"], 0);
    EXPECT_EQ(result["mean_latency_seconds"], 3);
  }
  EXPECT_THAT(policies,
              UnorderedElementsAre("load_balance", "maximize_throughput",
                                   "minimize_cost", "minimize_latency"));
}

TEST(SimulationTest, TrainingYieldsUnlessItShallNot) {
  scheduler::Trace trace = TwoJobs();
  trace.jobs[0].work.phase = semantics::Phase::kTraining;
  trace.jobs[0].work.calls = 4;
  const Json with = Simulated(trace, "load_balance")[0];
  EXPECT_EQ(with["interactive_p99_seconds"], 2.5);
  EXPECT_EQ(with["preemptions"], 1);
  const Json without = Simulated(trace, "load_balance", false)[0];
  EXPECT_EQ(without["interactive_p99_seconds"], 4);
  EXPECT_EQ(without["preemptions"], 0);
}

TEST(SimulationTest, EachClassHasItsOwnFigures) {
  scheduler::Trace trace = TwoJobs();
  trace.jobs[0].priority = scheduler::JobClass::kRealtime;
  trace.jobs[0].run_deadline_seconds = 2;
  trace.jobs[1].priority = scheduler::JobClass::kBatch;
  const auto text = ShowSimulation(trace, "load_balance", true, false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text,
              HasSubstr("load_balance  realtime  1     1         0         0   "
                        "  2.000s  2.000s  100.0%\n"
                        "load_balance  batch     1     1         0         0   "
                        "  4.000s  4.000s  -\n"));
  const Json result = Simulated(trace, "load_balance")[0];
  EXPECT_EQ(result["reservations"], 0);
  ASSERT_EQ(result["classes"].size(), 2u);
  EXPECT_EQ(result["classes"][0], (Json{{"class", "realtime"},
                                        {"jobs", 1},
                                        {"finished", 1},
                                        {"unplaced", 0},
                                        {"late", 0},
                                        {"p50_latency_seconds", 2.0},
                                        {"p99_latency_seconds", 2.0},
                                        {"deadlines", 1},
                                        {"attained", 1}}));
  EXPECT_EQ(result["classes"][1]["class"], "batch");
}

TEST(SimulationTest, WhereThereAreQuotasTenantsHaveATable) {
  scheduler::Trace trace = TwoJobs();
  trace.tenants = {{"red"}, {"\"blue\""}};
  for (scheduler::SimulatedTenant& tenant : trace.tenants) {
    tenant.cohort = "lab";
    tenant.limit_bytes = 1000;
    tenant.quotas[0].nominal = 1000;
  }
  // The first tenant borrows for as long as its first job takes.
  const auto text = ShowSimulation(trace, "load_balance", true, false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(
      *text,
      HasSubstr(
          "\n\n"
          "POLICY        TENANT  JOBS  REFUSED  WAITED  WAIT  BORROWED  "
          "LENT  RECLAIMED  LOST  NO CREDIT  TIME BORROWED  TIME LENT\n"
          "load_balance  red     2     0        0       0.0s  500B      "
          "0B    0          0.0s  0.0s       0.0s           0.0s\n"
          "load_balance  \"blue\"  0     0        0       0.0s  0B        "
          "500B  0          0.0s  0.0s       0.0s           0.0s\n"));
  const Json result = Simulated(trace, "load_balance")[0]["tenants"];
  ASSERT_EQ(result.size(), 2u);
  EXPECT_EQ(result[0]["tenant"], "red");
  EXPECT_EQ(result[0]["jobs"], 2);
  EXPECT_EQ(result[0]["borrowed_byte_seconds"], 2000);
  EXPECT_EQ(result[0]["lent_byte_seconds"], 0);
  EXPECT_EQ(result[1]["tenant"], "\"blue\"");
  EXPECT_EQ(result[1]["jobs"], 0);
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
