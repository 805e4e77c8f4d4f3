#include "scheduler/simulator/trace_file.h"

#include <limits>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/simulator/generator.h"

namespace djinn::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kTrace[] = R"(
seed: 3
noise: 0.5
workers:
  - name: gpu
    count: 2
    device: cuda
    memory: 80GB
    flops_per_second: 1e14
    bytes_per_second: 2e12
    seconds_per_call: 1e-5
    price_per_hour: 3.6
    link_bandwidth: 10GB
    phases: [llm_decode, training]
    capabilities: [big]
  - {name: cpu, memory: 1GB, flops_per_second: 1e11, bytes_per_second: 1e10}
tenants:
  - name: red
  - name: blue
    weight: 3
    priority: realtime
    run_deadline: 0.5
    limits: {memory: 20GB}
    cohort: lab/vision
    quota:
      memory_bytes: {nominalQuota: 64GB, borrowingLimit: 1GB, lendingLimit: 32GB}
      device_seconds_per_second: {nominalQuota: 2.5}
cohorts:
  - name: lab/vision
    weight: 2
    quota:
      memory_bytes: {nominalQuota: 16GB, borrowingLimit: 0}
      device_seconds_per_second: {lendingLimit: 1}
reclaim_spares_for: 3
reclaim_loss_limit: 60
jobs:
  - {at: 2.5, tenant: blue, state: llama, state_size: 16GB, phase: llm_decode,
     class: matmul, flops: 1e13, bytes: 2e10, calls: 400}
  - {tenant: red}
streams:
  - count: 50
    start: 1
    every: 0.1
    states: 4
    job: {tenant: red, state: net, flops: 5}
  - count: 2
    start: 9
    job: {tenant: blue, priority: batch, run_deadline: 2}
)";

