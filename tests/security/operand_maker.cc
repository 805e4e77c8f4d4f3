#include "tests/security/operand_maker.h"

#include <limits>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "absl/strings/match.h"
#include "c10/core/InferenceMode.h"

namespace djinn {
namespace {

constexpr int64_t kFar = int64_t{1} << 30;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Returns the type within a list or an optional type; null for others.
const c10::Type* Inner(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) {
    return optional->getElementType().get();
  }
  if (const auto* list = type.castRaw<c10::ListType>()) {
    return list->getElementType().get();
  }
  return nullptr;
}

bool SupportsType(const c10::Type& type) {
  if (const c10::Type* const inner = Inner(type)) return SupportsType(*inner);
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
      return true;
    default:
      return false;
  }
}

// Returns whether an operand of this name holds indices or counts.
bool HoldsIndices(const std::string& name) {
  for (const char* const part :
       {"ind", "target", "offset", "length", "lengths", "bag", "repeats",
        "crow", "ccol", "boundaries", "order", "pivots", "size"}) {
    if (absl::StrContains(name, part)) return true;
  }
  return false;
}

}  // namespace

bool OperandMaker::Supports(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (!SupportsType(*argument.real_type())) return false;
  }
  for (const c10::Argument& result : schema.returns()) {
    const c10::Type& type = *result.real_type();
    const c10::Type* const inner = Inner(type);
    if ((inner == nullptr ? type : *inner).kind() !=
        c10::TypeKind::TensorType) {
      return false;
    }
  }
  return true;
}

torch::jit::Stack OperandMaker::Make(const c10::FunctionSchema& schema) {
  const c10::InferenceMode inference;
  hostile_ = OneIn(2);
  sizes_ = MakeSizes();
  type_ = OneIn(3) ? Pick({at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                           at::kInt, at::kByte, at::kBool, at::kComplexFloat})
                   : at::kFloat;
  torch::jit::Stack operands;
  for (const c10::Argument& argument : schema.arguments()) {
    const bool keeps =
        argument.default_value().has_value() &&
        argument.real_type()->kind() != c10::TypeKind::GeneratorType &&
        !OneIn(3);
    operands.push_back(keeps
                           ? *argument.default_value()
                           : MakeValue(*argument.real_type(), argument.name()));
  }
  return operands;
}

std::vector<int64_t> OperandMaker::MakeSizes() {
  std::vector<int64_t> sizes(Below(5));
  for (int64_t& size : sizes) size = Pick<int64_t>({1, 2, 3, 4, 6});
  if (OneIn(10)) sizes = {1, 3000};
  return sizes;
}

