// Decides which operators may be sent to a worker.
#ifndef COMMON_TORCH_ALLOW_LIST_H_
#define COMMON_TORCH_ALLOW_LIST_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"

namespace djinn {

// Returns OK for operators of namespace aten that compute dense tensors from
// dense tensors and plain values, and for those of sparse_operators.h and
// packed_operators.h. Returns PermissionDenied (OPERATOR_REFUSED) with the
// operator and the cause for all others: those that touch files, storages, devices, autograd or process-wide
// state, those that change a tensor's metadata or storage in place, sparse,
// nested, quantised and vendor-internal ones, and those that return anything
// but tensors.
absl::Status CheckAllowed(const c10::FunctionSchema& schema);

// Checks an operator outside `aten` whose library the administrator of the
// worker loaded. Returns OK when it computes tensors from tensors and plain
// values, and PermissionDenied (OPERATOR_REFUSED) otherwise.
absl::Status CheckCustom(const c10::FunctionSchema& schema);

}  // namespace djinn

#endif  // COMMON_TORCH_ALLOW_LIST_H_
