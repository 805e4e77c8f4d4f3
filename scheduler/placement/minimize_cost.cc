// Where the device time costs least: price * (transfer + computing), in the
// unit of the prices.
//
// Waiting costs nothing: requests queue up for a cheap device. Work of which
// nothing is known counts one second, so that the cheapest hour wins.
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
