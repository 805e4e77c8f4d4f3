#include "coordinator/ctl/recording.h"

#include "common/config/config_reader.h"
#include "coordinator/ctl/parse_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/placement/policy.h"
#include "scheduler/simulator/simulator.h"
#include "scheduler/simulator/trace_file.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;

v1::WorkerInfo TestWorker(const std::string& id) {
  auto worker = Parse<v1::WorkerInfo>(R"pb(
    device: "cpu"
    memory_bytes: 1000000
    price_per_hour: 3.5
    link_bytes_per_second: 2000000
    phases: [ PHASE_LLM_DECODE, PHASE_FORWARD ]
    speed { flops_per_second: 1e9 bytes_per_second: 1e8 seconds_per_call: 1e-5 }
  )pb");
  worker.set_worker_id(id);
  return worker;
}

v1::RecordedJob TestJob() {
  return Parse<v1::RecordedJob>(R"pb(
    at { seconds: 2 nanos: 500000000 }
    tenant: "red"
    program: "chat"
    fingerprint: "0123456789abcdef"
    worker_id: "w0"
    runs: 3
    device_time { seconds: 4 }
    content_bytes: 5000
    phase: PHASE_LLM_DECODE
    op_class: "matmul"
    flops: 1e9
    bytes: 1e6
    calls: 100
  )pb");
}

scheduler::Trace Read(const std::string& text) {
  absl::StatusOr<scheduler::Trace> trace =
      scheduler::ReadTrace(ConfigReader::FromText(text, "trace"));
  EXPECT_TRUE(trace.ok()) << trace.status() << "\n" << text;
  return trace.ok() ? *std::move(trace) : scheduler::Trace();
}

TEST(RecordingTest, IsATraceThatTakesAsLongAsItDid) {
  auto red = Parse<v1::TenantInfo>(R"pb(tenant: "red" weight: 3)pb");
  const scheduler::Trace trace =
      Read(TraceOf({TestWorker("w0")}, {red}, {TestJob()}));
  ASSERT_EQ(trace.workers.size(), 1u);
  EXPECT_EQ(trace.workers[0].id, "w0");
  EXPECT_EQ(trace.workers[0].memory_bytes, 1000000u);
  EXPECT_EQ(trace.workers[0].link_bytes_per_second, 2e6);
  EXPECT_NEAR(trace.workers[0].price_per_second * 3600, 3.5, 1e-9);
  ASSERT_EQ(trace.tenants.size(), 1u);
  EXPECT_EQ(trace.tenants[0].weight, 3);
  ASSERT_EQ(trace.jobs.size(), 1u);
  const scheduler::SimulatedJob& job = trace.jobs[0];
  EXPECT_EQ(job.arrival_seconds, 2.5);
  EXPECT_EQ(job.state_bytes, 5000u);
  EXPECT_EQ(job.work.phase, semantics::Phase::kLlmDecode);
  EXPECT_EQ(job.work.op_class, semantics::OpClass::kMatmul);
  EXPECT_NEAR(scheduler::RooflineSeconds(job.work, trace.workers[0].speed), 4,
              0.01);
  const auto played =
      scheduler::Simulate(trace, **scheduler::FindPolicy("minimize_latency"));
  ASSERT_TRUE(played.ok()) << played.status();
  EXPECT_EQ(played->finished, 1u);
  // The time includes the transfer of its state.
  EXPECT_NEAR(played->busy_seconds, 4 + 5000 / 2e6, 0.01);
}

TEST(RecordingTest, AGraphOfWhichNothingIsKnownTakesItsTime) {
  v1::RecordedJob job = TestJob();
  job.clear_flops();
  job.clear_bytes();
  job.clear_calls();
  job.clear_phase();
  job.clear_op_class();
  const scheduler::Trace trace = Read(TraceOf({TestWorker("w0")}, {}, {job}));
  EXPECT_NEAR(
      scheduler::RooflineSeconds(trace.jobs[0].work, trace.workers[0].speed), 4,
      1e-6);
  EXPECT_EQ(trace.tenants[0].name, "red");
}

TEST(RecordingTest, NamesMayHoldAnything) {
  v1::RecordedJob job = TestJob();
  job.set_program("a\"b\\c: {\n\x01#");
  const scheduler::Trace trace = Read(TraceOf({TestWorker("w: 0")}, {}, {job}));
  EXPECT_EQ(trace.workers[0].id, "w: 0");
  EXPECT_TRUE(trace.jobs.empty());
  job.set_worker_id("w: 0");
  EXPECT_EQ(Read(TraceOf({TestWorker("w: 0")}, {}, {job})).jobs[0].state,
            "program a\"b\\c: {\n\x01#");
}

TEST(RecordingTest, JobsOfWorkersWithoutSpeedAreCounted) {
  v1::WorkerInfo worker = TestWorker("w0");
  worker.clear_speed();
  const std::string text =
      TraceOf({worker, TestWorker("w1")}, {}, {TestJob(), TestJob()});
  EXPECT_THAT(text, HasSubstr("# 2 jobs of workers whose speed is not known"));
  EXPECT_TRUE(Read(text).jobs.empty());
}

TEST(RecordingTest, AnEmptyOneIsOneToo) {
  EXPECT_TRUE(Read(TraceOf({TestWorker("w0")}, {}, {})).jobs.empty());
}

}  // namespace
}  // namespace djinn::ctl
