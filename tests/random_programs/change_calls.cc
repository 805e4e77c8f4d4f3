#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/random_programs/calls.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

}  // namespace

void Calls::Require(int slot, bool gradient) {
  if (!MayLearn(c_.tensor(slot))) return;
  // Skips gradients that are shared; one of the two references is the oracle's.
  // Skips views, because a view becomes part of the graph only when its own
  // graph is asked for, and no replay asks for it.
  if (gradient && c_.tensor(slot).storage().use_count() > 2) return;
  c_.Add(StepOf(Step::Kind::kRequiresGrad, {Slot{slot}, Value(gradient)}));
}

// Makes a new tensor that may replace this one.
int Calls::Like(int slot) {
  const at::Tensor& tensor = c_.tensor(slot);
  std::vector<int64_t> sizes = tensor.sizes().vec();
  at::ScalarType dtype = tensor.scalar_type();
  if (c_.Chance(0.3)) {
    if (sizes.empty() || c_.Chance(0.2)) {
      sizes.insert(sizes.begin(), c_.Int(1, 3));
    } else {
      int64_t& size = sizes[c_.Int(0, static_cast<int64_t>(sizes.size()) - 1)];
      size = c_.Chance(0.5) ? 1 : size + c_.Int(-1, 1);
      size = std::max<int64_t>(size, 0);
    }
  } else if (c_.Chance(0.1)) {
    dtype = c_.DataType();
  }
  at::Tensor values = c_.Values(dtype, sizes);
  if (body_.weights.contains(slot) && values.is_floating_point()) {
    values = values.mul(0.1);
  }
  if (values.dim() >= 2 && c_.Chance(0.1)) {
    values = values.transpose(0, 1).contiguous().transpose(0, 1);
  }
  return c_.Upload(values);
}

void Calls::WriteParameter() {
  const int slot = AnyParameter().slot;
  const bool learns = c_.tensor(slot).requires_grad();
  const Mode before =
      c_.ExchangeMode(c_.Chance(0.1)             ? Mode::kInference
                      : learns || c_.Chance(0.3) ? Mode::kNoGrad
                                                 : Mode::kNormal);
  int written = slot;
  if (c_.tensor(slot).dim() > 0 && c_.tensor(slot).size(0) > 0 &&
      c_.Chance(0.3)) {
    const int part = c_.Call(
        "select.int",
        {Slot{slot}, Value(0), Value(c_.Int(0, c_.tensor(slot).size(0) - 1))});
    if (part != kNoTensor) written = part;
  } else if (c_.Chance(0.2)) {
    const int alias = c_.Call("detach", {Slot{slot}});
    if (alias != kNoTensor) written = alias;
  }
  switch (c_.Int(0, 4)) {
    case 0:
      c_.Call("mul_.Scalar", {Slot{written}, Value(c_.Int(-1, 2))});
      break;
    case 1:
      c_.Call("add_.Scalar", {Slot{written}, Value(c_.Int(1, 3))});
      break;
    case 2:
      c_.Call("fill_.Scalar", {Slot{written}, Value(c_.Int(0, 2))});
      break;
    case 3:
      c_.Call("normal_", {Slot{written}});
      break;
    default:
      c_.Call("copy_",
              {Slot{written}, Value(c_.Values(c_.tensor(written).scalar_type(),
                                              c_.tensor(written).sizes()))});
  }
  if (written != slot && c_.Chance(0.8)) c_.Drop(written);
  c_.ExchangeMode(before);
}

void Calls::ReplaceParameter() {
  Parameter& parameter = AnyParameter();
  if (!parameter.others.empty() && c_.Chance(0.5)) {
    int& other = parameter.others[c_.Int(
        0, static_cast<int64_t>(parameter.others.size()) - 1)];
    if (c_.alive(other)) std::swap(parameter.slot, other);
    return;
  }
  const int replaced = parameter.slot;
  const bool required = c_.tensor(replaced).requires_grad();
  const Mode before = c_.ExchangeMode(Mode::kNoGrad);
  const int slot =
      c_.Chance(0.3) ? c_.Call("clone", {Slot{replaced}}) : Like(replaced);
  c_.ExchangeMode(before);
  if (slot == kNoTensor) return;
  if (required && c_.Chance(0.85)) Require(slot, true);
  parameter.slot = slot;
  // A dropped tensor's memory may be reused for another tensor.
  const bool first =
      std::find(first_parameters_.begin(), first_parameters_.end(), replaced) !=
      first_parameters_.end();
  if (!first && c_.Chance(0.5)) {
    c_.Drop(replaced);
  } else {
    parameter.others.push_back(replaced);
  }
}

