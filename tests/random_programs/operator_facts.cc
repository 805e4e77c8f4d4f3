#include "tests/random_programs/operator_facts.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <string>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

namespace djinn::random_programs {
namespace {

// Returns whether the tensor has more elements than places for them.
bool RepeatsElements(const at::Tensor& tensor) {
  int64_t places = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    places += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return tensor.numel() > 0 && places < tensor.numel();
}

}  // namespace

bool FoundByTheWorker(absl::string_view message) {
  for (const absl::string_view part :
       {"not implemented for", "zerodivisionerror", "out of range",
        "out of bounds", "probability", "not supported", "should have p >= 0",
        "class values", "is out of"}) {
    if (absl::StrContains(message, part)) return true;
  }
  return false;
}

bool IsAboutOutputs(absl::string_view message) {
  return absl::StrContains(message, "single memory location") ||
         absl::StrContains(message, "match the broadcast shape");
}

bool ChangesOnlyMetadata(const Step& step) {
  static const auto* const kNames = new absl::flat_hash_set<std::string>{
      "t_",          "transpose_", "squeeze_", "unsqueeze_", "resize_",
      "as_strided_", "set_",       "detach_",  "resize_as_", "swapaxes_"};
  return step.kind == Step::Kind::kCall &&
         kNames->contains(step.op->schema().name().substr(6));
}

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool IsOverwritten(const Step& step, size_t argument) {
  static const auto* const kNames = new absl::flat_hash_set<std::string>{
      "zero_",      "fill_",       "copy_",       "normal_",
      "uniform_",   "random_",     "cauchy_",     "bernoulli_",
      "geometric_", "log_normal_", "exponential_"};
  const c10::FunctionSchema& schema = step.op->schema();
  if (!IsWritten(schema.arguments()[argument])) return false;
  return schema.arguments()[argument].is_out() ||
         (argument == 0 && kNames->contains(schema.name().substr(6)));
}

bool Covers(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 &&
         tensor.is_non_overlapping_and_dense() &&
         static_cast<size_t>(tensor.numel()) * tensor.element_size() ==
             tensor.storage().nbytes();
}

bool ReadsOnlyMetadata(const Step& step, size_t argument) {
  const std::string& name = step.op->schema().name();
  return argument == 1 &&
         (name == "aten::type_as" || name == "aten::expand_as");
}

std::vector<size_t> Outputs(const Step& step) {
  std::vector<size_t> outputs;
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    if (step.op->schema().arguments()[i].is_out()) outputs.push_back(i);
  }
  return outputs;
}

const at::Tensor& Operand(const Step& step, size_t argument,
                          const Machine& machine) {
  return machine.slot(std::get<Slot>(step.arguments[argument]).index);
}

bool NothingIsPromised(const Step& step, const Machine& machine) {
  const std::string& name = step.op->schema().name();
  const bool median = name == "aten::median" || name == "aten::nanmedian";
  const bool gradients =
      step.mode == Mode::kNormal && c10::GradMode::is_enabled();
  for (const at::Tensor& operand : machine.Operands(step)) {
    if (median && !operand.is_non_overlapping_and_dense()) return true;
    if (gradients && operand.is_inference() && operand.requires_grad()) {
      return true;
    }
  }
  for (const size_t output : Outputs(step)) {
    if (RepeatsElements(Operand(step, output, machine))) return true;
  }
  return false;
}

at::Tensor Harmless(const Step& step, const c10::Argument& argument,
                    const at::Tensor& tensor) {
  const c10::InferenceMode same_kind(tensor.is_inference());
  const std::string name = step.op->schema().name().substr(6);
  const bool integral = c10::isIntegralType(tensor.scalar_type(), true);
  if ((argument.name() == "index" || argument.name() == "indices" ||
       argument.name() == "target") &&
      integral && tensor.scalar_type() != at::kBool) {
    return at::zeros_like(tensor);
  }
  if (argument.name() == "other" && integral) return at::ones_like(tensor);
  if (name == "multinomial" || name.starts_with("bernoulli")) {
    if (!IsWritten(argument)) return at::full_like(tensor, 0.5);
  }
  return tensor;
}

bool WritesInferenceTensor(const Step& step, const Machine& machine) {
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const auto* slot = std::get_if<Slot>(&step.arguments[i]);
    if (slot != nullptr && IsWritten(step.op->schema().arguments()[i]) &&
        machine.slot(slot->index).is_inference()) {
      return step.mode != Mode::kInference && !c10::InferenceMode::is_enabled();
    }
  }
  return false;
}

bool MayDraw(const Step& step) {
  if (step.kind != Step::Kind::kCall) return false;
  if (step.op->hasTag(at::Tag::nondeterministic_seeded)) return true;
  for (const c10::Argument& argument : step.op->schema().arguments()) {
    if (argument.name() == "generator") return true;
  }
  return false;
}

bool NeedsValues(const Step& step, const Machine& machine) {
  if (step.kind != Step::Kind::kCall) return false;
  const std::string& name = step.op->schema().name();
  if (name == "aten::index") {
    for (const int slot : std::get<SlotList>(step.arguments[1]).indices) {
      if (slot != kNoTensor && machine.slot(slot).scalar_type() == at::kBool) {
        return true;
      }
    }
    return false;
  }
  if (name == "aten::index_put_" || name == "aten::index_put") return false;
  // The operator reads LAPACK's error codes in the end.
  if (name == "aten::linalg_inv" || name == "aten::linalg_cholesky") {
    return true;
  }
  return step.op->hasTag(at::Tag::dynamic_output_shape) ||
         step.op->hasTag(at::Tag::data_dependent_output);
}

}  // namespace djinn::random_programs
