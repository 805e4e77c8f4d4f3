#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/fairness/preemption_rule.h"
#include "scheduler/simulator/generator.h"
#include "scheduler/simulator/trace_file.h"

namespace djinn::scheduler {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SimulationResult Play(const Trace& trace,
                      absl::string_view policy = kDefaultPolicy,
                      bool preemption = true) {
  absl::StatusOr<SimulationResult> result =
      Simulate(trace, **FindPolicy(policy), {.preemption = preemption});
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

// Makes a job that takes `seconds` on a worker of Worker().
SimulatedJob Job(double arrival, size_t tenant, uint64_t seconds) {
  SimulatedJob job;
  job.arrival_seconds = arrival;
  job.tenant = tenant;
  job.work.cost.flops = seconds * 1000;
  return job;
}

// Makes such a job that may yield between its calls.
SimulatedJob Training(double arrival, size_t tenant, uint64_t seconds,
                      uint64_t calls) {
  SimulatedJob job = Job(arrival, tenant, seconds);
  job.work.phase = semantics::Phase::kTraining;
  job.work.calls = calls;
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
  // Fetching the state takes 5 s, and each job 1 s.
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

TEST(SimulatorTest, UnusedStateIsEvictedAndFetchedAgain) {
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
  // The third state is larger than any worker.
  EXPECT_EQ(result.refused, 1u);
  EXPECT_THAT(result.workers, ElementsAre(0, 0, -1));
  // Each job takes 6 s to fetch its state and 4 s to execute. The second one
  // begins when the first has ended, after waiting for 9 s.
  EXPECT_DOUBLE_EQ(result.makespan_seconds, 20);
  EXPECT_DOUBLE_EQ(result.mean_latency_seconds, (10 + 19) / 2.0);
}

// Makes a large job beside small ones, of which enough always wait to fill the
// room.
Trace LargeBesideSmall() {
  Trace trace;
  trace.workers = {Worker("a"), Worker("b")};
  trace.tenants = {{"red"}, {"blue"}};
  trace.lease_request_timeout_seconds = 60;
  trace.line_patience_seconds = 10;
  for (int i = 0; i < 200; ++i) {
    trace.jobs.push_back(
        WithState(Job(i, 0, 1), "small" + std::to_string(i), 120));
  }
  trace.jobs.insert(trace.jobs.begin() + 20,
                    WithState(Job(19.5, 1, 1), "large", 1000));
  return trace;
}

TEST(SimulatorTest, AWorkerIsKeptForTheFirstInLine) {
  Trace trace = LargeBesideSmall();
  const SimulationResult kept = Play(trace);
  EXPECT_GE(kept.reservations, 1u);
  EXPECT_GE(kept.workers[20], 0);
  trace.line_patience_seconds = std::numeric_limits<double>::infinity();
  const SimulationResult starved = Play(trace);
  EXPECT_EQ(starved.reservations, 0u);
  EXPECT_EQ(starved.workers[20], -1);
}

TEST(SimulatorTest, JobWithoutRoomIsRefusedAfterTheTimeout) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  // Fetching takes 6 s, and executing the rest.
  trace.jobs = {WithState(Job(0, 0, 4), "x", 600),
                WithState(Job(0, 0, 4), "y", 600)};
  trace.lease_request_timeout_seconds = 9.5;
  EXPECT_EQ(Play(trace).refused, 1u);
  trace.lease_request_timeout_seconds = 10.5;
  EXPECT_EQ(Play(trace).refused, 0u);
  trace.lease_request_timeout_seconds = std::numeric_limits<double>::infinity();
  trace.jobs[0].work.cost.flops *= 100;
  EXPECT_EQ(Play(trace).refused, 0u);
}

// As in the coordinator's queue, a later request is served first because its
// tenant has had less.
TEST(SimulatorTest, TheLineIsInTurnsOfTenants) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}, {"blue"}};
  trace.lease_request_timeout_seconds = 100;
  trace.line_patience_seconds = 100;
  for (int i = 0; i < 4; ++i) {
    trace.jobs.push_back(
        WithState(Job(i, 0, 4), "red" + std::to_string(i), 600));
  }
  trace.jobs.push_back(WithState(Job(5, 1, 4), "blue", 600));
  // Each takes 10 s: red's first, then blue's, then red's others.
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 5u);
  EXPECT_NEAR(result.mean_latency_seconds,
              (10 + (20 - 5) + (30 - 1) + (40 - 2) + (50 - 3)) / 5.0, 1e-9);
}

