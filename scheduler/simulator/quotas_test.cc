// Tests the effect of quotas on a simulated trace.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/simulator/generator.h"
#include "scheduler/simulator/simulator.h"
#include "scheduler/simulator/trace_file.h"

namespace djinn::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kForever = std::numeric_limits<double>::infinity();

SimulationResult Play(const Trace& trace,
                      absl::string_view policy = kDefaultPolicy) {
  absl::StatusOr<SimulationResult> result =
      Simulate(trace, **FindPolicy(policy));
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

// Red and blue are in a cohort; each job takes 10 of the memory.
Trace Lab(int64_t red, int64_t blue) {
  Trace trace;
  WorkerFacts worker;
  worker.id = "a";
  worker.memory_bytes = 1000;
  worker.speed = {1000, 1000, 0};
  worker.link_bytes_per_second = 1e9;
  trace.workers = {worker};
  trace.lease_request_timeout_seconds = 100;
  trace.line_patience_seconds = 50;
  trace.tenants = {{"red"}, {"blue"}};
  for (SimulatedTenant& tenant : trace.tenants) {
    tenant.cohort = "lab";
    tenant.limit_bytes = 10;
  }
  trace.tenants[0].quotas[0].nominal = red;
  trace.tenants[1].quotas[0].nominal = blue;
  return trace;
}

// Makes a job that takes `seconds`.
SimulatedJob Job(double arrival, size_t tenant, double seconds) {
  SimulatedJob job;
  job.arrival_seconds = arrival;
  job.tenant = tenant;
  job.work.cost.flops = static_cast<uint64_t>(seconds * 1000);
  return job;
}

TEST(SimulatedQuotaTest, TenantsWithoutQuotasAreNotCounted) {
  Trace trace = Lab(Quota::kUnlimited, Quota::kUnlimited);
  trace.jobs = {Job(0, 0, 1)};
  EXPECT_THAT(Play(trace).tenants, IsEmpty());
}

TEST(SimulatedQuotaTest, JobBeyondEveryQuotaIsRefusedAtOnce) {
  Trace trace = Lab(4, 4);
  trace.jobs = {Job(0, 0, 1), Job(0, 1, 1)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 0u);
  EXPECT_EQ(result.refused, 2u);
  EXPECT_EQ(result.decisions, 0u);
  EXPECT_EQ(result.tenants[0].refused_by_quota, 1u);
  EXPECT_EQ(result.tenants[0].waited_for_quota, 0u);
  // The job is allowed with what the other tenant lends.
  trace = Lab(4, 6);
  trace.jobs = {Job(0, 0, 1)};
  EXPECT_EQ(Play(trace).finished, 1u);
}

TEST(SimulatedQuotaTest, BorrowedBytesAreLent) {
  Trace trace = Lab(10, 20);
  trace.jobs = {Job(0, 0, 2), Job(0, 0, 3)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  // The worker executes the jobs one after the other; both hold quota until
  // they end.
  EXPECT_NEAR(result.tenants[0].loans.borrowed_byte_seconds, 10 * 2, 1e-9);
  EXPECT_NEAR(result.tenants[1].loans.lent_byte_seconds, 10 * 2, 1e-9);
  EXPECT_EQ(result.tenants[1].loans.borrowed_byte_seconds, 0);
}

TEST(SimulatedQuotaTest, BeyondItAJobWaitsForOthers) {
  Trace trace = Lab(10, 10);
  trace.jobs = {Job(0, 1, 2), Job(0, 0, 3), Job(0.5, 0, 3)};
  SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 3u);
  // Red waits for what blue holds.
  EXPECT_EQ(result.tenants[0].waited_for_quota, 1u);
  EXPECT_NEAR(result.tenants[0].quota_wait_seconds, 1.5, 1e-9);
  EXPECT_NEAR(result.makespan_seconds, 8, 1e-9);
  EXPECT_EQ(result.tenants[0].refused_by_quota, 0u);
  // A job waits as long as a request may.
  trace.lease_request_timeout_seconds = 1;
  result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  EXPECT_EQ(result.tenants[0].refused_by_quota, 1u);
  EXPECT_EQ(result.tenants[0].jobs, 2u);
  EXPECT_EQ(result.tenants[0].finished, 1u);
  EXPECT_NEAR(result.tenants[0].quota_wait_seconds, 1, 1e-9);
}

// As in a coordinator, a request waits only for what others hold.
TEST(SimulatedQuotaTest, BesideItsOwnAJobIsRefused) {
  Trace trace = Lab(10, 0);
  trace.jobs = {Job(0, 0, 2), Job(0.5, 0, 3)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 1u);
  EXPECT_EQ(result.tenants[0].refused_by_quota, 1u);
  EXPECT_EQ(result.tenants[0].waited_for_quota, 0u);
}

// Green's quota is free at 10 s. Blue, which borrows less, gets it before red,
// which came first.
TEST(SimulatedQuotaTest, LesserShareIsServedFirst) {
  Trace trace = Lab(10, 20);
  SimulatedTenant green = trace.tenants[0];
  green.name = "green";
  green.quotas[0].nominal = 0;
  trace.tenants.push_back(green);
  WorkerFacts other = trace.workers[0];
  for (const char* id : {"b", "c", "d"}) {
    other.id = id;
    trace.workers.push_back(other);
  }
  // No tenant reclaims, because two tenants borrow all of it and own nothing.
  trace.tenants[1].quotas[0] = {.nominal = 0};
  trace.cohorts = {{.name = "lab"}};
  trace.cohorts[0].quotas[0].nominal = 20;
  trace.jobs = {Job(0, 0, 20), Job(0, 0, 20), Job(0, 2, 10), Job(1, 0, 5),
                Job(2, 1, 5)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 5u);
  // Red waits from 1 to 15, blue from 2 to 10.
  EXPECT_NEAR(result.tenants[0].quota_wait_seconds, 14, 1e-9);
  EXPECT_NEAR(result.tenants[1].quota_wait_seconds, 8, 1e-9);
}

TEST(SimulatedQuotaTest, ALenderTakesBackItsOwn) {
  Trace trace = Lab(0, 10);
  trace.jobs = {Job(0, 0, 50), Job(40, 1, 5)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  EXPECT_EQ(result.tenants[0].reclaimed, 1u);
  EXPECT_NEAR(result.tenants[0].lost_device_seconds, 40, 1e-9);
  // Red waits until blue is done, and begins again.
  EXPECT_NEAR(result.tenants[0].quota_wait_seconds, 5, 0.21);
  EXPECT_NEAR(result.makespan_seconds, 95, 0.21);
  EXPECT_NEAR(result.busy_seconds, 95, 1e-9);
  EXPECT_NEAR(result.device_seconds[0], 90, 1e-9);
  EXPECT_EQ(result.tenants[1].waited_for_quota, 0u);
  EXPECT_THAT(result.workers, ElementsAre(0, 0));
}

TEST(SimulatedQuotaTest, YoungJobIsSpared) {
  Trace trace = Lab(0, 20);
  WorkerFacts other = trace.workers[0];
  other.id = "b";
  trace.workers.push_back(other);
  // The younger job would lose less, but it is spared because it has had its
  // worker for less than 30 s.
  trace.jobs = {Job(0, 0, 60), Job(30, 0, 60), Job(40, 1, 5)};
  EXPECT_NEAR(Play(trace).tenants[0].lost_device_seconds, 40, 1e-9);
  trace.reclaim_spares_for_seconds = 5;
  EXPECT_NEAR(Play(trace).tenants[0].lost_device_seconds, 10, 1e-9);
}

TEST(SimulatedQuotaTest, LossesOfATenantAreLimited) {
  Trace trace = Lab(0, 20);
  WorkerFacts other = trace.workers[0];
  other.id = "b";
  trace.workers.push_back(other);
  trace.jobs = {Job(0, 0, 200), Job(0, 0, 200), Job(40, 1, 5), Job(60, 1, 5)};
  trace.reclaim_loss_limit_seconds = 50;
  const SimulationResult limited = Play(trace);
  // The first reclaim costs 40 s of device time. The second one waits until
  // that is a minute ago.
  EXPECT_EQ(limited.tenants[0].reclaimed, 2u);
  EXPECT_NEAR(limited.tenants[0].lost_device_seconds, 40 + 55, 1.3);
  EXPECT_NEAR(limited.tenants[1].quota_wait_seconds, 40, 1.3);
  trace.reclaim_loss_limit_seconds = 600;
  const SimulationResult free = Play(trace);
  EXPECT_EQ(free.tenants[1].quota_wait_seconds, 0);
}

// The quota suffices, but red holds the worker's memory.
TEST(SimulatedQuotaTest, RoomGoesWithIt) {
  Trace trace = Lab(0, 100);
  trace.workers[0].memory_bytes = 10;
  trace.jobs = {Job(0, 0, 50), Job(40, 1, 5)};
  for (SimulatedJob& job : trace.jobs) {
    job.state = "net";
    job.state_bytes = 8;
  }
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  EXPECT_EQ(result.tenants[0].reclaimed, 1u);
  // The job begins at the next tick.
  EXPECT_NEAR(result.makespan_seconds, 95.2, 0.3);
  // Without a cohort, no tenant may reclaim it.
  for (SimulatedTenant& tenant : trace.tenants) tenant.cohort.clear();
  trace.tenants[0].quotas[0].nominal = 10;
  EXPECT_EQ(Play(trace).tenants[0].reclaimed, 0u);
}

TEST(SimulatedQuotaTest, PreemptedRunCanLoseItsWorker) {
  Trace trace = Lab(0, 20);
  trace.tenants[0].limit_bytes = 5;
  SimulatedTenant green = trace.tenants[0];
  green.name = "green";
  green.cohort.clear();
  green.quotas = {};
  trace.tenants.push_back(green);
  trace.jobs = {Job(0, 0, 100), Job(35, 2, 10), Job(40, 1, 5), Job(40, 1, 5)};
  trace.jobs[0].work.phase = semantics::Phase::kTraining;
  trace.jobs[0].work.calls = 100;
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 4u);
  EXPECT_EQ(result.tenants[0].reclaimed, 1u);
  EXPECT_NEAR(result.tenants[0].lost_device_seconds, 36, 1e-9);
  EXPECT_NEAR(result.busy_seconds, 156, 1e-9);
}

// In the long run a tenant gets its rate, plus ten seconds' worth at once.
TEST(SimulatedQuotaTest, DeviceTimeHasARate) {
  Trace trace = Lab(Quota::kUnlimited, Quota::kUnlimited);
  trace.tenants[0].device_rate = {.nominal = 0.5};
  for (int i = 0; i < 100; ++i) trace.jobs.push_back(Job(0, 0, 1));
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 100u);
  EXPECT_NEAR(result.makespan_seconds, (100 - 5) / 0.5, 3);
  EXPECT_GT(result.tenants[0].credit_wait_seconds, 1000);
  EXPECT_EQ(result.tenants[0].loans.borrowed_device_seconds, 0);
}

