// A policy defined outside the library: it prefers the worker that lacks the
// fewest bytes.
#include "scheduler/placement/policy.h"

namespace outside {
namespace {

class FewestBytes : public djinn::scheduler::Policy {
 public:
  absl::string_view name() const override { return "fewest_bytes"; }
  double Score(const djinn::scheduler::Terms& terms) const override {
    return static_cast<double>(terms.missing_bytes);
  }
};

[[maybe_unused]] const bool registered =
    djinn::scheduler::RegisterPolicy(std::make_unique<FewestBytes>());

}  // namespace
}  // namespace outside
