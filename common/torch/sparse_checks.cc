#include "common/torch/sparse_checks.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace djinn::sparse {

void PrepareReducedProduct(Operands* operands, OtherArguments* others) {
  const bool returns_sources = others->back().toBool();
  others->pop_back();
  if (!returns_sources) return;
  at::Tensor& dense = operands->at(1);
  dense = dense.detach();
  dense.set_requires_grad(true);
}

void CheckReducedProductGradient(Operands* operands, OtherArguments* others) {
  TORCH_CHECK(operands->size() == 4,
              "the gradient of a reduced product takes 4 tensors, not ",
              operands->size());
  const at::Tensor& sparse = (*operands)[0];
  const at::Tensor& gradient = (*operands)[1];
  const at::Tensor& dense = (*operands)[2];
  TORCH_CHECK(
      sparse.layout() == c10::kSparseCsr && sparse.dim() == 2 &&
          sparse.values().dim() == 1 && dense.dim() == 2 &&
          sparse.size(1) == dense.size(0) &&
          gradient.sizes() == c10::IntArrayRef({sparse.size(0), dense.size(1)}),
      "the gradient of a reduced product does not fit its operands: "
      "sizes ",
      gradient.sizes(), ", ", sparse.sizes(), " and ", dense.sizes());
  const std::string reduce = others->at(0).toStringRef();
  if (reduce == "sum" || reduce == "mean" || sparse._nnz() == 0) return;
  at::Tensor& sources = (*operands)[3];
  sources = sources.contiguous();
  TORCH_CHECK(
      sources.sizes() == gradient.sizes() &&
          sources.scalar_type() == sparse.col_indices().scalar_type() &&
          sources.ge(0)
              .logical_and(sources.le(sparse._nnz()))
              .all()
              .item<bool>(),
      "the results of a reduced product come from elements that the sparse "
      "operand does not have");
}

void CheckDiagonals(Operands* operands, OtherArguments* others) {
  const at::Tensor& offsets = operands->at(1);
  const std::vector<int64_t> sizes = others->at(0).toIntVector();
  // PyTorch's kernel refuses the first three, and writes nothing for the last.
  if (offsets.scalar_type() != c10::kLong || operands->at(0).dim() == 0 ||
      sizes.size() != 2 || sizes[0] == 0 || sizes[1] == 0) {
    return;
  }
  const int64_t columns = std::min(sizes[1], operands->at(0).size(-1));
  TORCH_CHECK(
      offsets.ge(-sizes[0]).logical_and(offsets.le(columns)).all().item<bool>(),
      "an offset of a diagonal is outside the sizes ", c10::IntArrayRef(sizes));
}

void CheckTriangular(Operands* operands, OtherArguments*) {
  TORCH_CHECK(operands->size() == 2 && (*operands)[0].dim() == 2 &&
                  (*operands)[1].dim() == 2,
              "triangular_solve: batches of sparse matrices are not supported");
}

}  // namespace djinn::sparse
