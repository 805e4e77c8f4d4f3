// Propagates failures of nodes that become known only after later nodes were
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

// Returns whether the node overwrites the view's slot wholly without reading
// it.
using HealsFunction =
    absl::FunctionRef<bool(const srg::Node& node, const srg::TensorView& view)>;

// Returns the slots whose values are worthless after the nodes before `end`,
// each with the error that made it so. The result is as if the `late` nodes had
// failed at once and the nodes that read their results had been skipped.
// `known` are the nodes that failed or were skipped when they were due. Both
// lists are ascending by node.
absl::flat_hash_map<uint32_t, RootError> SpreadLateFailures(
    const Plan& plan, const std::vector<std::pair<uint32_t, RootError>>& late,
    const std::vector<uint32_t>& known, uint32_t end, HealsFunction heals);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_LATE_FAILURES_H_
