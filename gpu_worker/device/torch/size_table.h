// Which operands must have the sizes of which, and which must be dense, for
// operators whose kernels walk one operand by another's sizes.
#ifndef GPU_WORKER_DEVICE_TORCH_SIZE_TABLE_H_
#define GPU_WORKER_DEVICE_TORCH_SIZE_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/torch/named_arguments.h"

namespace djinn::worker {

// A size that may be any.
constexpr int64_t kAnySize = -1;

// InvalidArgument, a plain text, if the view's sizes are others. `fits` says
// what it must fit: "argument self".
absl::Status CheckSizes(absl::string_view name, const srg::TensorView& view,
                        absl::Span<const int64_t> sizes,
                        absl::string_view fits);

// InvalidArgument, a plain text, if the view counts more elements than lie
// between its first and its last, as expanded ones do. What a kernel finds in
// other layouts than it thinks is its caller's affair.
absl::Status CheckDense(absl::string_view name, const srg::TensorView& view);

// The rules of the table for `op`, a name without its namespace.
absl::Status CheckSizeTable(absl::string_view op,
                            const NamedArguments& arguments);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_SIZE_TABLE_H_
