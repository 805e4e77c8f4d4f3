// Which operators may be sent to a worker.
#ifndef COMMON_TORCH_ALLOW_LIST_H_
#define COMMON_TORCH_ALLOW_LIST_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"

namespace djinn {

// OK for operators of namespace aten that compute dense tensors from dense
// tensors and plain values. PermissionDenied (OPERATOR_REFUSED) with operator
// and cause for all others: those that touch files, storages, devices, autograd
// or process-wide state, those that change a tensor's metadata or storage in
// place, sparse, nested, quantised and vendor-internal ones, and those that
// return anything but tensors.
absl::Status CheckAllowed(const c10::FunctionSchema& schema);

// Of an operator of another namespace, whose library whoever runs the worker
// trusts: OK when it computes tensors from tensors and plain values;
// PermissionDenied (OPERATOR_REFUSED) else.
absl::Status CheckCustom(const c10::FunctionSchema& schema);

}  // namespace djinn

#endif  // COMMON_TORCH_ALLOW_LIST_H_
