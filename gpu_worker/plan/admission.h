// Turns a structure from a client into a plan, once per fingerprint.
#ifndef GPU_WORKER_PLAN_ADMISSION_H_
#define GPU_WORKER_PLAN_ADMISSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/srg/validate.h"
#include "djinn/v1/srg.pb.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/plan/plan.h"

namespace djinn::worker {

struct AdmittedPlan {
  std::shared_ptr<const Plan> plan;
  // The plan was already here.
  bool cache_hit = false;
};

// The errors of srg::FromProto, srg::Validate and OperatorLibrary::Compile;
// ResourceExhausted (STRUCTURE_TOO_LARGE) for a plan that alone exceeds the
// cache. A structure whose fingerprint is in the cache passed all three before.
absl::StatusOr<AdmittedPlan> Admit(const v1::Structure& message,
                                   const srg::StructureCaps& caps,
                                   GraphCache* cache, OperatorLibrary* library);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_ADMISSION_H_
