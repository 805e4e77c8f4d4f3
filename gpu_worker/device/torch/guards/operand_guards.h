// Checks the sizes and strides of operands that kernels trust. PyTorch checks
// them in the composite operators above these kernels, or nowhere. With wrong
// operands a kernel reads and writes outside them. On a GPU, where tenants
// always share a process, that is other tenants' memory; on a CPU, a program's
// own mistake would crash PyTorch. Operators that a GPU refuses and that only
// autograd or PyTorch's own composites call are not checked. Calls that
// autograd makes obey the rules.
//
// A table (size_table.h) holds the rules "as large as" and "dense". We found
// them by calling every allowed operator with operands cut, grown and expanded,
// between protected pages; that may have missed a kernel that fails only with
// several wrong operands at once. value_guards.h and index_table.h check
// operands' values.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_OPERAND_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_OPERAND_GUARDS_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Returns InvalidArgument with a plain text that names the argument.
absl::Status CheckOperands(const c10::FunctionSchema& schema,
                           const CallTemplate& call);

// Checks only what kernels on a GPU trust in addition.
absl::Status CheckOperandsOnGpu(const c10::FunctionSchema& schema,
                                const CallTemplate& call);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_OPERAND_GUARDS_H_
