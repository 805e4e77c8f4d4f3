// Rules for elementwise operators, and for losses, which are elementwise
// operators with a reduction.
#include "ATen/core/Reduction.h"
#include "c10/core/DefaultDtype.h"
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::ScalarType;

void CheckNotBool(const char* op, ScalarType dtype) {
  TORCH_CHECK(dtype != ScalarType::Bool, op, " is not supported for bool");
}

// Returns a scalar operand, which TensorIterator treats as a tensor without
// dimensions. Its dtype never causes a copy that affects the result.
ResultMeta Number() { return ResultMeta(); }

Results LikeSelf(const CallArguments& args) {
  return {EmptyLike(args.Tensor(0).scalar_type(), args.Tensor(0))};
}

// ---- One operand ----

Results SameType(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  return {Elementwise(self.scalar_type(), {Describe(self)})};
}

Results FloatingOnly(const CallArguments& args) {
  CheckFloating("elementwise operator", args.Tensor(0));
  return SameType(args);
}

Results IntegersToFloating(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const ScalarType common = FloatingOrDefault(self.scalar_type());
  return {Elementwise(common, {Describe(self)}, common)};
}

Results FloatingLikeSelf(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  return {EmptyLike(FloatingOrDefault(self.scalar_type()), self)};
}

Results ToBool(const CallArguments& args) {
  return {Elementwise(ScalarType::Bool, {Describe(args.Tensor(0))})};
}

Results Relu(const CallArguments& args) {
  CheckNotBool("relu", args.Tensor(0).scalar_type());
  TORCH_CHECK(!args.Tensor(0).is_complex(), "relu: complex is not supported");
  return SameType(args);
}

// The magnitude or phase of a complex number is real.
Results Abs(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckNotBool("abs", self.scalar_type());
  if (self.is_complex()) {
    return {EmptyLike(c10::toRealValueType(self.scalar_type()), self)};
  }
  return SameType(args);
}

Results Angle(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  if (self.is_complex()) {
    return {Contiguous(c10::toRealValueType(self.scalar_type()), self.sizes())};
  }
  return IntegersToFloating(args);
}

Results Hardtanh(const CallArguments& args) {
  const ScalarType dtype = args.Tensor(0).scalar_type();
  CheckNotBool("hardtanh", dtype);
  TORCH_CHECK(!c10::isComplexType(dtype), "clamp is not supported for complex");
  for (const size_t limit : {1, 2}) {
    // Floating-point limits differ from run to run, so only integers are
    // checked.
    TORCH_CHECK(dtype != ScalarType::Byte ||
                    !args.Scalar(limit).isIntegral(false) ||
                    args.Scalar(limit).toLong() >= 0,
                "cannot do hardtanh on an unsigned type with negative limits");
  }
  return LikeSelf(args);
}

// Returns the result of a kernel that compares the magnitude with a number; for
// a complex number it compares each part.
Results IsInfinite(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) {
    return {EmptyLike(ScalarType::Bool, self)};
  }
  ResultMeta part = Describe(self);
  if (self.is_complex()) {
    part.dtype = c10::toRealValueType(part.dtype);
    for (int64_t& stride : part.strides) stride *= 2;
  }
  const ResultMeta magnitude = Elementwise(part.dtype, {part});
  return {Elementwise(ScalarType::Bool, {magnitude, Number()})};
}

// Returns mantissas and exponents.
Results Frexp(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckFloating("frexp", self);
  return {EmptyLike(self.scalar_type(), self),
          EmptyLike(ScalarType::Int, self)};
}

Results LogSigmoidForward(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckFloating("log_sigmoid_forward", self);
  const ResultMeta result = Contiguous(self.scalar_type(), self.sizes());
  return {result, result};
}

// ---- Two or more operands ----

ScalarType Promote(const at::Tensor& left, const at::Tensor& right) {
  return TypePromotion().Add(left).Add(right).Result();
}

