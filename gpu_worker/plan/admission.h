// Turns a client's graph into a plan, once per fingerprint and size.
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
  // The tenant defined the graph before and has held the plan since. A tenant
  // learns nothing else about what the cache holds.
  bool known = false;
};

// Returns the plan of the graph, which the tenant then holds in the cache.
// Fails with the errors of srg::FromProto, srg::Validate and
// OperatorLibrary::Compile, and with ResourceExhausted (GRAPH_TOO_LARGE) for a
// plan that alone exceeds the cache. A graph whose plan the tenant holds passed
// all checks before. A plan that only other tenants hold is made again, which
// takes the tenant as long as the first one.
absl::StatusOr<Admitted> Admit(const v1::Graph& message,
                               const srg::GraphCaps& caps,
                               absl::string_view tenant, GraphCache* cache,
                               OperatorLibrary* library);

// Returns the plan of `base`, which has a size hole, at a size other than 0,
// and keeps it in the cache. Fails with the errors of srg::AtSize and
// srg::Validate: the graph at this size is checked as if a client had defined
// it so. An operator's refusal does not fail the call but becomes the plan's
// refusal(), because a program may have a size at which it is wrong.
absl::StatusOr<std::shared_ptr<const Plan>> AdmitAtSize(
    const Plan& base, int64_t size, const srg::GraphCaps& caps,
    absl::string_view tenant, GraphCache* cache, OperatorLibrary* library);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_ADMISSION_H_
