// Compares what an operator returned with what the client inferred. A result
// whose elements are right but whose memory layout differs (shared memory, an
// offset) is copied into the inferred layout.
#ifndef GPU_WORKER_PLAN_RESULT_CHECK_H_
#define GPU_WORKER_PLAN_RESULT_CHECK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

// Returns Internal (METADATA_MISMATCH), with both views in its text, if dtype
// or sizes differ, or if strides, offset or lazy bits differ and no copy could
// have the inferred layout.
absl::Status CheckMetadata(const srg::TensorView& inferred,
                           const NodeResult& result);
// Check a result that the client expects to be undefined, or of unknown
// metadata.
absl::Status CheckUndefined(const NodeResult& result);
absl::Status CheckUnknown(const NodeResult& result);

// Returns whether the result must be copied before it can stand for the
// inferred one: it shares an operand's memory, or its layout in its own memory
// differs. `inferred` is null for unknown metadata.
bool NeedsCopy(const srg::TensorView* inferred, const NodeResult& result);

// Returns the size of the copy.
uint64_t CopyBytes(const srg::TensorView* inferred, const NodeResult& result);

// Copies the result into memory of its own and sets `view` to the copy's
// metadata.
absl::StatusOr<std::shared_ptr<Buffer>> CopyResult(
    Device* device, const srg::TensorView* inferred,
    std::shared_ptr<Buffer> buffer, srg::TensorView* view);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RESULT_CHECK_H_