ResultMeta Binary(const at::Tensor& left, const at::Tensor& right) {
  const ScalarType common = Promote(left, right);
  return Elementwise(common, {Describe(left), Describe(right)}, common);
}

Results BinaryPromoting(const CallArguments& args) {
  return {Binary(args.Tensor(0), args.Tensor(1))};
}

Results TensorAndScalar(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const ScalarType common =
      TypePromotion().Add(self).Add(args.Scalar(1)).Result();
  return {Elementwise(common, {Describe(self), Number()}, common)};
}

Results ScalarAndTensor(const CallArguments& args) {
  const at::Tensor& other = args.Tensor(1);
  const ScalarType common =
      TypePromotion().Add(args.Scalar(0)).Add(other).Result();
  return {Elementwise(common, {Number(), Describe(other)}, common)};
}

// `kernel` is PyTorch's name for it.
Results Shifted(const char* kernel, Results results) {
  const ScalarType type = results[0].dtype;
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(type, /*includeBool=*/false),
                              '"', kernel, "\" not implemented for '",
                              c10::toString(type), "'");
  return results;
}

Results LeftShift(const CallArguments& args) {
  return Shifted("lshift_cpu", BinaryPromoting(args));
}

Results LeftShiftByScalar(const CallArguments& args) {
  return Shifted("lshift_cpu", TensorAndScalar(args));
}

Results RightShift(const CallArguments& args) {
  return Shifted("rshift_cpu", BinaryPromoting(args));
}

Results RightShiftByScalar(const CallArguments& args) {
  return Shifted("rshift_cpu", TensorAndScalar(args));
}

Results Rsub(const CallArguments& args) {
  TORCH_CHECK(args.Tensor(0).scalar_type() != ScalarType::Bool &&
                  args.Tensor(1).scalar_type() != ScalarType::Bool,
              "Subtraction, the `-` operator, with a bool tensor is not "
              "supported.");
  // rsub subtracts the first operand from the second.
  return {Binary(args.Tensor(1), args.Tensor(0))};
}

Results RsubScalar(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckNotBool("rsub", self.scalar_type());
  const ScalarType common =
      TypePromotion().Add(args.Scalar(1)).Add(self).Result();
  return {Elementwise(common, {Describe(self), Number()}, common)};
}

Results BinaryToBool(const CallArguments& args) {
  const at::Tensor& left = args.Tensor(0);
  const at::Tensor& right = args.Tensor(1);
  return {Elementwise(ScalarType::Bool, {Describe(left), Describe(right)},
                      Promote(left, right))};
}

// Operands must have one dtype, which is the result's.
Results SameTypes(const CallArguments& args) {
  const at::Tensor& left = args.Tensor(0);
  const at::Tensor& right = args.Tensor(1);
  CheckSameType("elementwise operator", {left, right});
  return {Elementwise(left.scalar_type(), {Describe(left), Describe(right)})};
}

ResultMeta WhereOf(const at::Tensor& condition, const at::Tensor& self,
                   const at::Tensor& other, ScalarType common) {
  TORCH_CHECK(condition.scalar_type() == ScalarType::Bool ||
                  condition.scalar_type() == ScalarType::Byte,
              "where expected condition to be a boolean tensor, but got a "
              "tensor with dtype ",
              c10::toString(condition.scalar_type()));
  auto copied = [](const at::Tensor& tensor, ScalarType dtype) {
    return tensor.scalar_type() == dtype ? Describe(tensor)
                                         : EmptyLike(dtype, tensor);
  };
  return Elementwise(common, {copied(condition, ScalarType::Bool),
                              copied(self, common), copied(other, common)});
}

Results Where(const CallArguments& args) {
  return {WhereOf(args.Tensor(0), args.Tensor(1), args.Tensor(2),
                  Promote(args.Tensor(1), args.Tensor(2)))};
}

