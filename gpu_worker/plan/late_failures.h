// Spreads failures of nodes that become known only after later nodes were
// executed on their results.
#ifndef GPU_WORKER_PLAN_LATE_FAILURES_H_
#define GPU_WORKER_PLAN_LATE_FAILURES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/srg/graph.h"
#include "gpu_worker/plan/plan.h"
#include "gpu_worker/store/root_errors.h"

namespace djinn::worker {

// Whether the node writes the view's slot over wholly without reading it.
using HealsFunction =
    absl::FunctionRef<bool(const srg::Node& node, const srg::TensorView& view)>;

// Slots that are worthless after the nodes before `end`, each with the error
// that made it so: as they would be had the `late` nodes failed at once and
// those that read what they made been left out. `known` failed or were left out
// in their turn. Both are ascending by node.
absl::flat_hash_map<uint32_t, RootError> SpreadLateFailures(
    const Plan& plan, const std::vector<std::pair<uint32_t, RootError>>& late,
    const std::vector<uint32_t>& known, uint32_t end, HealsFunction heals);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_LATE_FAILURES_H_