// However long the queue is, every job in it is tried.
TEST(SimulatorTest, ALongLineIsTriedInTurn) {
  Trace trace;
  trace.workers = {Worker("a", 1000), Worker("b", 2000)};
  trace.tenants = {{"red"}};
  // Worker b is never free for those in front.
  trace.jobs = {WithState(Job(0, 0, 100), "x", 2000)};
  trace.jobs[0].state = "held";
  for (int i = 0; i < 600; ++i) {
    trace.jobs.push_back(WithState(Job(0, 0, 1), "x", 2000));
  }
  trace.jobs.push_back(WithState(Job(0, 0, 50), "y", 900));
  trace.jobs.push_back(WithState(Job(0, 0, 1), "z", 900));
  trace.lease_request_timeout_seconds = 70;
  trace.line_patience_seconds = 70;
  const SimulationResult result = Play(trace);
  // The last job has its turn once y is released, because each 0.2 s try 128 of
  // them.
  EXPECT_EQ(result.workers.back(), 0);
  EXPECT_EQ(result.refused, 600u);
}

SimulatedJob WithDeadline(SimulatedJob job, double seconds) {
  job.run_deadline_seconds = seconds;
  return job;
}

TEST(SimulatorTest, JobThatWouldBeLateIsRefusedOnceItsTimeIsKnown) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  // The first run of a program does not count; after the second, 2 s are
  // expected.
  trace.jobs = {WithDeadline(Job(0, 0, 2), 5), WithDeadline(Job(2, 0, 2), 5)};
  // Four jobs at once: the third would end 6 s after its arrival.
  for (int i = 0; i < 4; ++i) {
    trace.jobs.push_back(WithDeadline(Job(5, 0, 2), 5));
  }
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 4u);
  EXPECT_EQ(result.refused, 2u);
  EXPECT_THAT(result.workers, ElementsAre(0, 0, 0, 0, -1, -1));
  const ClassResult& of = result.classes.at(JobClass::kInteractive);
  EXPECT_EQ(of.jobs, 6u);
  EXPECT_EQ(of.finished, 4u);
  EXPECT_EQ(of.unplaced, 0u);
  EXPECT_EQ(of.late, 2u);
  EXPECT_EQ(of.deadlines, 6u);
  EXPECT_EQ(of.attained, 4u);
  EXPECT_DOUBLE_EQ(of.p50_latency_seconds, 2);
  EXPECT_NEAR(result.busy_seconds, 8, 1e-9);
  // A job of unknown length begins, and ends late.
  trace.jobs = {WithDeadline(Job(0, 0, 2), 1)};
  const SimulationResult unknown = Play(trace);
  EXPECT_EQ(unknown.finished, 1u);
  EXPECT_EQ(unknown.classes.at(JobClass::kInteractive).attained, 0u);
}

TEST(SimulatorTest, WhoseDeadlineIsOverIsNotBegun) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  trace.jobs = {Job(0, 0, 5), WithDeadline(Job(1, 0, 1), 3)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 1u);
  EXPECT_EQ(result.classes.at(JobClass::kInteractive).late, 1u);
  EXPECT_NEAR(result.makespan_seconds, 5, 1e-9);
}

// The worker does not count the time in the queue, but the attained deadlines
// do.
TEST(SimulatorTest, ADeadlineCountsFromWhereItIsAsked) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  trace.jobs = {WithState(Job(0, 0, 2), "x", 600),
                WithDeadline(WithState(Job(0, 0, 2), "y", 600), 9)};
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.finished, 2u);
  EXPECT_EQ(result.classes.at(JobClass::kInteractive).deadlines, 1u);
  EXPECT_EQ(result.classes.at(JobClass::kInteractive).attained, 0u);
}

TEST(SimulatorTest, ClassesAreDeclaredOrFollowFromTheWork) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  trace.jobs = {Training(0, 0, 10, 10), Job(0.5, 0, 1), Job(0.5, 0, 1),
                Training(0.5, 0, 1, 1)};
  trace.jobs[1].priority = JobClass::kBatch;
  trace.jobs[3].priority = JobClass::kRealtime;
  const SimulationResult result = Play(trace);
  ASSERT_EQ(result.classes.size(), 3u);
  EXPECT_EQ(result.classes.begin()->first, JobClass::kRealtime);
  EXPECT_EQ(result.classes.at(JobClass::kBatch).jobs, 2u);
  // Both jobs of higher classes preempt the training job. It executes one call
  // after each second that they compute.
  EXPECT_NEAR(result.classes.at(JobClass::kRealtime).p99_latency_seconds, 1.5,
              1e-9);
  EXPECT_NEAR(result.classes.at(JobClass::kInteractive).p99_latency_seconds,
              3.5, 1e-9);
  EXPECT_NEAR(result.interactive_p99_seconds, 1.5, 1e-9);
}

