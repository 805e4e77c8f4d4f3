// Chooses the worker with the least cost of device time: price * (transfer +
// computing), in the unit of the prices.
//
// Waiting costs nothing, so requests queue up for a cheap device. Unknown work
// counts as one second, so that the lowest price wins.
#include "scheduler/placement/policies.h"

namespace djinn::scheduler {
namespace {

class MinimizeCost : public Policy {
 public:
  absl::string_view name() const override { return "minimize_cost"; }
  double Score(const Terms& terms) const override { return terms.cost; }
};

}  // namespace

std::unique_ptr<Policy> MakeMinimizeCost() {
  return std::make_unique<MinimizeCost>();
}

}  // namespace djinn::scheduler