TEST(SimulatedQuotaTest, DeviceTimeIsBorrowedAndGivenBack) {
  Trace trace = Lab(Quota::kUnlimited, Quota::kUnlimited);
  trace.tenants[0].device_rate = {.nominal = 0.5};
  trace.tenants[1].device_rate = {.nominal = 0.5};
  for (int i = 0; i < 100; ++i) trace.jobs.push_back(Job(0, 0, 1));
  const SimulationResult alone = Play(trace);
  EXPECT_NEAR(alone.makespan_seconds, 100, 3);
  EXPECT_GT(alone.tenants[0].loans.borrowed_device_seconds, 35);
  EXPECT_NEAR(alone.tenants[0].loans.borrowed_device_seconds,
              alone.tenants[1].loans.lent_device_seconds, 1e-6);
  // Blue wants its own rate from 20 s on.
  for (int i = 0; i < 100; ++i) trace.jobs.push_back(Job(20, 1, 1));
  const SimulationResult both = Play(trace);
  EXPECT_NEAR(both.device_seconds[0], 100, 1e-6);
  EXPECT_NEAR(both.makespan_seconds, 200, 5);
}

// A job that is refused for its deadline gives back its grant.
TEST(SimulatedQuotaTest, RefusedJobIsNotCharged) {
  Trace trace = Lab(Quota::kUnlimited, Quota::kUnlimited);
  trace.tenants[0].device_rate = {.nominal = 0.5};
  trace.jobs = {Job(0, 1, 5)};
  for (int i = 0; i < 50; ++i) {
    trace.jobs.push_back(Job(0, 0, 1));
    trace.jobs.back().run_deadline_seconds = 1;
  }
  trace.jobs.push_back(Job(6, 0, 1));
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  EXPECT_NEAR(result.makespan_seconds, 7, 0.2);
}