// A scalar branch has no dimensions, so it does not affect the result's sizes.
ResultMeta WhereScalar(const at::Tensor& condition, const at::Tensor& branch,
                       ScalarType common) {
  return WhereOf(condition, branch, branch, common);
}

Results WhereScalarOther(const CallArguments& args) {
  return {WhereScalar(
      args.Tensor(0), args.Tensor(1),
      TypePromotion().Add(args.Tensor(1)).Add(args.Scalar(2)).Result())};
}

Results WhereScalarSelf(const CallArguments& args) {
  return {WhereScalar(
      args.Tensor(0), args.Tensor(2),
      TypePromotion().Add(args.Scalar(1)).Add(args.Tensor(2)).Result())};
}

Results WhereScalars(const CallArguments& args) {
  const at::Tensor& condition = args.Tensor(0);
  const ScalarType common =
      TypePromotion().Add(args.Scalar(1)).Add(args.Scalar(2)).Result();
  return {Elementwise(common, {Describe(condition), Number()})};
}

// Returns the result of a kernel that receives a result like its first operand,
// and resizes it if its sizes differ.
ResultMeta LikeFirst(const at::Tensor& first, const at::Tensor& second,
                     std::optional<ScalarType> common = std::nullopt) {
  ResultMeta result = Elementwise(first.scalar_type(),
                                  {Describe(first), Describe(second)}, common);
  if (result.sizes == first.sizes()) result = EmptyLike(result.dtype, first);
  return result;
}

Results PreluKernel(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckSameType("prelu", {self, args.Tensor(1)});
  return {LikeFirst(self, args.Tensor(1))};
}

Results PreluKernelBackward(const CallArguments& args) {
  const at::Tensor& grad = args.Tensor(0);
  const at::Tensor& self = args.Tensor(1);
  const at::Tensor& weight = args.Tensor(2);
  // One iteration over (self, weight, grad) computes both results.
  const ResultMeta result = Elementwise(
      self.scalar_type(), {Describe(self), Describe(weight), Describe(grad)});
  return {result, result};
}

// Returns the result of ldexp. A separate kernel adds integer exponents to
// floating-point numbers; every other combination is a product.
Results Ldexp(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const at::Tensor& other = args.Tensor(1);
  if (!c10::isFloatingType(self.scalar_type()) ||
      !c10::isIntegralType(other.scalar_type(), /*includeBool=*/true)) {
    return {};
  }
  return {LikeFirst(self, other)};
}

// These gradients iterate over (grad, self), in either order.
Results GradThenSelf(const CallArguments& args) { return SameTypes(args); }

Results Complex(const CallArguments& args) {
  const at::Tensor& real = args.Tensor(0);
  const at::Tensor& imaginary = args.Tensor(1);
  CheckFloating("complex", real);
  CheckSameType("complex", {real, imaginary});
  TORCH_CHECK(real.scalar_type() != ScalarType::BFloat16,
              "Expected both inputs to be Half, Float or Double tensors");
  return {Elementwise(c10::toComplexType(real.scalar_type()),
                      {Describe(real), Describe(imaginary)})};
}

// ---- Dropout ----

void CheckProbability(double p) {
  TORCH_CHECK(p >= 0 && p <= 1,
              "dropout probability has to be between 0 and 1, but got ", p);
}

// In evaluation mode the result is the input itself, with its strides.
Results Dropout(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const double p = args.Real(1);
  CheckProbability(p);
  if (p == 0 || !args.Boolean(2) || input.numel() == 0) {
    return {Describe(input)};
  }
  if (p == 1) {
    return {Elementwise(input.scalar_type(), {Describe(input), Number()})};
  }
  CheckFloating("dropout", input, /*complex_too=*/true);
  const ResultMeta noise = EmptyLike(input.scalar_type(), input);
  return {Elementwise(input.scalar_type(), {Describe(input), noise})};
}

