// Measures the duration of decisions in a large cluster, on one core: 10,000
// workers, and 1,000 tenants with three models each. 100,000 requests are
// placed one after the other, each of which adds to its worker's queue, while
// one worker is reserved for the first request in the wait queue.
//
//   decision_benchmark
//
// Prints, for each policy, "." as a sign of progress, and finally its name, its
// decisions per second, and the 50th, 99th and 99.9th percentile of the seconds
// that one takes. Counts processor time, so that other use of the machine
// matters little. "reservation" is the choice of the reserved worker. The last
// three are about a wait queue of 100,000 requests of 1,000 tenants:
// "line_order" orders the requests, "line_try" chooses those to try,
// "line_places" computes all positions. Ends with "done".
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/reservation.h"
#include "scheduler/simulator/generator.h"

namespace djinn::scheduler {
namespace {

constexpr size_t kWorkers = 10'000;
constexpr size_t kTenants = 1'000;
constexpr size_t kModels = 3;
constexpr size_t kHolders = 20;
constexpr size_t kRequests = 100'000;
constexpr size_t kReservations = 1'000;
constexpr size_t kLineRounds = 1'000;
constexpr size_t kPlacesRounds = 50;
constexpr uint64_t kModelBytes = 4'000'000'000;
constexpr uint64_t kMemoryBytes = 80'000'000'000;

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
    facts.memory_bytes = facts.available_bytes = kMemoryBytes;
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

// Reserves a worker for a request at the front of the queue that asks for all
// of it.
void Keep(const Fleet& fleet, Reservation* reservation) {
  constexpr WaitQueue::Ticket kFirst = 1;
  reservation->Review(
      {&kFirst, 1},
      [](WaitQueue::Ticket) {
        return Reservation::Waiter{1, absl::ZeroDuration()};
      },
      [](WaitQueue::Ticket) {
        Request request;
        request.asked_bytes = kMemoryBytes;
        return request;
      },
      fleet, absl::ZeroDuration());
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
  Reservation reservation(absl::ZeroDuration());
  Keep(fleet, &reservation);
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
    reservation.Apply(/*ticket=*/0, /*urgency=*/1, &request);
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

void MeasureReservations() {
  Randomness random(1);
  Fleet fleet;
  FillFleet(&random, &fleet);
  std::vector<double> seconds;
  for (size_t i = 0; i < kReservations; ++i) {
    Reservation reservation(absl::ZeroDuration());
    const double start = ProcessorSeconds();
    Keep(fleet, &reservation);
    seconds.push_back(ProcessorSeconds() - start);
    // Another worker has the most room next time.
    fleet.Update(reservation.worker_id(),
                 [](WorkerFacts* facts) { --facts->available_bytes; });
  }
  Print("reservation", std::move(seconds));
}

void MeasureLine() {
  Randomness random(1);
  WaitQueue line;
  constexpr absl::Duration kNow = absl::Hours(1);
  for (size_t i = 0; i < kRequests; ++i) {
    const std::string tenant = "t" + std::to_string(Draw(&random, kTenants));
    line.Join({.tenant = tenant, .urgency = static_cast<int>(Draw(&random, 3))},
              kNow);
    line.Charge(tenant, DrawUnit(&random), kNow);
  }
  const auto precedence = [](const std::string&) {
    return std::vector<double>{0, 0.5};
  };
  const auto measure = [&](const char* name, size_t rounds, auto once) {
    std::vector<double> seconds;
    for (size_t i = 0; i < rounds; ++i) {
      const double start = ProcessorSeconds();
      once();
      seconds.push_back(ProcessorSeconds() - start);
    }
    Print(name, std::move(seconds));
  };
  measure("line_order", kLineRounds,
          [&] { line.Front(WaitQueue::kMaxTries / 2, kNow, precedence); });
  measure("line_try", kLineRounds, [&] {
    line.Try(kNow, precedence, [](WaitQueue::Ticket) { return false; });
  });
  measure("line_places", kPlacesRounds,
          [&] { line.PlacesNow(kNow, precedence); });
}

}  // namespace
}  // namespace djinn::scheduler

int main() {
  for (const std::string& name : djinn::scheduler::PolicyNames()) {
    djinn::scheduler::Measure(name);
  }
  djinn::scheduler::MeasureReservations();
  djinn::scheduler::MeasureLine();
  std::puts("done");
}