TEST(SimulatedQuotaTest, BadQuotasAreRefused) {
  Trace trace = Lab(10, 10);
  const auto refusal = [&] {
    const absl::Status status =
        Simulate(trace, **FindPolicy(kDefaultPolicy)).status();
    EXPECT_EQ(ErrorReason(status), "BAD_TRACE");
    return std::string(status.message());
  };
  trace.tenants[1].name = "red";
  EXPECT_EQ(refusal(), "tenant red is there twice");
  trace = Lab(10, 10);
  trace.cohorts = {{.name = "lab"}, {.name = "lab"}};
  EXPECT_EQ(refusal(), "cohort lab is there twice");
  trace.cohorts = {{.name = "lab", .weight = 0}};
  EXPECT_EQ(refusal(), "cohort lab has no weight");
  trace = Lab(10, 10);
  trace.jobs = {Job(0, 0, 1)};
  trace.jobs[0].state = "net";
  trace.jobs[0].state_bytes = 11;
  EXPECT_EQ(refusal(),
            "tenant red has a state of 11 bytes, beyond its limit of 10");
  trace = Lab(10, 10);
  trace.tenants[0].device_rate = {.nominal = 0.0001};
  EXPECT_EQ(refusal(),
            "tenant red can have 0.0001 device-seconds per second, and needs "
            "0.001 at least");
  trace = Lab(10, 10);
  trace.reclaim_loss_limit_seconds = 0;
  EXPECT_EQ(refusal(), "reclaim_loss_limit is less than a second");
  trace = Lab(10, 10);
  trace.reclaim_spares_for_seconds = -1;
  EXPECT_EQ(refusal(), "reclaim_spares_for is no time");
}

