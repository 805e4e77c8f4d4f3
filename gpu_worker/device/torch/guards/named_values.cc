#include "gpu_worker/device/torch/guards/named_values.h"

#include "ATen/TensorOperators.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::worker {
namespace {

class ValueCheck final : public ArgumentCheck {
 public:
  ValueCheck(const c10::FunctionSchema& schema, const NamedGuard& guard)
      : schema_(schema), guard_(guard) {}

  absl::Status Check(torch::jit::Stack* arguments) override {
    const absl::Status status = guard_.guard(NamedValues(schema_, *arguments));
    if (status.ok()) return status;
    return MakeError(
        absl::StatusCode::kInvalidArgument, kOperatorFailed,
        absl::StrCat(absl::IsOutOfRange(status) ? "index out of range"
                                                : "operands do not fit",
                     " in ", schema_.name(), ", ", status.message()));
  }

 private:
  const c10::FunctionSchema& schema_;
  const NamedGuard guard_;
};

}  // namespace

at::Tensor NamedValues::Tensor(absl::string_view name) const {
  const c10::IValue* const value = Find(name);
  return value != nullptr && value->isTensor() ? value->toTensor()
                                               : at::Tensor();
}

int64_t NamedValues::Integer(absl::string_view name) const {
  const c10::IValue* const value = Find(name);
  return value != nullptr && value->isInt() ? value->toInt() : 0;
}

double NamedValues::Number(absl::string_view name) const {
  const c10::IValue* const value = Find(name);
  return value != nullptr && value->isDouble() ? value->toDouble() : 0;
}

bool NamedValues::Boolean(absl::string_view name) const {
  const c10::IValue* const value = Find(name);
  return value != nullptr && value->isBool() && value->toBool();
}

std::optional<std::vector<int64_t>> NamedValues::List(
    absl::string_view name) const {
  const c10::IValue* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->isIntList()) return value->toIntVector();
  if (!value->isTensor() || !value->toTensor().defined()) return std::nullopt;
  const at::Tensor wide = value->toTensor().to(at::kLong).contiguous();
  const int64_t* const first = wide.const_data_ptr<int64_t>();
  return std::vector<int64_t>(first, first + wide.numel());
}

const c10::IValue* NamedValues::Find(absl::string_view name) const {
  for (size_t i = 0; i < schema_.arguments().size(); ++i) {
    if (schema_.arguments()[i].name() == name) return &stack_[i];
  }
  return nullptr;
}

absl::Status DoesNotFit(absl::string_view argument) {
  return absl::InvalidArgumentError(absl::StrCat("argument ", argument));
}

absl::Status OutOfRange(absl::string_view argument) {
  return absl::OutOfRangeError(absl::StrCat("argument ", argument));
}

std::unique_ptr<ArgumentCheck> MakeGuard(absl::Span<const NamedGuard> guards,
                                         const c10::FunctionSchema& schema) {
  for (const NamedGuard& named : guards) {
    if (named.op == schema.name()) {
      return std::make_unique<ValueCheck>(schema, named);
    }
  }
  return nullptr;
}

}  // namespace djinn::worker