int64_t OperandMaker::MakeInteger() {
  if (Hostile()) {
    return Pick<int64_t>({kFar, -kFar, kMost, -kMost - 1, int64_t{1} << 33,
                          int64_t{1} << 62, 100'000, -1, -2, 1 << 20});
  }
  return Pick<int64_t>({0, 0, 1, 1, 2, 3, -1});
}

at::Tensor OperandMaker::MakeTensor(const std::string& name) {
  at::ScalarType type = HoldsIndices(name) ? at::kLong : type_;
  std::vector<int64_t> sizes = sizes_;
  if (OneIn(hostile_ ? 3 : 6)) sizes = MakeSizes();
  // Weights, biases and statistics have few dimensions.
  if (OneIn(5)) sizes = {sizes_.size() > 1 ? sizes_[1] : 3};
  if (Hostile()) {
    type = Pick({at::kFloat, at::kDouble, at::kLong, at::kInt, at::kShort,
                 at::kChar, at::kByte, at::kBool, at::kHalf, at::kComplexFloat,
                 at::kComplexDouble});
    if (OneIn(4)) sizes = {16};
  }
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  at::Tensor tensor;
  if (type == at::kLong || type == at::kInt) {
    tensor = at::empty({count}, type);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = MakeInteger();
      if (type == at::kLong) {
        tensor.mutable_data_ptr<int64_t>()[i] = value;
      } else {
        tensor.mutable_data_ptr<int32_t>()[i] = static_cast<int32_t>(value);
      }
    }
  } else {
    tensor = at::arange(count, at::kFloat).mul_(0.25).add_(0.5).to(type);
  }
  tensor = tensor.view(sizes);
  if (!Hostile()) return tensor;
  const c10::Storage storage = tensor.storage();
  switch (Below(5)) {
    case 0:  // one element, everywhere
      return tensor.view({-1}).narrow(0, 0, 1).expand(
          {Pick<int64_t>({1 << 10, 1 << 20, int64_t{1} << 33})});
    case 1:  // rows that overlap
      return count > 2 ? tensor.as_strided({count - 1, 2}, {1, 1}) : tensor;
    case 2:  // begins late
      return tensor.view({-1}).narrow(0, count - 1, 1);
    case 3:  // nothing of a large storage
      return tensor.view({-1}).narrow(0, 0, 0);
    default:
      return sizes.size() < 2 ? tensor : tensor.transpose(0, -1);
  }
}

c10::IValue OperandMaker::MakeValue(const c10::Type& type,
                                    const std::string& name) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) {
    const c10::Type& inner = *optional->getElementType();
    if (inner.kind() == c10::TypeKind::GeneratorType || OneIn(3)) {
      return c10::IValue();
    }
    return MakeValue(inner, name);
  }
  if (const auto* list = type.castRaw<c10::ListType>()) {
    const c10::Type& element = *list->getElementType();
    const size_t size = Pick<size_t>({0, 1, 1, 2, 2, 3, 4});
    switch (element.kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType: {
        c10::List<int64_t> values;
        for (size_t i = 0; i < size; ++i) values.push_back(MakeInteger());
        return values;
      }
      case c10::TypeKind::BoolType: {
        c10::List<bool> values;
        for (size_t i = 0; i < size; ++i) values.push_back(OneIn(2));
        return values;
      }
      case c10::TypeKind::FloatType: {
        c10::List<double> values;
        for (size_t i = 0; i < size; ++i) values.push_back(0.5);
        return values;
      }
      case c10::TypeKind::TensorType: {
        c10::List<at::Tensor> values;
        for (size_t i = 0; i < size; ++i) values.push_back(MakeTensor(name));
        return values;
      }
      case c10::TypeKind::NumberType: {
        c10::List<c10::IValue> values(c10::NumberType::get());
        for (size_t i = 0; i < size; ++i) values.push_back(MakeInteger());
        return values;
      }
      default: {
        c10::List<std::optional<at::Tensor>> values;
        for (size_t i = 0; i < size; ++i) {
          values.push_back(OneIn(3) ? std::nullopt
                                    : std::optional(MakeTensor(name)));
        }
        return values;
      }
    }
  }
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return MakeTensor(name);
    case c10::TypeKind::FloatType:
      return Hostile() ? Pick({1e300, -1.0, 0.0,
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()})
                       : Pick({0.5, 1.0, 2.5});
    case c10::TypeKind::BoolType:
      return OneIn(2);
    case c10::TypeKind::NumberType:
      return OneIn(2) ? c10::IValue(MakeInteger()) : c10::IValue(0.5);
    case c10::TypeKind::StringType:
      return std::string(Pick({"", "mean", "none", "sum", "ij,jk->ik", "tanh",
                               "reflect", "floor", "linear"}));
    case c10::TypeKind::ScalarTypeType:
      return static_cast<int64_t>(Hostile() ? Pick({4, 8, 11, 12, 15, 44, 99})
                                            : 6);
    case c10::TypeKind::LayoutType:
      return int64_t{0};
    case c10::TypeKind::MemoryFormatType:
      return static_cast<int64_t>(Hostile() ? 2 : 0);
    case c10::TypeKind::DeviceObjType:
      return c10::Device(c10::kCPU);
    case c10::TypeKind::GeneratorType:
      return c10::IValue();
    default:
      return MakeInteger();
  }
}

}  // namespace djinn