// Checks for random deadlines: every job ends once, and memory and queues are
// left empty.
TEST(SimulatorTest, RefusalsLoseNothing) {
  size_t late = 0, unplaced = 0, attained = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Randomness random(seed);
    Trace trace;
    trace.workers = {Worker("a"), Worker("b", 600)};
    trace.seed = seed;
    trace.noise = 0.5;
    trace.tenants = {{"red"}, {"blue", 2}};
    trace.lease_request_timeout_seconds = 8;
    trace.line_patience_seconds = 4;
    double arrival = 0;
    for (int i = 0; i < 150; ++i) {
      arrival += 2 * DrawUnit(&random);
      SimulatedJob job = Job(arrival, Draw(&random, 2), 1 + Draw(&random, 3));
      job.work.calls = Draw(&random, 20);
      if (Draw(&random, 3) == 0) job.work.phase = semantics::Phase::kTraining;
      if (Draw(&random, 2) == 0) {
        job.priority = static_cast<JobClass>(1 + Draw(&random, 3));
      }
      if (Draw(&random, 3) > 0) {
        job.run_deadline_seconds = 10 * DrawUnit(&random);
      }
      if (Draw(&random, 3) > 0) {
        job = WithState(job, "s" + std::to_string(Draw(&random, 5)),
                        100 + 50 * Draw(&random, 11));
      }
      trace.jobs.push_back(job);
    }
    // A state has one size.
    for (SimulatedJob& job : trace.jobs) {
      if (!job.state.empty()) {
        job.state_bytes = 100 + 150 * static_cast<uint64_t>(job.state[1] - '0');
      }
    }
    const SimulationResult result = Play(trace);
    size_t jobs = 0, finished = 0;
    for (const auto& [job_class, of] : result.classes) {
      EXPECT_EQ(of.finished + of.unplaced + of.late, of.jobs);
      EXPECT_LE(of.attained, of.deadlines);
      jobs += of.jobs;
      finished += of.finished;
      late += of.late;
      unplaced += of.unplaced;
      attained += of.attained;
    }
    EXPECT_EQ(jobs, trace.jobs.size());
    EXPECT_EQ(finished, result.finished);
    EXPECT_EQ(result.finished + result.refused, jobs);
    for (size_t job = 0; job < jobs; ++job) {
      if (std::isfinite(trace.jobs[job].run_deadline_seconds)) continue;
      EXPECT_TRUE(result.workers[job] >= 0 || !trace.jobs[job].state.empty());
    }
  }
  std::printf("attained %zu, late %zu, unplaced %zu\n", attained, late,
              unplaced);
  EXPECT_GT(late, 1000u);
  EXPECT_GT(unplaced, 100u);
  EXPECT_GT(attained, 1000u);
}

TEST(SimulatorTest, MoreIsInTimeWhereClassesAreDeclared) {
  const absl::StatusOr<Trace> trace = ReadTrace(
      ConfigReader::FromFile("scheduler/simulator/deadline_trace.yaml"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto attained = [](const Trace& trace) {
    size_t count = 0;
    for (const auto& [job_class, of] : Play(trace).classes) {
      count += of.attained;
    }
    return count;
  };
  Trace undeclared = *trace;
  for (SimulatedJob& job : undeclared.jobs) job.priority.reset();
  EXPECT_GT(10 * attained(*trace), 11 * attained(undeclared));
}

// The worker's queue is the real FairQueue.
TEST(SimulatorTest, TenantsShareAWorkerByWeight) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red", 3}, {"blue", 1}};
  for (int i = 0; i < 400; ++i) trace.jobs.push_back(Job(0, i % 2, 1));
  const SimulationResult all = Play(trace);
  EXPECT_THAT(all.device_seconds, ElementsAre(200, 200));
  // Red's 200 jobs are done when blue has had a third of that: at about 267 s,
  // or 133 s on average. Blue's last is done at 400 s.
  EXPECT_NEAR(all.mean_latency_seconds, (133.5 + 266.5) / 2, 10);
  trace.tenants[0].weight = 1;
  EXPECT_NEAR(Play(trace).mean_latency_seconds, 200, 2);
}

TEST(SimulatorTest, TrainingYieldsBetweenTwoCalls) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}, {"blue"}};
  trace.jobs = {Training(0, 0, 100, 100), Job(10.5, 1, 2)};
  const SimulationResult yields = Play(trace);
  EXPECT_EQ(yields.preemptions, 1u);
  // The interactive job begins at the next edge between calls, and ends at 13
  // s.
  EXPECT_NEAR(yields.interactive_p99_seconds, 2.5, 1e-9);
  EXPECT_NEAR(yields.makespan_seconds, 102, 1e-9);
  EXPECT_NEAR(yields.busy_seconds, 102, 1e-9);
  const SimulationResult waits = Play(trace, kDefaultPolicy, false);
  EXPECT_EQ(waits.preemptions, 0u);
  EXPECT_NEAR(waits.interactive_p99_seconds, 91.5, 1e-9);
  EXPECT_NEAR(waits.makespan_seconds, 102, 1e-9);
}

