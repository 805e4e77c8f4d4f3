// Chooses the least busy device: its busy fraction of the last minute, plus
// what its queue and the request add to the next one. This is
// least-loaded-first, on measured time instead of a connection count.
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
