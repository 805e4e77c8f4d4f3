#include <ATen/ExpandUtils.h>

#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

using Value = c10::IValue;

// Returns an output tensor, which has the right size, a wrong size, or no
// elements.
int PickOutput(Composer& c, int like) {
  const auto found = c.Pick([&](const at::Tensor& t) {
    return t.sizes() == c.tensor(like).sizes() || c.Chance(0.1);
  });
  if (found.has_value() && c.Chance(0.7)) return *found;
  return c.Call("empty.memory_format", {Ints({0})},
                {{"dtype", DataTypeArgument(c.tensor(like).scalar_type())}});
}

Value RandomScalar(Composer& c) {
  if (c.Chance(0.5)) return Value(c.Int(-4, 4));
  if (c.Chance(0.1)) return Value(c.Chance(0.5));
  return Value(c.Real());
}

void MakeScalarCall(Composer& c, int self) {
  const std::string in_place = c.Chance(0.4) ? "_" : "";
  switch (c.Int(0, 6)) {
    case 0:
      c.Call(c.OneOf({"add", "sub"}) + in_place + ".Scalar",
             {Slot{self}, RandomScalar(c), RandomScalar(c)});
      return;
    case 1:
      c.Call(
          c.OneOf({"mul", "div", "remainder", "fmod"}) + in_place + ".Scalar",
          {Slot{self}, RandomScalar(c)});
      return;
    case 2:
      c.Call("pow" + (in_place.empty() ? std::string(".Tensor_Scalar")
                                       : std::string("_.Scalar")),
             {Slot{self}, RandomScalar(c)});
      return;
    case 3:
      c.Call(
          c.OneOf({"eq", "ne", "lt", "le", "gt", "ge"}) + in_place + ".Scalar",
          {Slot{self}, RandomScalar(c)});
      return;
    case 4:
      c.Call("clamp" + in_place,
             {Slot{self}, c.Chance(0.5) ? RandomScalar(c) : Value(-1),
              c.Chance(0.5) ? RandomScalar(c) : Value()});
      return;
    case 5:
      c.Call(c.OneOf({"fill_.Scalar", "clamp_min", "clamp_max", "rsub.Scalar",
                      "bitwise_and.Scalar", "xlogy.Scalar_Other",
                      "floor_divide.Scalar"}),
             {Slot{self}, RandomScalar(c)});
      return;
    default:
      c.Call("div" + in_place + ".Scalar_mode", {Slot{self}, RandomScalar(c)},
             {{"rounding_mode", Value(c.OneOf({"floor", "trunc"}))}});
  }
}

void MakeTernary(Composer& c, int self) {
  // These calls refuse a CPU tensor among tensors of another device. Only calls
  // of two tensors accept one.
  const Slot a = c.PickSlotPartner(self), b = c.PickSlotPartner(self);
  const std::string in_place = c.Chance(0.4) ? "_" : "";
  switch (c.Int(0, 4)) {
    case 0:
      c.Call("addcmul" + in_place, {Slot{self}, a, b},
             {{"value", Value(c.Real())}});
      return;
    case 1:
      c.Call("addcdiv" + in_place, {Slot{self}, a, b},
             {{"value", Value(c.Real())}});
      return;
    case 2:
      c.Call("lerp" + in_place + ".Scalar", {Slot{self}, a, Value(c.Real())});
      return;
    case 3:
      c.Call("lerp" + in_place + ".Tensor", {Slot{self}, a, b});
      return;
    default: {
      const int mask = c.Call("gt.Scalar", {Slot{self}, Value(c.Real())});
      if (mask == kNoTensor) return;
      if (c.Chance(0.5)) {
        c.Call("where.self", {Slot{mask}, a, b});
      } else {
        c.Call("where.ScalarOther", {Slot{mask}, a, RandomScalar(c)});
      }
    }
  }
}

}  // namespace