TEST(SimulatorTest, JobsYieldNeitherInACallNorToEquals) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}, {"blue"}};
  trace.jobs = {Training(0, 0, 100, 1), Job(10.5, 1, 2)};
  EXPECT_EQ(Play(trace).preemptions, 0u);
  trace.jobs = {Training(0, 0, 100, 100), Training(10.5, 1, 2, 2)};
  EXPECT_EQ(Play(trace).preemptions, 0u);
  trace.jobs = {Job(0, 0, 100), Job(10.5, 1, 2)};
  trace.jobs[0].work.calls = 100;
  EXPECT_EQ(Play(trace).preemptions, 0u);
}

// Two tenants have equal weight: neither gets more than half by preemption.
TEST(SimulatorTest, ATenantThatHasHadMoreWaits) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}, {"blue"}};
  trace.jobs = {Training(0, 0, 100, 1000)};
  for (int i = 0; i < 50; ++i) trace.jobs.push_back(Job(0, 1, 1));
  const SimulationResult result = Play(trace);
  // The training yields to one job for each second that it executes itself; the
  // last job ends at about 100 s.
  EXPECT_GE(result.preemptions, 45u);
  EXPECT_NEAR(result.interactive_p99_seconds, 98, 3);
  EXPECT_NEAR(result.makespan_seconds, 150, 1e-9);
}

TEST(SimulatorTest, ATurnYieldsSoOftenAndThenGoesToItsEnd) {
  Trace trace;
  trace.workers = {Worker("a")};
  trace.tenants = {{"red"}};
  trace.jobs = {Training(0, 0, 1000, 1000)};
  for (int i = 0; i < 200; ++i) trace.jobs.push_back(Job(1 + 3.0 * i, 0, 1));
  const SimulationResult result = Play(trace);
  EXPECT_EQ(result.preemptions, static_cast<uint64_t>(PreemptionRule::kMost));
  EXPECT_EQ(result.finished, trace.jobs.size());
  EXPECT_NEAR(result.makespan_seconds, 1200, 1e-6);
}

TEST(SimulatorTest, PreemptionServesUrgentJobsSooner) {
  const absl::StatusOr<Trace> trace = ReadTrace(
      ConfigReader::FromFile("scheduler/simulator/training_trace.yaml"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const SimulationResult with = Play(*trace);
  const SimulationResult without = Play(*trace, kDefaultPolicy, false);
  EXPECT_EQ(with.finished, trace->jobs.size());
  EXPECT_EQ(without.finished, trace->jobs.size());
  std::printf("interactive p99: %.3f s with preemption, %.3f s without\n",
              with.interactive_p99_seconds, without.interactive_p99_seconds);
  EXPECT_LT(with.interactive_p99_seconds, without.interactive_p99_seconds / 4);
}

// Checks for random arrivals: all jobs end, and a worker with work executes it.
TEST(SimulatorTest, PreemptionTerminatesAndLosesNothing) {
  uint64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Randomness random(seed);
    Trace trace;
    trace.workers = {Worker("a")};
    trace.seed = seed;
    trace.noise = 0.5;
    for (const char* name : {"red", "blue", "green"}) {
      trace.tenants.push_back(
          {name, 0.25 * static_cast<double>(1 + Draw(&random, 16))});
    }
    double arrival = 0;
    for (int i = 0; i < 100; ++i) {
      arrival += 2 * DrawUnit(&random);
      SimulatedJob job =
          Draw(&random, 3) == 0
              ? Training(arrival, Draw(&random, 3), 1 + Draw(&random, 60), 1000)
              : Job(arrival, Draw(&random, 3), 1);
      job.work.calls = Draw(&random, 2000);
      trace.jobs.push_back(job);
    }
    const SimulationResult with = Play(trace);
    const SimulationResult without = Play(trace, kDefaultPolicy, false);
    ASSERT_EQ(with.finished, trace.jobs.size());
    ASSERT_NEAR(with.busy_seconds, without.busy_seconds, 1e-6);
    ASSERT_NEAR(with.makespan_seconds, without.makespan_seconds, 1e-6);
    preemptions += with.preemptions;
  }
  EXPECT_GT(preemptions, 1000u);
}

// A decision looks at few workers, however many there are.
TEST(SimulatorTest, ADecisionLooksAtFewWorkers) {
  Trace trace;
  for (size_t w = 0; w < 10'000; ++w) {
    trace.workers.push_back(Worker("w" + std::to_string(w), 10'000));
  }
  Randomness random(3);
  for (size_t t = 0; t < 1000; ++t) {
    trace.tenants.push_back({"t" + std::to_string(t)});
  }
  // All jobs wait at once.
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
