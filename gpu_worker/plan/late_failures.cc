#include "gpu_worker/plan/late_failures.h"

#include <algorithm>
#include <variant>

namespace djinn::worker {
namespace {

// Calls `visit(slot)` for everything that the node writes or returns.
template <typename Visitor>
void ForEachMade(const srg::Node& node, Visitor visit) {
  for (const uint32_t slot : node.writes) visit(slot);
  for (const srg::Result& result : node.results) {
    if (const auto* view = std::get_if<srg::TensorView>(&result)) {
      visit(view->slot);
    } else if (const auto* unknown = std::get_if<srg::UnknownResult>(&result)) {
      visit(unknown->slot);
    }
  }
}

}  // namespace

absl::flat_hash_map<uint32_t, RootError> SpreadLateFailures(
    const Plan& plan, const std::vector<std::pair<uint32_t, RootError>>& late,
    const std::vector<uint32_t>& known, uint32_t end, HealsFunction heals) {
  absl::flat_hash_map<uint32_t, RootError> worthless;
  if (late.empty()) return worthless;
  auto failed = late.begin();
  for (uint32_t i = late.front().first; i < end; ++i) {
    const srg::Node& node = plan.graph().nodes[i];
    RootError error;
    if (failed != late.end() && failed->first == i) {
      error = (failed++)->second;
    } else if (std::binary_search(known.begin(), known.end(), i)) {
      // The node's results already have an error of their own.
      ForEachMade(node, [&](uint32_t slot) { worthless.erase(slot); });
      continue;
    } else {
      for (const srg::TensorView* view : plan.steps()[i].operands) {
        const auto found = worthless.find(view->slot);
        if (found == worthless.end() || heals(node, *view)) continue;
        error = found->second;
        break;
      }
    }
    ForEachMade(node, [&](uint32_t slot) {
      if (error != nullptr) {
        worthless[slot] = error;
      } else {
        worthless.erase(slot);
      }
    });
  }
  return worthless;
}

}  // namespace djinn::worker
