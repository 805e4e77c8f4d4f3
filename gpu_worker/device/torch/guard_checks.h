// What guards of operators' operands have in common.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARD_CHECKS_H_
#define GPU_WORKER_DEVICE_TORCH_GUARD_CHECKS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/torch/named_arguments.h"

namespace djinn::worker {

using View = std::optional<srg::TensorView>;

std::string Describe(absl::string_view name, const srg::TensorView& view);

// That the argument must ... `due`.
absl::Status Misfit(absl::string_view name, const srg::TensorView& view,
                    absl::string_view due);

// OK, too, where one of them is not given.
absl::Status SameSizes(const NamedArguments& arguments, absl::string_view a,
                       absl::string_view b);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARD_CHECKS_H_
