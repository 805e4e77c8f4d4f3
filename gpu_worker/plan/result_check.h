// Compares what an operator returned with what the client inferred, and makes a
// result that only looks different (shared memory, an offset) equal to it.
#ifndef GPU_WORKER_PLAN_RESULT_CHECK_H_
#define GPU_WORKER_PLAN_RESULT_CHECK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

// Internal (METADATA_MISMATCH), whose text shows both, when dtype or sizes
// differ, or strides, offset or lazy bits do and no copy could lie as inferred.
absl::Status CheckMetadata(const srg::TensorView& inferred,
                           const NodeResult& result);
// The same for a result that the client expects to be undefined, or of unknown
// metadata.
absl::Status CheckUndefined(const NodeResult& result);
absl::Status CheckUnknown(const NodeResult& result);

// Whether the result must be copied before it can stand for the inferred one:
// it shares an operand's memory or lies otherwise in its own. `inferred` is
// null for unknown metadata.
bool NeedsCopy(const srg::TensorView* inferred, const NodeResult& result);

// Size of the copy.
uint64_t CopyBytes(const srg::TensorView* inferred, const NodeResult& result);

// The copy; `view` becomes its metadata.
absl::StatusOr<std::shared_ptr<Buffer>> CopyResult(
    Device* device, const srg::TensorView* inferred,
    std::shared_ptr<Buffer> buffer, srg::TensorView* view);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RESULT_CHECK_H_
