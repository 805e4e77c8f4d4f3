// Checks the values of a call's arguments, which are found by name.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_NAMED_VALUES_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_NAMED_VALUES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gpu_worker/device/torch/call_runner.h"

namespace djinn::worker {

// The operator itself reports arguments that are missing or of another type.
// Getters then return 0, false or an undefined tensor.
class NamedValues {
 public:
  NamedValues(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}

  at::Tensor Tensor(absl::string_view name) const;
  int64_t Integer(absl::string_view name) const;
  double Number(absl::string_view name) const;
  bool Boolean(absl::string_view name) const;
  // Returns the integers of a list or of a tensor's elements; nothing if the
  // argument is neither.
  std::optional<std::vector<int64_t>> List(absl::string_view name) const;

  absl::string_view op() const { return schema_.name(); }

 private:
  const c10::IValue* Find(absl::string_view name) const;

  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

struct NamedGuard {
  absl::string_view op;
  // Returns DoesNotFit() or OutOfRange() for values that the kernel must not
  // get.
  absl::Status (*guard)(const NamedValues& values);
};
absl::Status DoesNotFit(absl::string_view argument);
absl::Status OutOfRange(absl::string_view argument);

// Returns the check by the operator's guard, which fails with OPERATOR_FAILED.
// Returns null if there is no guard. The schema outlives it.
std::unique_ptr<ArgumentCheck> MakeGuard(absl::Span<const NamedGuard> guards,
                                         const c10::FunctionSchema& schema);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_NAMED_VALUES_H_
