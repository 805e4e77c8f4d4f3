// Turns a graph from a client into a plan, once per fingerprint and size.
#ifndef GPU_WORKER_PLAN_ADMISSION_H_
#define GPU_WORKER_PLAN_ADMISSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/srg/validate.h"
#include "djinn/v1/srg.pb.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/plan.h"

namespace djinn::worker {

struct Admitted {
  std::shared_ptr<const Plan> plan;
  // The tenant has defined the graph before, and held the plan since: all
  // that it is told of what is here.
  bool known = false;
};

// The errors of srg::FromProto, srg::Validate and OperatorLibrary::Compile;
// ResourceExhausted (GRAPH_TOO_LARGE) for a plan that alone exceeds the
// cache. A graph whose fingerprint is in the cache passed all three before.
// The plan is the tenant's in the cache.
absl::StatusOr<Admitted> Admit(const v1::Graph& message,
                               const srg::GraphCaps& caps,
                               absl::string_view tenant, GraphCache* cache,
                               OperatorLibrary* library);

// The plan of `base`, which has a size hole, at a size other than 0; kept in
// the cache. The errors of srg::AtSize and srg::Validate: what comes out of the
// graph is checked as if it had been defined so. What an operator refuses
// is the plan's refusal(): a program may have a size at which it is wrong.
absl::StatusOr<std::shared_ptr<const Plan>> AdmitAtSize(
    const Plan& base, int64_t size, const srg::GraphCaps& caps,
    absl::string_view tenant, GraphCache* cache, OperatorLibrary* library);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_ADMISSION_H_
