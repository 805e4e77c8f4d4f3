// Rules for operators that create tensors from numbers, and for random draws.
#include <algorithm>
#include <string>
#include <vector>

#include "ATen/native/RangeUtils.h"
#include "c10/core/DefaultDtype.h"
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::ScalarType;

ScalarType DefaultType() { return c10::get_default_dtype_as_scalartype(); }

// Returns the samples of a window function.
Results Window(const CallArguments& args, size_t dtype_index) {
  TORCH_CHECK(args.Integer(0) >= 0,
              "window requires non-negative window_length, got window_length=",
              args.Integer(0));
  const ScalarType dtype = args.DtypeOr(dtype_index, DefaultType());
  TORCH_CHECK(
      c10::isFloatingType(dtype),
      "window expects floating point dtypes, got: ", c10::toString(dtype));
  return {Contiguous(dtype, {args.Integer(0)})};
}

void AddWindowRules(RuleTable* table) {
  // Each overload takes one more number before the dtype.
  const std::vector<std::vector<std::string>> by_dtype_index = {
      {},
      {"aten::bartlett_window", "aten::blackman_window", "aten::hann_window",
       "aten::hamming_window", "aten::kaiser_window"},
      {"aten::bartlett_window.periodic", "aten::blackman_window.periodic",
       "aten::hann_window.periodic", "aten::hamming_window.periodic",
       "aten::kaiser_window.periodic"},
      {"aten::hamming_window.periodic_alpha", "aten::kaiser_window.beta"},
      {"aten::hamming_window.periodic_alpha_beta"}};
  for (size_t i = 0; i < by_dtype_index.size(); ++i) {
    for (const std::string& name : by_dtype_index[i]) {
      table->Add({name},
                 [i](const CallArguments& args) { return Window(args, i); });
    }
  }
}

// ---- Ranges ----

Results ArangeOf(const c10::Scalar& start, const c10::Scalar& end,
                 const c10::Scalar& step, std::optional<ScalarType> wanted) {
  const bool integral =
      start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const ScalarType dtype =
      wanted.value_or(integral ? ScalarType::Long : DefaultType());
  const int64_t size =
      dtype == ScalarType::Long
          ? at::native::compute_arange_size<int64_t>(start, end, step)
          : at::native::compute_arange_size<double>(start, end, step);
  return {Contiguous(dtype, {size})};
}

Results ArangeEnd(const CallArguments& args) {
  return ArangeOf(0, args.Scalar(0), 1, args.DtypeIfAny(1));
}

Results ArangeStart(const CallArguments& args) {
  return ArangeOf(args.Scalar(0), args.Scalar(1), 1, args.DtypeIfAny(2));
}

Results ArangeStep(const CallArguments& args) {
  return ArangeOf(args.Scalar(0), args.Scalar(1), args.Scalar(2),
                  args.DtypeIfAny(3));
}

// Returns a range that includes `end`, unlike arange's. The numbers do not
// decide the dtype.
Results RangeOf(const c10::Scalar& start, const c10::Scalar& end,
                const c10::Scalar& step, ScalarType dtype) {
  at::native::arange_check_bounds(start, end, step);
  const double length =
      dtype == ScalarType::Long
          ? static_cast<double>(
                (end.toLong() - start.toLong()) / step.toLong() + 1)
          : (end.toDouble() - start.toDouble()) / step.toDouble() + 1;
  return {Contiguous(dtype, {static_cast<int64_t>(length)})};
}

Results Range(const CallArguments& args) {
  return RangeOf(args.Scalar(0), args.Scalar(1), 1,
                 args.DtypeOr(2, DefaultType()));
}

Results RangeStep(const CallArguments& args) {
  return RangeOf(args.Scalar(0), args.Scalar(1), args.Scalar(2),
                 args.DtypeOr(3, DefaultType()));
}

// Returns the result of linspace(start, end, steps, ...) or logspace(start,
// end, steps, base, ...), whose bounds may be tensors. PyTorch then reads their
// values.
Results Spaced(const CallArguments& args, size_t dtype_index) {
  TORCH_CHECK(args.Integer(2) >= 0, "number of steps must be non-negative");
  return {
      Contiguous(args.DtypeOr(dtype_index, DefaultType()), {args.Integer(2)})};
}

// The same rule for bounds that are numbers. Complex ones decide the dtype.
Results SpacedNumbers(const CallArguments& args, size_t dtype_index) {
  const bool complex = args.Scalar(0).isComplex() || args.Scalar(1).isComplex();
  const ScalarType dtype = args.DtypeOr(
      dtype_index, complex ? c10::toComplexType(DefaultType()) : DefaultType());
  TORCH_CHECK(!complex || c10::isComplexType(dtype),
              "linspace and logspace between complex numbers need a complex "
              "dtype, got ",
              c10::toString(dtype));
  TORCH_CHECK(args.Integer(2) >= 0, "number of steps must be non-negative");
  return {Contiguous(dtype, {args.Integer(2)})};
}