// Puts the same tensor into other memory.
void Calls::MoveParameter() {
  Parameter& parameter = AnyParameter();
  const int slot = parameter.slot;
  const Mode before = c_.ExchangeMode(Mode::kNoGrad);
  int source = kNoTensor;
  if (c_.Chance(0.3)) {
    source = AnyParameter().slot;
  } else if (!parameter.others.empty() && c_.Chance(0.6)) {
    source = c_.OneOf(parameter.others);
  } else {
    source = Like(slot);
    if (source != kNoTensor && c_.Chance(0.5)) {
      parameter.others.push_back(source);
    }
  }
  const bool fits =
      source != kNoTensor && source != slot && c_.alive(source) &&
      c_.tensor(source).is_inference() == c_.tensor(slot).is_inference() &&
      c_.tensor(source).scalar_type() == c_.tensor(slot).scalar_type();
  if (c_.Chance(0.15)) {
    c_.Call("resize_", {Slot{slot}, Ints(c_.Sizes())});
  } else if (fits && c_.Chance(0.7)) {
    c_.Add(StepOf(Step::Kind::kSetData, {Slot{slot}, Slot{source}}));
  } else if (fits) {
    c_.Call("set_.source_Tensor", {Slot{slot}, Slot{source}});
  }
  c_.ExchangeMode(before);
}

// Replaces a parameter by a tensor in the memory of another parameter or an
// argument.
void Calls::AliasParameter() {
  Parameter& parameter = AnyParameter();
  const int replaced = parameter.slot;
  int source = AnyParameter().slot;
  if (!arguments_.empty() && c_.Chance(0.3)) {
    source = GivenFor(c_.OneOf(arguments_));
  }
  if (!c_.alive(source)) return;
  const Mode before =
      c_.ExchangeMode(c_.Chance(0.7) ? Mode::kNoGrad : Mode::kNormal);
  int slot = kNoTensor;
  switch (c_.Int(0, 4)) {
    case 0:
      slot = source;
      break;
    case 1:
      slot = c_.Call("alias", {Slot{source}});
      break;
    case 2:
      if (c_.tensor(source).dim() > 0) {
        slot = c_.Call("slice.Tensor", {Slot{source}, Value(0), Value(1)});
      }
      break;
    case 3:
      if (c_.tensor(source).dim() <= 2) slot = c_.Call("t", {Slot{source}});
      break;
    default:
      slot = c_.Call("detach", {Slot{source}});
      if (slot != kNoTensor && c_.Chance(0.5)) Require(slot, true);
  }
  c_.ExchangeMode(before);
  if (slot == kNoTensor || slot == replaced) return;
  parameter.slot = slot;
  parameter.others.push_back(replaced);
}

void Calls::ChangeGradient() {
  const int slot = AnyParameter().slot;
  if (!MayLearn(c_.tensor(slot))) return;
  switch (c_.Int(0, 4)) {
    case 0:
    case 1:
      return Require(slot, !c_.tensor(slot).requires_grad());
    case 2:
    case 3:
      c_.Add(
          StepOf(Step::Kind::kClearGrad, {Slot{slot}, Value(c_.Chance(0.5))}));
      return;
    default:
      c_.Add(StepOf(Step::Kind::kUpdate, {Slot{slot}, Value(kUpdateRate)}));
  }
}

