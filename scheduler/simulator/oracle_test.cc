// The policies' makespan beside the best there is, found by trying everything.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/simulator/generator.h"
#include "scheduler/simulator/simulator.h"

namespace djinn::scheduler {
namespace {

constexpr size_t kWorkers = 3;
constexpr size_t kJobs = 8;
constexpr double kLink = 1e9;

// Jobs that are all there at once, longest first, as a queue in which all wait
// is worked off (Graham 1969); some share state.
Trace SmallCase(uint64_t seed) {
  Randomness random(seed);
  Trace trace;
  trace.seed = seed;
  trace.tenants = {{"red"}, {"blue"}};
  for (size_t i = 0; i < kWorkers; ++i) {
    WorkerFacts facts;
    facts.id = std::string("w") + static_cast<char>('0' + i);
    facts.memory_bytes = 1'000'000'000'000;
    facts.speed = {1e12 * DrawFactor(&random, 1), 1e12, 0};
    facts.link_bytes_per_second = kLink;
    trace.workers.push_back(facts);
  }
  for (size_t i = 0; i < kJobs; ++i) {
    SimulatedJob job;
    job.tenant = i % 2;
    job.state = std::string("s") + static_cast<char>('0' + Draw(&random, 3));
    job.state_bytes = 200'000'000;
    job.work.cost.flops = static_cast<uint64_t>(3e12 * DrawFactor(&random, 3));
    trace.jobs.push_back(job);
  }
  std::sort(trace.jobs.begin(), trace.jobs.end(),
            [](const SimulatedJob& a, const SimulatedJob& b) {
              return a.work.cost.flops > b.work.cost.flops;
            });
  return trace;
}

double Makespan(const Trace& trace, const std::vector<size_t>& workers) {
  std::vector<double> busy(kWorkers);
  std::set<std::tuple<size_t, size_t, std::string>> there;
  for (size_t i = 0; i < kJobs; ++i) {
    const SimulatedJob& job = trace.jobs[i];
    const size_t worker = workers[i];
    busy[worker] += static_cast<double>(job.work.cost.flops) /
                    trace.workers[worker].speed.flops_per_second;
    if (there.insert({worker, job.tenant, job.state}).second) {
      busy[worker] += static_cast<double>(job.state_bytes) / kLink;
    }
  }
  return *std::max_element(busy.begin(), busy.end());
}

double BestMakespan(const Trace& trace) {
  std::vector<size_t> workers(kJobs);
  double best = Makespan(trace, workers);
  for (;;) {
    size_t digit = 0;
    while (digit < kJobs && ++workers[digit] == kWorkers) workers[digit++] = 0;
    if (digit == kJobs) return best;
    best = std::min(best, Makespan(trace, workers));
  }
}

struct Ratios {
  double mean = 0;
  double worst = 0;
};

Ratios RatiosOf(const std::string& policy) {
  constexpr int kCases = 100;
  Ratios ratios;
  int beyond = 0;
  for (int seed = 1; seed <= kCases; ++seed) {
    const Trace trace = SmallCase(seed);
    const auto result = Simulate(trace, **FindPolicy(policy));
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->finished, kJobs);
    const double ratio = result->makespan_seconds / BestMakespan(trace);
    EXPECT_GE(ratio, 1 - 1e-9) << "seed " << seed;
    ratios.mean += ratio / kCases;
    ratios.worst = std::max(ratios.worst, ratio);
    beyond += ratio > 1.1;
  }
  std::printf(
      "%s: %.3f times the best makespan, at worst %.3f, %d of %d cases "
      "beyond 1.1\n",
      policy.c_str(), ratios.mean, ratios.worst, beyond, kCases);
  return ratios;
}

TEST(OracleTest, FirstDoneFirstIsNearTheBestMakespan) {
  const Ratios ratios = RatiosOf("minimize_latency");
  EXPECT_LE(ratios.mean, 1.05);
  EXPECT_LE(ratios.worst, 1.15);
}

// It saves device time instead, and is a constant from the best all the same.
TEST(OracleTest, ThroughputPaysALittleMakespan) {
  const Ratios ratios = RatiosOf("maximize_throughput");
  EXPECT_LE(ratios.mean, 1.25);
  EXPECT_LE(ratios.worst, 1.5);
}

}  // namespace
}  // namespace djinn::scheduler