Results Eye(const CallArguments& args) {
  TORCH_CHECK(args.Integer(0) >= 0, "n must be greater or equal to 0, got ",
              args.Integer(0));
  return {Contiguous(args.DtypeOr(1, DefaultType()),
                     {args.Integer(0), args.Integer(0)})};
}

Results EyeRectangle(const CallArguments& args) {
  TORCH_CHECK(args.Integer(0) >= 0 && args.Integer(1) >= 0,
              "eye: sizes must be greater or equal to 0");
  return {Contiguous(args.DtypeOr(2, DefaultType()),
                     {args.Integer(0), args.Integer(1)})};
}

// Returns the number of elements on and below the diagonal.
int64_t TriangleSize(int64_t rows, int64_t columns, int64_t offset) {
  int64_t size = 0;
  for (int64_t row = 0; row < rows; ++row) {
    size += std::clamp<int64_t>(row + offset + 1, 0, columns);
  }
  return size;
}

Results TriangleIndices(const CallArguments& args, bool upper) {
  const int64_t rows = args.Integer(0), columns = args.Integer(1);
  const int64_t offset = args.Integer(2);
  TORCH_CHECK(rows >= 0 && columns >= 0,
              "row and col must be non-negative, got ", rows, ", ", columns);
  const int64_t size =
      upper ? rows * columns - TriangleSize(rows, columns, offset - 1)
            : TriangleSize(rows, columns, offset);
  return {Contiguous(args.DtypeOr(3, ScalarType::Long), {2, size})};
}

// ---- Random ----

Results ContiguousLikeFirst(const CallArguments& args) {
  return {Contiguous(args.Tensor(0).scalar_type(), args.Tensor(0).sizes())};
}

Results NormalTensors(const CallArguments& args) {
  return {
      Contiguous(args.Tensor(0).scalar_type(),
                 Broadcast(args.Tensor(0).sizes(), args.Tensor(1).sizes()))};
}

// The result is contiguous and has the first operand's sizes, whatever the
// layouts.
Results Binomial(const CallArguments& args) {
  CheckSameType("binomial", {args.Tensor(0), args.Tensor(1)});
  return ContiguousLikeFirst(args);
}

Results NormalSpread(const CallArguments& args) {
  return {Contiguous(args.Tensor(1).scalar_type(), args.Tensor(1).sizes())};
}

Results Multinomial(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const int64_t samples = args.Integer(1);
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2,
              "prob_dist must be 1 or 2 dim");
  CheckFloating("multinomial", self);
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(args.Boolean(2) || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without "
              "replacement");
  if (self.dim() == 1) return {Contiguous(ScalarType::Long, {samples})};
  return {Contiguous(ScalarType::Long, {self.size(0), samples})};
}

}  // namespace

void AddFactoryRules(RuleTable* table) {
  table->Add({"aten::arange"}, ArangeEnd);
  table->Add({"aten::arange.start"}, ArangeStart);
  table->Add({"aten::arange.start_step"}, ArangeStep);
  table->Add({"aten::range"}, Range);
  table->Add({"aten::range.step"}, RangeStep);
  table->Add({"aten::linspace"},
             [](const CallArguments& args) { return SpacedNumbers(args, 3); });
  table->Add({"aten::logspace"},
             [](const CallArguments& args) { return SpacedNumbers(args, 4); });
  table->Add({"aten::linspace.Tensor_Tensor", "aten::linspace.Tensor_Scalar",
              "aten::linspace.Scalar_Tensor"},
             [](const CallArguments& args) { return Spaced(args, 3); });
  table->Add({"aten::logspace.Tensor_Tensor", "aten::logspace.Tensor_Scalar",
              "aten::logspace.Scalar_Tensor"},
             [](const CallArguments& args) { return Spaced(args, 4); });
  AddWindowRules(table);
  table->Add({"aten::tril_indices"}, [](const CallArguments& args) {
    return TriangleIndices(args, /*upper=*/false);
  });
  table->Add({"aten::triu_indices"}, [](const CallArguments& args) {
    return TriangleIndices(args, /*upper=*/true);
  });
  table->Add({"aten::eye"}, Eye);
  table->Add({"aten::eye.m"}, EyeRectangle);

  table->Add({"aten::bernoulli", "aten::bernoulli.p", "aten::poisson",
              "aten::_standard_gamma", "aten::_standard_gamma_grad",
              "aten::_dirichlet_grad", "aten::_sample_dirichlet"},
             ContiguousLikeFirst);
  table->Add({"aten::normal.Tensor_float"}, ContiguousLikeFirst);
  table->Add({"aten::normal.float_Tensor"}, NormalSpread);
  table->Add({"aten::normal.Tensor_Tensor"}, NormalTensors);
  table->Add({"aten::binomial"}, Binomial);
  table->Add({"aten::multinomial"}, Multinomial);
}

}  // namespace djinn
