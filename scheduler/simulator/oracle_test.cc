// Compares the policies' makespans with the optimum, which it finds by trying
// everything.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <utility>
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

// Makes jobs that arrive at once, longest first, as a queue in which all wait
// is served (Graham 1969); some share state.
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

// Tracks the times at which workers are done with the jobs placed on them.
class Plan {
 public:
  explicit Plan(const Trace* trace) : trace_(trace), busy_(kWorkers) {}

  double Finish(size_t job, size_t worker) const {
    const SimulatedJob& placed = trace_->jobs[job];
    const bool missing =
        there_.count({worker, placed.tenant, placed.state}) == 0;
    return busy_[worker] +
           static_cast<double>(placed.work.cost.flops) /
               trace_->workers[worker].speed.flops_per_second +
           (missing ? static_cast<double>(placed.state_bytes) / kLink : 0);
  }
  size_t FirstDone(size_t job) const {
    size_t best = 0;
    for (size_t worker = 1; worker < kWorkers; ++worker) {
      if (Finish(job, worker) < Finish(job, best)) best = worker;
    }
    return best;
  }
  void Put(size_t job, size_t worker) {
    busy_[worker] = Finish(job, worker);
    there_.insert({worker, trace_->jobs[job].tenant, trace_->jobs[job].state});
  }
  double makespan() const {
    return *std::max_element(busy_.begin(), busy_.end());
  }

 private:
  const Trace* trace_;
  std::vector<double> busy_;
  std::set<std::tuple<size_t, size_t, std::string>> there_;
};

// Places next the job that would lose most without its best worker (Maheswaran
// et al. 1999).
double Sufferage(const Trace& trace) {
  Plan plan(&trace);
  std::set<size_t> left;
  for (size_t job = 0; job < kJobs; ++job) left.insert(job);
  while (!left.empty()) {
    size_t next = *left.begin();
    double most = -1;
    for (const size_t job : left) {
      std::vector<double> finish;
      for (size_t worker = 0; worker < kWorkers; ++worker) {
        finish.push_back(plan.Finish(job, worker));
      }
      std::sort(finish.begin(), finish.end());
      if (finish[1] - finish[0] <= most) continue;
      most = finish[1] - finish[0];
      next = job;
    }
    plan.Put(next, plan.FirstDone(next));
    left.erase(next);
  }
  return plan.makespan();
}

// Places each job where all is done first, assuming that each of the next
// `depth` jobs goes where it is done first. Depth 0 is the rule of
// minimize_latency.
double LookingAhead(const Trace& trace, size_t depth) {
  Plan plan(&trace);
  for (size_t job = 0; job < kJobs; ++job) {
    size_t best = 0;
    std::pair<double, double> least;
    for (size_t worker = 0; worker < kWorkers; ++worker) {
      const double finish = plan.Finish(job, worker);
      Plan then = plan;
      then.Put(job, worker);
      for (size_t next = job + 1; next < kJobs && next <= job + depth; ++next) {
        then.Put(next, then.FirstDone(next));
      }
      const std::pair key(depth == 0 ? finish : then.makespan(), finish);
      if (worker > 0 && key >= least) continue;
      least = key;
      best = worker;
    }
    plan.Put(job, best);
  }
  return plan.makespan();
}

// Shows why minimize_latency is not cleverer: rules that see the waiting jobs
// are no nearer to the optimum in the worst case, and the order of arrival,
// which no rule chooses, matters more than any of them.
TEST(OracleTest, RulesThatSeeTheQueueAreNoNearerAtWorst) {
  constexpr int kCases = 1000;
  Ratios first_done, suffering, ahead, unsorted;
  const auto add = [](double ratio, Ratios* ratios) {
    ratios->mean += ratio / kCases;
    ratios->worst = std::max(ratios->worst, ratio);
  };
  for (int seed = 1; seed <= kCases; ++seed) {
    Trace trace = SmallCase(seed);
    const double best = BestMakespan(trace);
    add(LookingAhead(trace, 0) / best, &first_done);
    add(LookingAhead(trace, 3) / best, &ahead);
    add(Sufferage(trace) / best, &suffering);
    Randomness random(seed);
    std::shuffle(trace.jobs.begin(), trace.jobs.end(), random);
    add(LookingAhead(trace, 0) / best, &unsorted);
  }
  const auto print = [](const char* rule, const Ratios& ratios) {
    std::printf("%s: %.3f times the best makespan, at worst %.3f\n", rule,
                ratios.mean, ratios.worst);
  };
  print("done first", first_done);
  print("done first with a look at the next three", ahead);
  print("sufferage", suffering);
  print("done first in any order", unsorted);
  EXPECT_LT(first_done.mean, suffering.mean);
  EXPECT_LT(first_done.worst, suffering.worst);
  EXPECT_GT(ahead.worst, 1.1);
  EXPECT_GT(unsorted.mean, first_done.mean + 0.05);
}

// The policy saves device time instead, and stays within a constant factor of
// the optimum.
TEST(OracleTest, ThroughputPaysALittleMakespan) {
  const Ratios ratios = RatiosOf("maximize_throughput");
  EXPECT_LE(ratios.mean, 1.25);
  EXPECT_LE(ratios.worst, 1.5);
}

}  // namespace
}  // namespace djinn::scheduler
