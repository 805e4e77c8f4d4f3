// Chooses the worker whose squared queue grows least: (q + p)^2 - q^2 = p (2q +
// p) seconds squared, for a queue q and a request that occupies the worker for
// p.
//
// This is the greedy rule for the L2 norm of loads on unrelated machines
// (Awerbuch, Azar, Grove, Kao, Krishnan, Vitter, FOCS 1995), which is a
// constant factor from the optimum without knowledge of the future. Compared
// with minimize_latency it weighs p more: a fast device waits for work that
// gains by it, and state is not copied to a worker only because its queue is a
// little shorter.
#include "scheduler/placement/policies.h"

namespace djinn::scheduler {
namespace {

class MaximizeThroughput : public Policy {
 public:
  absl::string_view name() const override { return "maximize_throughput"; }
  double Score(const Terms& terms) const override {
    const double occupied = terms.occupied_seconds();
    return occupied * (2 * terms.queue_seconds + occupied);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeMaximizeThroughput() {
  return std::make_unique<MaximizeThroughput>();
}

}  // namespace djinn::scheduler
