// Rules of operators whose kernels trust the sizes and strides of their
// operands, which PyTorch checks in the composites above them, or nowhere:
// broken, a kernel reads and writes beside its operands, which in a shared
// process is other tenants' memory. What autograd sends keeps the rules.
//
// Those that say only "as large as" and "dense" are a table (size_table.h).
// They were found by calling every allowed operator with operands cut, grown
// and expanded, between pages that nobody may touch; what needs several wrong
// operands at once may have been missed. Kernels that trust their operands'
// values are another matter (value_guards.h, index_table.h).
#ifndef GPU_WORKER_DEVICE_TORCH_OPERAND_GUARDS_H_
#define GPU_WORKER_DEVICE_TORCH_OPERAND_GUARDS_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// InvalidArgument with a plain text that names the argument.
absl::Status CheckOperands(const c10::FunctionSchema& schema,
                           const CallTemplate& call);

// What kernels on a GPU trust besides.
absl::Status CheckOperandsOnGpu(const c10::FunctionSchema& schema,
                                const CallTemplate& call);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_OPERAND_GUARDS_H_
