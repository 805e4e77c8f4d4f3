// Rules for Fourier transforms, as MKL computes them on a CPU.
#include <algorithm>
#include <numeric>
#include <vector>

#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::ScalarType;

bool SlowerIn(const DimVector& strides, int64_t left, int64_t right) {
  return strides[left] > strides[right];
}

// Returns the transformed dimensions, slowest first. If `keep_last`, the last
// one stays last.
DimVector Sorted(const ResultMeta& self, DimVector dims, bool keep_last) {
  std::sort(dims.begin(), dims.end() - (keep_last ? 1 : 0),
            [&](int64_t left, int64_t right) {
              return SlowerIn(self.strides, left, right);
            });
  return dims;
}

// Returns the result of a transform. Its transformed dimensions are contiguous
// in their order, and the others surround them in the order of the operand's
// strides.
ResultMeta Transform(const ResultMeta& self, ScalarType dtype,
                     const DimVector& sizes, const DimVector& dims) {
  const int64_t rank = self.sizes.size();
  std::vector<bool> transformed(rank, false);
  for (int64_t dim : dims) transformed[dim] = true;
  DimVector order(rank);
  std::iota(order.begin(), order.end(), 0);
  // These algorithms are the ones that PyTorch uses. Neither is stable, so
  // another algorithm could give another order.
  const auto batch_end =
      std::partition(order.begin(), order.end(),
                     [&](int64_t dim) { return !transformed[dim]; });
  std::sort(order.begin(), batch_end, [&](int64_t left, int64_t right) {
    return SlowerIn(self.strides, left, right);
  });
  std::copy(dims.begin(), dims.end(), batch_end);

  ResultMeta result;
  result.dtype = dtype;
  result.sizes = sizes;
  result.strides.resize(rank);
  const int64_t batch_rank = rank - static_cast<int64_t>(dims.size());
  int64_t next = 1;
  for (int64_t i = rank - 1; i >= 0; --i) {
    result.strides[order[i]] = next;
    next *= i >= batch_rank ? std::max<int64_t>(sizes[order[i]], 1)
                            : sizes[order[i]];
  }
  return result;
}

void CheckTransform(const at::Tensor& self, const DimVector& dims) {
  for (int64_t dim : dims) {
    TORCH_CHECK(dim >= 0 && dim < self.dim(), "fft: dim out of range");
  }
}

ResultMeta ComplexToComplex(const ResultMeta& self, const DimVector& dims) {
  if (dims.empty()) return EmptyLike(self.dtype, self);
  return Transform(self, self.dtype, self.sizes,
                   Sorted(self, dims, /*keep_last=*/false));
}

Results C2C(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.is_complex(), "fft: expected a complex input");
  CheckTransform(self, args.Integers(1));
  return {ComplexToComplex(Describe(self), args.Integers(1))};
}

Results R2C(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckFloating("fft", self);
  const DimVector dims = args.Integers(1);
  CheckTransform(self, dims);
  TORCH_CHECK(!dims.empty(), "fft: expected a dimension");
  DimVector sizes(self.sizes());
  if (args.Boolean(3)) sizes[dims.back()] = sizes[dims.back()] / 2 + 1;
  const ResultMeta meta = Describe(self);
  const ScalarType dtype = c10::toComplexType(self.scalar_type());
  return {
      Transform(meta, dtype, sizes, Sorted(meta, dims, /*keep_last=*/true))};
}

Results C2R(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.is_complex(), "fft: expected a complex input");
  DimVector dims = args.Integers(1);
  CheckTransform(self, dims);
  TORCH_CHECK(!dims.empty(), "fft: expected a dimension");
  const int64_t last = dims.back();
  dims.pop_back();
  ResultMeta input = Describe(self);
  if (!dims.empty()) input = ComplexToComplex(input, dims);
  DimVector sizes(self.sizes());
  sizes[last] = args.Integer(3);
  return {Transform(input, c10::toRealValueType(self.scalar_type()), sizes,
                    {last})};
}

}  // namespace

void AddFftRules(RuleTable* table) {
  table->Add({"aten::_fft_c2c"}, C2C);
  table->Add({"aten::_fft_r2c"}, R2C);
  table->Add({"aten::_fft_c2r"}, C2R);
}

}  // namespace djinn
