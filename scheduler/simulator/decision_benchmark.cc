// How long a decision takes where there is much to decide: 10,000 workers,
// 1,000 tenants with three models each, and 100,000 requests that are queued
// one after the other, on one core.
//
//   decision_benchmark
//
// For each policy, prints "." now and then, and at last its name, how many
// decisions it makes in a second, and the 50th, 99th and 99.9th percentile of
// the seconds that one takes: of the processor's time, so that whoever else
// uses the machine counts little. In the end "done". `./djinn bench decisions`
// shows it.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/simulator/generator.h"

namespace djinn::scheduler {
namespace {

constexpr size_t kWorkers = 10'000;
constexpr size_t kTenants = 1'000;
constexpr size_t kModels = 3;
constexpr size_t kHolders = 20;
constexpr size_t kRequests = 100'000;
constexpr uint64_t kModelBytes = 4'000'000'000;

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

StateKey KeyOf(size_t tenant, size_t model) {
  return tenant * kModels + model + 1;
}

void FillFleet(Randomness* random, Fleet* fleet) {
  for (size_t i = 0; i < kWorkers; ++i) {
    WorkerFacts facts;
    facts.id = "worker-" + std::to_string(i);
    facts.device = i % 3 == 0 ? "cuda" : "cpu";
    facts.memory_bytes = facts.available_bytes = 80'000'000'000;
    facts.speed = {1e14 * DrawFactor(random, 3), 2e12, 5e-6};
    facts.price_per_second = DrawUnit(random) * 1e-3;
    fleet->Put(std::move(facts));
  }
  for (size_t tenant = 0; tenant < kTenants; ++tenant) {
    for (size_t model = 0; model < kModels; ++model) {
      for (size_t i = 0; i < kHolders; ++i) {
        fleet->Hold(fleet->all()[Draw(random, kWorkers)]->facts.id,
                    KeyOf(tenant, model));
      }
    }
  }
}

void Print(const std::string& policy, std::vector<double> seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<size_t>(
        share * static_cast<double>(seconds.size() - 1))];
  };
  std::printf("%s %g %g %g %g\n", policy.c_str(),
              static_cast<double>(seconds.size()) / sum, at(0.5), at(0.99),
              at(0.999));
  std::fflush(stdout);
}

void Measure(const std::string& name) {
  Randomness random(1);
  Fleet fleet;
  FillFleet(&random, &fleet);
  const Policy& policy = **FindPolicy(name);
  semantics::CostFactors factors;
  Work work;
  for (const auto op_class :
       {semantics::OpClass::kMatmul, semantics::OpClass::kAttention,
        semantics::OpClass::kNormalization, semantics::OpClass::kPointwise}) {
    const auto phase = semantics::Phase::kLlmDecode;
    work.Add({op_class, phase, {1'000'000'000, 500'000'000, 0}, 100});
    factors.Learn(op_class, phase, "cpu", 1, 1.5);
    factors.Learn(op_class, phase, "cuda", 1, 1.2);
  }
  std::vector<double> seconds;
  for (size_t i = 0; i < kRequests; ++i) {
    if (i % (kRequests / 10) == 0) {
      std::puts(".");
      std::fflush(stdout);
    }
    Request request;
    request.asked_bytes = kModelBytes;
    request.state = {
        {KeyOf(Draw(&random, kTenants), Draw(&random, kModels)), kModelBytes}};
    request.work = &work;
    request.phase = semantics::Phase::kLlmDecode;
    const double start = ProcessorSeconds();
    const Decision decision = Place(request, fleet, policy, factors, &random);
    fleet.Update(decision.worker_id, [&](WorkerFacts* facts) {
      ++facts->queued_runs;
      facts->queued_seconds +=
          decision.considered.front().terms.occupied_seconds();
    });
    seconds.push_back(ProcessorSeconds() - start);
  }
  Print(name, std::move(seconds));
}

}  // namespace
}  // namespace djinn::scheduler

int main() {
  for (const std::string& name : djinn::scheduler::PolicyNames()) {
    djinn::scheduler::Measure(name);
  }
  std::puts("done");
}
