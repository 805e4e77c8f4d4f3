// Lists which operands must have the sizes of which others, and which must be
// dense, for operators whose kernels step through one operand by another's
// sizes.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_SIZE_TABLE_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_SIZE_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/torch/guards/named_arguments.h"

namespace djinn::worker {

// Matches any size.
constexpr int64_t kAnySize = -1;

// Returns InvalidArgument with a plain text if the view's sizes differ from
// `sizes`. `fits` names what the view must fit: "argument self".
absl::Status CheckSizes(absl::string_view name, const srg::TensorView& view,
                        absl::Span<const int64_t> sizes,
                        absl::string_view fits);

// Returns InvalidArgument with a plain text if the view has more elements than
// lie between its first and its last, as expanded views do.
absl::Status CheckDense(absl::string_view name, const srg::TensorView& view);

// Checks the rules of the table for `op`, a name without its namespace.
absl::Status CheckSizeTable(absl::string_view op,
                            const NamedArguments& arguments);

using View = std::optional<srg::TensorView>;

std::string Describe(absl::string_view name, const srg::TensorView& view);

// Returns an error that says that the argument must do what `due` says.
absl::Status Misfit(absl::string_view name, const srg::TensorView& view,
                    absl::string_view due);

// Returns an error unless both arguments have the same sizes, or one is
// missing.
absl::Status SameSizes(const NamedArguments& arguments, absl::string_view a,
                       absl::string_view b);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_SIZE_TABLE_H_