// Checks for random traces: every job ends once, lent and borrowed amounts are
// equal, lost work was done, and no tenant is refused its own quota.
TEST(SimulatedQuotaTest, QuotasHoldWhateverHappens) {
  size_t reclaimed = 0, refused = 0, waited = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Randomness random(seed);
    Trace trace = Lab(10 * static_cast<int64_t>(Draw(&random, 4)),
                      10 * static_cast<int64_t>(Draw(&random, 4)));
    SimulatedTenant green = trace.tenants[0];
    green.name = "green";
    // Enough for all that green asks for.
    green.quotas[0] = {.nominal = 10'000};
    green.quotas[0].lending_limit = 30;
    trace.tenants.push_back(green);
    if (Draw(&random, 2) == 0) trace.tenants[0].cohort = "lab/inner";
    if (Draw(&random, 3) == 0) {
      for (SimulatedTenant& tenant : trace.tenants) {
        tenant.device_rate = {.nominal = 0.5 * DrawUnit(&random) + 0.01};
      }
    }
    WorkerFacts other = trace.workers[0];
    other.id = "b";
    other.memory_bytes = 25;
    trace.workers[0].memory_bytes = 25;
    trace.workers.push_back(other);
    trace.lease_request_timeout_seconds = Draw(&random, 3) == 0 ? kForever : 20;
    trace.line_patience_seconds = 10;
    trace.reclaim_spares_for_seconds = 5;
    trace.reclaim_loss_limit_seconds = Draw(&random, 3) == 0 ? 10 : 1e6;
    double arrival = 0;
    for (int i = 0; i < 60; ++i) {
      arrival += 3 * DrawUnit(&random);
      SimulatedJob job = Job(arrival, Draw(&random, 3), 1 + Draw(&random, 9));
      job.work.calls = Draw(&random, 20);
      if (Draw(&random, 3) == 0) job.work.phase = semantics::Phase::kTraining;
      if (Draw(&random, 4) == 0) {
        job.run_deadline_seconds = 30 * DrawUnit(&random);
      }
      if (Draw(&random, 4) > 0) {
        job.state = "s" + std::to_string(Draw(&random, 3));
        job.state_bytes = 5 + static_cast<uint64_t>(job.state[1] - '0');
      }
      trace.jobs.push_back(job);
    }
    const SimulationResult result = Play(trace);
    ASSERT_EQ(result.finished + result.refused, trace.jobs.size());
    size_t late = 0, unplaced = 0;
    for (const auto& [job_class, of] : result.classes) {
      late += of.late;
      unplaced += of.unplaced;
    }
    EXPECT_EQ(result.refused, late + unplaced);
    double borrowed = 0, lent = 0, lost = 0, done = 0;
    size_t by_quota = 0;
    for (size_t i = 0; i < result.tenants.size(); ++i) {
      const TenantResult& of = result.tenants[i];
      borrowed += of.loans.borrowed_byte_seconds;
      lent += of.loans.lent_byte_seconds;
      lost += of.lost_device_seconds;
      done += result.device_seconds[i];
      by_quota += of.refused_by_quota;
      reclaimed += of.reclaimed;
      waited += of.waited_for_quota;
    }
    refused += by_quota;
    EXPECT_LE(by_quota, unplaced);
    EXPECT_EQ(result.tenants[2].refused_by_quota, 0u);
    EXPECT_NEAR(borrowed, lent, 1e-6 * (1 + borrowed));
    EXPECT_LE(lost, done);
    EXPECT_NEAR(result.busy_seconds, done, 1e-6);
    // Playing the trace again gives the same result.
    EXPECT_EQ(Play(trace).workers, result.workers);
  }
  std::printf("reclaimed %zu, refused %zu, waited %zu\n", reclaimed, refused,
              waited);
  EXPECT_GT(reclaimed, 150u);
  EXPECT_GT(refused, 300u);
  EXPECT_GT(waited, 1000u);
}

