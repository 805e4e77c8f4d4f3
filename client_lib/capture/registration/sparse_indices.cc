#include "client_lib/capture/registration/sparse_indices.h"

#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace djinn::capture {

at::Tensor CompressIndices(const at::Tensor& self, int64_t size,
                           bool out_int32) {
  const at::TensorOptions options =
      self.options().dtype(out_int32 ? c10::kInt : c10::kLong);
  if (self.numel() == 0) return at::zeros({size + 1}, options);
  return at::searchsorted(self.contiguous(),
                          at::arange(size + 1, self.options()), out_int32);
}

at::Tensor UncompressIndices(const at::Tensor& compressed,
                             const at::Tensor& plain, bool out_int32,
                             bool transpose) {
  const c10::ScalarType type = out_int32 ? c10::kInt : c10::kLong;
  const at::TensorOptions options = plain.options().dtype(type);
  const int64_t batch_dimensions = plain.dim() - 1;
  if (plain.numel() == 0) return at::zeros({batch_dimensions + 2, 0}, options);
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < batch_dimensions; ++i) {
    std::vector<int64_t> view(plain.dim(), 1);
    view[i] = plain.size(i);
    rows.push_back(at::arange(plain.size(i), options)
                       .view(view)
                       .expand(plain.sizes())
                       .reshape({-1}));
  }
  const at::Tensor ends = compressed.slice(-1, 1).contiguous();
  const at::Tensor numbers = at::arange(plain.size(-1), compressed.options())
                                 .expand(plain.sizes())
                                 .contiguous();
  const at::Tensor outer =
      at::searchsorted(ends, numbers, out_int32, /*right=*/true).reshape({-1});
  const at::Tensor inner = plain.reshape({-1}).to(type);
  rows.push_back(transpose ? inner : outer);
  rows.push_back(transpose ? outer : inner);
  return at::stack(rows);
}

void ValidateCompressedIndices(bool is_crow, const at::Tensor& compressed,
                               const at::Tensor& plain, int64_t size,
                               int64_t plain_size, int64_t count) {
  at::_validate_compressed_sparse_indices(is_crow, compressed.cpu(),
                                          plain.cpu(), size, plain_size, count);
}

}  // namespace djinn::capture
