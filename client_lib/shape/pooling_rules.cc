// Pooling without a structured kernel.
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::MemoryFormat;
using c10::ScalarType;

// The last `rank` sizes replaced by the wanted ones.
Results AdaptiveAveragePool(const CallArguments& args, int64_t rank) {
  const at::Tensor& self = args.Tensor(0);
  const DimVector wanted = args.Integers(1);
  TORCH_CHECK(static_cast<int64_t>(wanted.size()) == rank,
              "adaptive_avg_pool: output_size must have ", rank, " elements");
  TORCH_CHECK(self.dim() == rank + 1 || self.dim() == rank + 2,
              "adaptive_avg_pool: Expected ", rank + 1, "D or ", rank + 2,
              "D tensor, but got ", self.sizes());
  for (int64_t i = self.dim() - rank; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0,
                "adaptive_avg_pool: Expected input to have non-zero size for "
                "non-batch dimensions, but input has sizes ",
                self.sizes());
  }
  CheckFloating("adaptive_avg_pool", self);
  DimVector sizes(self.sizes().slice(0, self.dim() - rank));
  sizes.append(wanted.begin(), wanted.end());
  // Only images keep their format.
  return {InFormat(
      self.scalar_type(), sizes,
      rank == 2 ? self.suggest_memory_format() : MemoryFormat::Contiguous)};
}

Results AdaptiveAveragePool2d(const CallArguments& args) {
  return AdaptiveAveragePool(args, 2);
}

Results AdaptiveAveragePool3d(const CallArguments& args) {
  return AdaptiveAveragePool(args, 3);
}

// The gradient is laid out like the input (the second argument).
Results GradientInSelfFormat(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(1);
  return {
      InFormat(self.scalar_type(), self.sizes(), self.suggest_memory_format())};
}

Results ContiguousGradient(const CallArguments& args) {
  return {Contiguous(args.Tensor(1).scalar_type(), args.Tensor(1).sizes())};
}

}  // namespace

void AddPoolingRules(RuleTable* table) {
  table->Add({"aten::_adaptive_avg_pool2d"}, AdaptiveAveragePool2d);
  table->Add({"aten::_adaptive_avg_pool3d"}, AdaptiveAveragePool3d);
  table->Add({"aten::_adaptive_avg_pool2d_backward"}, GradientInSelfFormat);
  table->Add({"aten::_adaptive_avg_pool3d_backward"}, ContiguousGradient);
}

}  // namespace djinn