TEST(TraceFileTest, ReadsAllThatItSays) {
  const absl::StatusOr<Trace> trace =
      ReadTrace(ConfigReader::FromText(kTrace, "t.yaml"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->seed, 3u);
  EXPECT_EQ(trace->noise, 0.5);
  ASSERT_THAT(trace->workers, SizeIs(3));
  const WorkerFacts& gpu = trace->workers[1];
  EXPECT_EQ(gpu.id, "gpu1");
  EXPECT_EQ(gpu.memory_bytes, 80'000'000'000u);
  EXPECT_EQ(gpu.speed.flops_per_second, 1e14);
  EXPECT_DOUBLE_EQ(gpu.price_per_second, 1e-3);
  EXPECT_EQ(gpu.link_bytes_per_second, 1e10);
  EXPECT_EQ(gpu.phases, 1u << 3 | 1u << 7);
  EXPECT_EQ(trace->workers[2].id, "cpu");
  EXPECT_EQ(trace->workers[2].phases, 0u);
  EXPECT_EQ(trace->tenants[1].weight, 3);
  EXPECT_EQ(trace->tenants[0].limit_bytes, std::nullopt);
  EXPECT_FALSE(trace->tenants[0].quotas[0].limited());
  EXPECT_EQ(trace->tenants[0].device_rate, std::nullopt);
  const SimulatedTenant& blue = trace->tenants[1];
  EXPECT_EQ(blue.limit_bytes, 20'000'000'000u);
  EXPECT_EQ(blue.cohort, "lab/vision");
  EXPECT_EQ(blue.quotas[0], (Quota{.nominal = 64'000'000'000,
                                   .borrowing_limit = 1'000'000'000,
                                   .lending_limit = 32'000'000'000}));
  EXPECT_EQ(blue.device_rate, (RateQuota{.nominal = 2.5}));
  ASSERT_THAT(trace->cohorts, SizeIs(1));
  EXPECT_EQ(trace->cohorts[0].name, "lab/vision");
  EXPECT_EQ(trace->cohorts[0].weight, 2);
  EXPECT_EQ(trace->cohorts[0].quotas[0],
            (Quota{.nominal = 16'000'000'000, .borrowing_limit = 0}));
  EXPECT_EQ(trace->cohorts[0].device_rate,
            (RateQuota{.nominal = 0, .lending_limit = 1}));
  EXPECT_EQ(trace->reclaim_spares_for_seconds, 3);
  EXPECT_EQ(trace->reclaim_loss_limit_seconds, 60);
  ASSERT_THAT(trace->jobs, SizeIs(54));
  EXPECT_EQ(trace->jobs[0].arrival_seconds, 0);
  EXPECT_EQ(trace->jobs[1].arrival_seconds, 1);
  for (const SimulatedJob& job : trace->jobs) {
    if (job.tenant == 0) {
      EXPECT_EQ(job.priority, std::nullopt);
      EXPECT_EQ(job.run_deadline_seconds,
                std::numeric_limits<double>::infinity());
      continue;
    }
    if (job.arrival_seconds >= 9) {
      EXPECT_EQ(job.priority, JobClass::kBatch);
      EXPECT_EQ(job.run_deadline_seconds, 2);
      continue;
    }
    EXPECT_EQ(job.priority, JobClass::kRealtime);
    EXPECT_EQ(job.run_deadline_seconds, 0.5);
    EXPECT_EQ(job.arrival_seconds, 2.5);
    EXPECT_EQ(job.state, "llama");
    EXPECT_EQ(job.work.cost.flops, 10'000'000'000'000u);
    EXPECT_EQ(job.work.phase, semantics::Phase::kLlmDecode);
    EXPECT_EQ(job.work.op_class, semantics::OpClass::kMatmul);
  }
}

TEST(TraceFileTest, SaysEverythingThatIsWrong) {
  const absl::Status status =
      ReadTrace(ConfigReader::FromText(
                    "workers: [{name: a, memory: 1GB, phases: [sleeping]}]\n"
                    "tenants: [{name: red}, {name: green, cohort: /, quota: "
                    "{memory_bytes: {lendingLimit: 1GB}, "
                    "outstanding_messages: {nominalQuota: 1}}}]\n"
                    "cohorts: [{name: lab, quota: {device_seconds_per_second: "
                    "{borrowingLimit: 1}}}]\n"
                    "jobs: [{tenant: blue, class: magic, state_size: 1GB, "
                    "priority: high, run_deadline: 0}]\n"
                    "streams: [{count: 0, job: {tenant: red}}]\n"
                    "colour: red\n",
                    "t.yaml"))
          .status();
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("workers[0].flops_per_second: is required"),
            HasSubstr("there is no phase \"sleeping\""),
            HasSubstr("jobs[0].tenant: there is no tenant \"blue\""),
            HasSubstr("there is no class of operators \"magic\""),
            HasSubstr("jobs[0].priority: there is no class \"high\""),
            HasSubstr("jobs[0].run_deadline: must be more than 0"),
            HasSubstr("jobs[0].state_size: there is no state beside it"),
            HasSubstr("tenants[1].cohort: expected names with a / between"),
            HasSubstr("tenants[1].quota.memory_bytes.nominalQuota: is missing"),
            HasSubstr("tenants[1].quota.outstanding_messages"),
            HasSubstr("cohorts[0].quota.device_seconds_per_second."
                      "borrowingLimit: there is no cohort around it"),
            HasSubstr("streams[0].count: expected 1 to"), HasSubstr("colour")));
}

TEST(TraceFileTest, JsonWillDo) {
  const absl::StatusOr<Trace> trace = ReadTrace(ConfigReader::FromText(
      R"({"workers": [{"name": "a", "flops_per_second": 1, "bytes_per_second": 1}],
          "tenants": [{"name": "red"}], "jobs": [{"at": 1, "tenant": "red"}]})",
      "t.json"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->jobs, SizeIs(1));
}

TEST(GeneratorTest, ArrivalsAreAsOftenAsAskedAndStatesAsPopular) {
  Randomness random(5);
  Stream stream;
  stream.count = 20'000;
  stream.every_seconds = 0.5;
  stream.job.state = "m";
  stream.states = 3;
  stream.spread = 1;
  stream.job.work.cost.flops = 1000;
  const std::vector<SimulatedJob> jobs = Generate(stream, &random);
  EXPECT_NEAR(jobs.back().arrival_seconds, 10'000, 300);
  size_t first = 0;
  for (const SimulatedJob& job : jobs) {
    first += job.state == "m0";
    EXPECT_GE(job.work.cost.flops, 500u);
    EXPECT_LE(job.work.cost.flops, 2000u);
  }
  // The first of three states has 1 of 1 + 1/2 + 1/3.
  EXPECT_NEAR(static_cast<double>(first) / 20'000, 6.0 / 11, 0.02);
}

}  // namespace
}  // namespace djinn::scheduler
