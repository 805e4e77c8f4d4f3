// Chooses the worker that finishes the request first: queue + transfer +
// computing, in seconds.
//
// This is minimum completion time (Ibarra and Kim, J. ACM 1977), with the
// roofline's time instead of a table.
#include "scheduler/placement/policies.h"

namespace djinn::scheduler {
namespace {

class MinimizeLatency : public Policy {
 public:
  absl::string_view name() const override { return "minimize_latency"; }
  double Score(const Terms& terms) const override {
    return terms.finish_seconds();
  }
};

}  // namespace

std::unique_ptr<Policy> MakeMinimizeLatency() {
  return std::make_unique<MinimizeLatency>();
}

}  // namespace djinn::scheduler