TEST(SimulatedQuotaTest, ALaboratoryLendsAndTakesBack) {
  const absl::StatusOr<Trace> trace =
      ReadTrace(ConfigReader::FromFile("scheduler/simulator/quota_trace.yaml"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const SimulationResult result = Play(*trace);
  for (size_t i = 0; i < result.tenants.size(); ++i) {
    const TenantResult& of = result.tenants[i];
    std::printf(
        "%s: %zu of %zu, refused %zu, waited %zu %.1f s, credit %.1f s, "
        "borrowed %.3g lent %.3g bytes, borrowed %.3g lent %.3g s, reclaimed "
        "%zu, lost %.1f s\n",
        trace->tenants[i].name.c_str(), of.finished, of.jobs,
        of.refused_by_quota, of.waited_for_quota, of.quota_wait_seconds,
        of.credit_wait_seconds, of.loans.borrowed_byte_seconds,
        of.loans.lent_byte_seconds, of.loans.borrowed_device_seconds,
        of.loans.lent_device_seconds, of.reclaimed, of.lost_device_seconds);
  }
  const TenantResult& chat = result.tenants[0];
  const TenantResult& research = result.tenants[1];
  EXPECT_EQ(chat.finished, chat.jobs);
  EXPECT_GT(research.loans.borrowed_byte_seconds, 0);
  EXPECT_GT(chat.loans.lent_byte_seconds, 0);
  EXPECT_GT(research.reclaimed, 0u);
  EXPECT_EQ(result.tenants[3].refused_by_quota, 3u);
}

}  // namespace
}  // namespace djinn::scheduler
