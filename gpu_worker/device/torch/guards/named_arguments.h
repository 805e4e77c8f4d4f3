// Finds a call's arguments by name, for rules about single operators.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_NAMED_ARGUMENTS_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_NAMED_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/function_schema.h"
#include "absl/strings/string_view.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Both arguments of the constructor outlive this. Getters return nothing for
// values that only a run knows, and for values of another type.
class NamedArguments {
 public:
  NamedArguments(const c10::FunctionSchema& schema, const CallTemplate& call)
      : schema_(schema), call_(call) {}

  // Returns the view of a tensor argument; a view without dimensions for a
  // scalar tensor.
  std::optional<srg::TensorView> View(absl::string_view name) const;
  // Returns the views of the defined tensors of a list.
  std::vector<srg::TensorView> Views(absl::string_view name) const;

  std::optional<bool> Boolean(absl::string_view name) const;
  std::optional<int64_t> Integer(absl::string_view name) const;
  std::optional<std::vector<int64_t>> Integers(absl::string_view name) const;
  std::optional<std::vector<bool>> Booleans(absl::string_view name) const;
  std::optional<std::string> Text(absl::string_view name) const;

 private:
  const Place* FindPlace(absl::string_view name) const;
  const c10::IValue* FindValue(absl::string_view name) const;

  const c10::FunctionSchema& schema_;
  const CallTemplate& call_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_NAMED_ARGUMENTS_H_