Results NativeDropout(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const ScalarType dtype = input.scalar_type();
  const bool train = !args.Has(2) || args.Boolean(2);
  if (input.numel() == 0) return {Describe(input), EmptyLike(dtype, input)};
  const ResultMeta mask = EmptyLike(ScalarType::Bool, input);
  if (!train) return {EmptyLike(dtype, input), mask};
  return {Elementwise(dtype, {Describe(input), mask}, dtype), mask};
}

// The gradient is multiplied by the mask, and then by a floating-point number.
Results NativeDropoutBackward(const CallArguments& args) {
  const ResultMeta product = Binary(args.Tensor(0), args.Tensor(1));
  const ScalarType common = FloatingOrDefault(product.dtype);
  return {Elementwise(common, {product, Number()}, common)};
}

// ---- Losses ----

Results Reduced(ResultMeta loss, int64_t reduction) {
  if (reduction == at::Reduction::None) return {std::move(loss)};
  return {Contiguous(loss.dtype, {})};
}

Results BinaryCrossEntropy(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  CheckFloating("binary_cross_entropy", input);
  std::vector<at::Tensor> operands = {input, args.Tensor(1)};
  if (args.Has(2)) operands.push_back(args.Tensor(2));
  CheckSameType("binary_cross_entropy", operands);
  TORCH_CHECK(NumElements(Describe(args.Tensor(1))) == input.numel() ||
                  args.Tensor(1).dim() < input.dim(),
              "binary_cross_entropy: shapes differ");
  return Reduced(EmptyLike(input.scalar_type(), input), args.Integer(3));
}

Results BinaryCrossEntropyBackward(const CallArguments& args) {
  return {EmptyLike(args.Tensor(1).scalar_type(), args.Tensor(1))};
}

Results BinaryCrossEntropyWithLogits(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& target = args.Tensor(1);
  CheckFloating("log_sigmoid_forward", input);
  // The kernel computes the loss from 1 - target in place, so the loss keeps
  // that layout.
  TORCH_CHECK(target.scalar_type() != ScalarType::Bool,
              "Subtraction with a bool tensor is not supported.");
  ResultMeta loss = EmptyLike(target.scalar_type(), target);
  std::vector<at::Tensor> factors = {input};
  if (args.Has(2)) factors.push_back(args.Tensor(2));
  for (const at::Tensor& factor : factors) {
    TORCH_CHECK(Broadcast(loss.sizes, factor.sizes()) == loss.sizes,
                "output with shape ", c10::IntArrayRef(loss.sizes),
                " doesn't match the broadcast shape of ", factor.sizes());
    TORCH_CHECK(c10::canCast(factor.scalar_type(), loss.dtype),
                "result type can't be cast to ", c10::toString(loss.dtype));
  }
  return Reduced(loss, args.Integer(4));
}

Results HuberLoss(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& target = args.Tensor(1);
  TORCH_CHECK(args.Real(3) > 0,
              "huber_loss does not support non-positive values for delta.");
  const ScalarType common = Promote(input, target);
  TORCH_CHECK(c10::canCast(common, input.scalar_type()), "result type ",
              c10::toString(common),
              " can't be cast to the desired output type ",
              c10::toString(input.scalar_type()));
  return Reduced(LikeFirst(input, target, common), args.Integer(2));
}

// The noise is an argument.
Results RreluWithNoise(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.sym_sizes() == args.Tensor(1).sym_sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape "
              "= ",
              self.sizes(), " noise.shape = ", args.Tensor(1).sizes());
  return {Contiguous(self.scalar_type(), self.sizes())};
}

// Returns the result of kernels that receive a contiguous result with the
// input's sizes, and resize it if operands broadcast to other sizes.
Results LossBackward(const CallArguments& args) {
  const at::Tensor& grad = args.Tensor(0);
  const at::Tensor& self = args.Tensor(1);
  const at::Tensor& target = args.Tensor(2);
  CheckSameType("a loss' backward", {self, target});
  const ResultMeta resized = Elementwise(
      self.scalar_type(), {Describe(self), Describe(target), Describe(grad)});
  if (resized.sizes != self.sizes()) return {resized};
  return {Contiguous(self.scalar_type(), self.sizes())};
}

