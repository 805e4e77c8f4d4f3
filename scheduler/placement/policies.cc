#include "scheduler/placement/policies.h"

namespace djinn::scheduler {
namespace {

constexpr double kWindowSeconds = 60;

// Chooses the least busy device: its busy fraction of the last minute, plus
// what its queue and the request add to the next one. This is
// least-loaded-first, on measured time instead of a connection count.
class LoadBalance : public Policy {
 public:
  absl::string_view name() const override { return "load_balance"; }
  double Score(const Terms& terms) const override {
    return terms.load + terms.finish_seconds() / kWindowSeconds;
  }
};

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
class MaximizeThroughput : public Policy {
 public:
  absl::string_view name() const override { return "maximize_throughput"; }
  double Score(const Terms& terms) const override {
    const double occupied = terms.occupied_seconds();
    return occupied * (2 * terms.queue_seconds + occupied);
  }
};

// Chooses the worker with the least cost of device time: price * (transfer +
// computing), in the unit of the prices.
//
// Waiting costs nothing, so requests queue up for a cheap device. Unknown work
// counts as one second, so that the lowest price wins.
class MinimizeCost : public Policy {
 public:
  absl::string_view name() const override { return "minimize_cost"; }
  double Score(const Terms& terms) const override { return terms.cost; }
};

// Chooses the worker that finishes the request first: queue + transfer +
// computing, in seconds.
//
// This is minimum completion time (Ibarra and Kim, J. ACM 1977), with the
// roofline's time instead of a table.
class MinimizeLatency : public Policy {
 public:
  absl::string_view name() const override { return "minimize_latency"; }
  double Score(const Terms& terms) const override {
    return terms.finish_seconds();
  }
};

}  // namespace

std::vector<std::unique_ptr<Policy>> BuiltInPolicies() {
  std::vector<std::unique_ptr<Policy>> policies;
  policies.push_back(std::make_unique<LoadBalance>());
  policies.push_back(std::make_unique<MaximizeThroughput>());
  policies.push_back(std::make_unique<MinimizeCost>());
  policies.push_back(std::make_unique<MinimizeLatency>());
  return policies;
}

}  // namespace djinn::scheduler