void MakeUnary(Composer& c) {
  const auto self = c.PickAny();
  if (!self.has_value()) return;
  const std::string name =
      c.OneOf({"neg",         "abs",         "sign",        "relu",
               "sigmoid",     "tanh",        "exp",         "log1p",
               "sqrt",        "rsqrt",       "sin",         "cos",
               "floor",       "ceil",        "round",       "trunc",
               "erf",         "gelu",        "silu",        "softplus",
               "hardtanh",    "leaky_relu",  "elu",         "square",
               "logical_not", "bitwise_not", "isnan",       "isinf",
               "isfinite",    "expm1",       "frac",        "sgn",
               "clone",       "contiguous",  "nan_to_num",  "mish",
               "selu",        "hardswish",   "hardsigmoid", "log_sigmoid",
               "tril",        "triu",        "reciprocal",  "log",
               "asin",        "atan",        "exp2",        "log2",
               "celu",        "relu6",       "softmax.int", "log_softmax.int",
               "positive",    "signbit",     "digamma",     "erfinv",
               "i0",          "sinh",        "logit",       "zeros_like",
               "ones_like",   "deg2rad"});
  if (name == "softmax.int" || name == "log_softmax.int") {
    const int64_t dims = c.tensor(*self).dim();
    c.Call(name, {Slot{*self}, Value(dims > 0 ? c.Int(-dims, dims - 1) : 0)});
    return;
  }
  if (c.Chance(0.3)) {
    const std::string in_place =
        c.OneOf({"neg_",        "abs_",         "relu_",        "sigmoid_",
                 "tanh_",       "exp_",         "sqrt_",        "floor_",
                 "ceil_",       "round_",       "erf_",         "gelu_",
                 "silu_",       "hardtanh_",    "leaky_relu_",  "elu_",
                 "square_",     "logical_not_", "bitwise_not_", "zero_",
                 "sign_",       "trunc_",       "sin_",         "cos_",
                 "reciprocal_", "nan_to_num_",  "tril_",        "triu_",
                 "expm1_",      "log1p_",       "frac_",        "hardswish_",
                 "selu_",       "celu_"});
    c.Call(in_place, {Slot{*self}});
    return;
  }
  if (c.Chance(0.12)) {
    const std::string with_out =
        c.OneOf({"neg", "abs", "sigmoid", "tanh", "exp", "sqrt", "floor", "erf",
                 "gelu", "silu", "sign", "trunc", "sin", "cos", "log"});
    const int out = PickOutput(c, *self);
    if (out != kNoTensor) {
      c.Call(with_out + ".out", {Slot{*self}}, {{"out", Slot{out}}});
    }
    return;
  }
  c.Call(name, {Slot{*self}});
}

void MakeElementwise(Composer& c) {
  const auto picked = c.PickAny();
  if (!picked.has_value()) return;
  const int self = *picked;
  if (c.Chance(0.3)) return MakeScalarCall(c, self);
  if (c.Chance(0.15)) return MakeTernary(c, self);
  const Argument other = c.PickPartner(self);
  const bool in_place = c.Chance(0.35);
  const std::string mark = in_place ? "_" : "";
  const bool with_out = !in_place && c.Chance(0.2);
  const std::string overload = with_out ? ".out" : ".Tensor";
  Composer::Named named;
  if (with_out) {
    const int out = PickOutput(c, self);
    if (out == kNoTensor) return;
    named["out"] = Slot{out};
  }
  switch (c.Int(0, 5)) {
    case 0:
    case 1:
      if (c.Chance(0.4)) named["alpha"] = RandomScalar(c);
      c.Call(c.OneOf({"add", "sub"}) + mark + overload, {Slot{self}, other},
             named);
      return;
    case 2:
      c.Call(c.OneOf({"mul", "div", "mul"}) + mark + overload,
             {Slot{self}, other}, named);
      return;
    case 3:
      c.Call(c.OneOf({"eq", "ne", "lt", "le", "gt", "ge", "bitwise_and",
                      "bitwise_or", "bitwise_xor"}) +
                 mark + (with_out ? ".Tensor_out" : ".Tensor"),
             {Slot{self}, other}, named);
      return;
    case 4:
      if (in_place || with_out) {
        c.Call(c.OneOf({"logical_and", "logical_or", "logical_xor", "atan2",
                        "hypot"}) +
                   mark + (with_out ? ".out" : ""),
               {Slot{self}, other}, named);
        return;
      }
      c.Call(c.OneOf({"logical_and", "logical_or", "logical_xor", "atan2",
                      "hypot", "maximum", "minimum", "fmax", "fmin",
                      "xlogy.Tensor", "pow.Tensor_Tensor", "remainder.Tensor",
                      "fmod.Tensor", "floor_divide", "copysign.Tensor",
                      "heaviside", "logaddexp", "nextafter", "squeeze"}),
             {Slot{self}, other}, named);
      return;
    default:
      named["rounding_mode"] = Value(c.OneOf({"floor", "trunc"}));
      c.Call("div" + mark + (with_out ? ".out_mode" : ".Tensor_mode"),
             {Slot{self}, other}, named);
  }
}

void MakeCopy(Composer& c) {
  const auto self = c.PickAny();
  if (!self.has_value()) return;
  const at::Tensor& target = c.tensor(*self);
  switch (c.Int(0, 6)) {
    case 0:
      c.Call("to.dtype", {Slot{*self}, DataTypeArgument(c.DataType()),
                          Value(false), Value(c.Chance(0.2))});
      return;
    case 1: {  // from the CPU
      const at::Tensor values = c.Values(
          c.Chance(0.5) ? target.scalar_type() : c.DataType(), target.sizes());
      c.Call("copy_", {Slot{*self}, Value(values)});
      return;
    }
    case 2:
      c.Call("copy_", {Slot{*self}, Value(c.Values(c.DataType(), {}))});
      return;
    case 3:
      c.Call("clone", {Slot{*self}});
      return;
    case 4:
      c.Call(c.OneOf({"expand_as", "type_as"}),
             {Slot{*self}, c.PickSlotPartner(*self)});
      return;
    default: {
      const auto source = c.Pick([&](const at::Tensor& t) {
        return at::is_expandable_to(t.sizes(), target.sizes()) ||
               c.Chance(0.02);
      });
      if (source.has_value()) c.Call("copy_", {Slot{*self}, Slot{*source}});
    }
  }
}

}  // namespace djinn::random_programs