Results SoftMarginLoss(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  return Reduced(Elementwise(self.scalar_type(), {Describe(self)}),
                 args.Integer(2));
}

}  // namespace

void AddPointwiseRules(RuleTable* table) {
  table->Add({"aten::relu"}, Relu);
  table->Add({"aten::abs"}, Abs);
  table->Add({"aten::angle"}, Angle);
  table->Add({"aten::hardtanh"}, Hardtanh);
  table->Add({"aten::deg2rad", "aten::rad2deg"}, FloatingLikeSelf);
  table->Add({"aten::hardswish"}, FloatingOnly);
  table->Add({"aten::logit"}, IntegersToFloating);
  table->Add({"aten::isnan", "aten::logical_not"}, ToBool);
  table->Add({"aten::isinf"}, IsInfinite);
  table->Add({"aten::frexp.Tensor"}, Frexp);
  table->Add({"aten::nan_to_num"}, LikeSelf);
  table->Add({"aten::log_sigmoid_forward"}, LogSigmoidForward);
  table->Add({"aten::log_sigmoid_backward"}, LikeSelf);

  table->Add({"aten::rsub.Tensor"}, Rsub);
  table->Add({"aten::rsub.Scalar"}, RsubScalar);
  table->Add({"aten::floor_divide"}, BinaryPromoting);
  table->Add({"aten::__lshift__.Tensor"}, LeftShift);
  table->Add({"aten::__lshift__.Scalar"}, LeftShiftByScalar);
  table->Add({"aten::__rshift__.Tensor"}, RightShift);
  table->Add({"aten::__rshift__.Scalar"}, RightShiftByScalar);
  table->Add({"aten::remainder.Scalar_Tensor"}, ScalarAndTensor);
  table->Add({"aten::remainder.Scalar", "aten::floor_divide.Scalar"},
             TensorAndScalar);
  table->Add({"aten::logical_and", "aten::logical_or", "aten::logical_xor"},
             BinaryToBool);
  table->Add({"aten::where.self"}, Where);
  table->Add({"aten::where.ScalarOther"}, WhereScalarOther);
  table->Add({"aten::where.ScalarSelf"}, WhereScalarSelf);
  table->Add({"aten::where.Scalar"}, WhereScalars);
  table->Add({"aten::complex", "aten::polar"}, Complex);
  table->Add({"aten::_prelu_kernel"}, PreluKernel);
  table->Add({"aten::_prelu_kernel_backward"}, PreluKernelBackward);
  table->Add({"aten::hardtanh_backward", "aten::hardswish_backward"},
             GradThenSelf);

  // These operators check values and return nothing.
  table->Add({"aten::_assert_async", "aten::_assert_async.msg"},
             [](const CallArguments&) { return Results(); });

  table->Add({"aten::dropout"}, Dropout);
  table->Add({"aten::native_dropout"}, NativeDropout);
  table->Add({"aten::native_dropout_backward"}, NativeDropoutBackward);

  table->Add({"aten::binary_cross_entropy"}, BinaryCrossEntropy);
  table->Add({"aten::binary_cross_entropy_backward"},
             BinaryCrossEntropyBackward);
  table->Add({"aten::binary_cross_entropy_with_logits"},
             BinaryCrossEntropyWithLogits);
  table->Add({"aten::huber_loss"}, HuberLoss);
  table->Add({"aten::ldexp.Tensor"}, Ldexp);
  table->Add({"aten::rrelu_with_noise"}, RreluWithNoise);
  table->Add({"aten::mse_loss_backward", "aten::huber_loss_backward",
              "aten::smooth_l1_loss_backward"},
             LossBackward);
  table->Add({"aten::soft_margin_loss"}, SoftMarginLoss);
}

}  // namespace djinn