// Makes a tensor of another type, shape or layout from this one.
std::optional<int> Calls::VariantOf(int slot) {
  const at::Tensor& tensor = c_.tensor(slot);
  const int64_t dims = tensor.dim();
  const auto size = [&](int64_t dim) { return tensor.size(dim); };
  switch (c_.Int(0, 7)) {
    case 0: {
      static const std::vector<at::ScalarType> kFloats = {
          at::kFloat, at::kDouble, at::kBFloat16};
      static const std::vector<at::ScalarType> kIntegers = {at::kInt,
                                                            at::kLong};
      return c_.Call(
          "to.dtype",
          {Slot{slot}, DataTypeArgument(c_.OneOf(
                           tensor.is_floating_point() ? kFloats : kIntegers))});
    }
    case 1:
    case 2: {
      if (dims < 2) return std::nullopt;
      int made =
          c_.Call("transpose.int", {Slot{slot}, Value(0), Value(dims - 1)});
      for (const char* name : {"clone", "transpose.int"}) {
        if (made == kNoTensor) return std::nullopt;
        made =
            name == std::string("clone")
                ? c_.Call(
                      name, {Slot{made}},
                      {{"memory_format", Value(static_cast<int64_t>(
                                             at::MemoryFormat::Contiguous))}})
                : c_.Call(name, {Slot{made}, Value(0), Value(dims - 1)});
      }
      return made;
    }
    case 3:
      if (dims == 0 || size(0) < 2) return std::nullopt;
      return c_.Call("slice.Tensor", {Slot{slot}, Value(0), Value(c_.Int(0, 1)),
                                      Value(size(0) - c_.Int(0, 1)), Value(1)});
    case 4:
      if (dims == 0) return std::nullopt;
      return c_.Call("cat", {SlotList{{slot, slot}}, Value(0)});
    case 5:
      return c_.Call("unsqueeze", {Slot{slot}, Value(0)});
    case 6:
      return c_.Call("clone", {Slot{slot}});
    default: {
      const auto other = c_.Pick([&](const at::Tensor& t) {
        return t.scalar_type() == tensor.scalar_type() &&
               t.sizes() == tensor.sizes();
      });
      return other;
    }
  }
}

void Calls::VaryArgument() {
  if (arguments_.empty()) return;
  const int argument = c_.OneOf(arguments_);
  if (varied_.erase(argument) > 0 && c_.Chance(0.7)) return;
  const int slot = SlotIn(slots_, argument);
  if (slot == kNoTensor || !c_.alive(slot)) return;
  if (c_.Chance(0.25)) {
    varied_[argument] = !parameters_.empty() && c_.Chance(0.4)
                            ? AnyParameter().slot
                            : GivenFor(c_.OneOf(arguments_));
    return;
  }
  const std::optional<int> variant = VariantOf(slot);
  if (variant.has_value() && *variant != kNoTensor) {
    varied_[argument] = *variant;
  }
}

void Calls::Change() {
  const int64_t choice = c_.Int(0, parameters_.empty() ? 8 : 20);
  switch (choice) {
    case 0:
    case 1:
    case 2:
      mode_ = mode_ != first_mode_     ? first_mode_
              : mode_ != Mode::kNormal ? Mode::kNormal
              : c_.Chance(0.6)         ? Mode::kNoGrad
                                       : Mode::kInference;
      return;
    case 3:
      fast_ = !fast_;
      c_.Add(StepOf(Step::Kind::kSetFast, {Value(fast_)}));
      return;
    case 4:
    case 5:
      attribute_ = (attribute_ + 1) % attributes_.size();
      return;
    case 6:
    case 7:
    case 8:
      return VaryArgument();
    case 9:
    case 10:
    case 11:
    case 12:
      return WriteParameter();
    case 13:
    case 14:
    case 15:
      if (!callable_->same_parameters) return ReplaceParameter();
      return MoveParameter();
    case 16:
      return MoveParameter();
    case 17:
      if (!callable_->same_parameters) return AliasParameter();
      return MoveParameter();
    default:
      return ChangeGradient();
  }
}

void Calls::ChangeBack() {
  varied_.clear();
  attribute_ = 0;
  mode_ = first_mode_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int first = first_parameters_[i];
    if (parameters_[i].slot == first || !c_.alive(first)) continue;
    parameters_[i].others.push_back(parameters_[i].slot);
    parameters_[i].slot = first;
  }
}

}  // namespace djinn::random_programs
