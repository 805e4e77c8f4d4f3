// Where the device is least busy: its share of the last minute, and what the
// queue and the request will add to the next one.
//
// Least loaded first, on measured time instead of a count of connections.
#include "scheduler/placement/policies.h"

namespace djinn::scheduler {
namespace {

constexpr double kWindowSeconds = 60;

class LoadBalance : public Policy {
 public:
  absl::string_view name() const override { return "load_balance"; }
  double Score(const Terms& terms) const override {
    return terms.load + terms.finish_seconds() / kWindowSeconds;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeLoadBalance() {
  return std::make_unique<LoadBalance>();
}

}  // namespace djinn::scheduler
