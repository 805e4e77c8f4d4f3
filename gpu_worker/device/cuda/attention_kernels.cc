#include "gpu_worker/device/cuda/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ATen/TensorOperators.h"
#include "ATen/ops/_scaled_dot_product_efficient_attention.h"
#include "ATen/ops/_scaled_dot_product_efficient_attention_backward.h"
#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/exp.h"
#include "ATen/ops/logsumexp.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"

namespace djinn::worker {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The number of scores that are computed at once, which bounds temporary
// memory.
constexpr int64_t kScoresAtOnce = int64_t{1} << 26;

double ScaleOf(const Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Returns whether rows are aligned to 16 bytes, as the GPU's fused kernels
// require.
bool RowsAligned(const Tensor& tensor) {
  constexpr int64_t kAlignment = 16;
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  if (tensor.stride(3) != 1 || address % kAlignment != 0) return false;
  for (int64_t d = 0; d < 3; ++d) {
    if (tensor.stride(d) * tensor.element_size() % kAlignment != 0) {
      return false;
    }
  }
  return tensor.size(3) * tensor.element_size() % kAlignment == 0;
}

// Returns whether so many batches or heads fit a dimension of the kernels'
// grid.
bool FitsGrid(int64_t count) { return count >= 1 && count <= 65535; }

// Returns whether the GPU's memory-efficient kernels (Rabe & Staats, 2021) take
// the operands. The kernels assume that all have the query's type. They place a
// causal mask differently when there are more keys than queries.
bool FusedTakes(const Tensor& query, const Tensor& key, const Tensor& value,
                bool causal, const OptionalTensor& mask) {
  const at::ScalarType type = query.scalar_type();
  return query.is_cuda() &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) &&
         key.scalar_type() == type && value.scalar_type() == type &&
         !(mask.has_value() && mask->defined()) && query.size(3) > 0 &&
         FitsGrid(query.size(0)) && FitsGrid(query.size(1)) &&
         query.size(1) == key.size(1) &&
         (!causal || query.size(2) == key.size(2)) && RowsAligned(query) &&
         RowsAligned(key) && RowsAligned(value);
}

// Returns the tensor aligned as the kernels require. A gradient is often one
// number that repeats, which is not aligned.
Tensor Aligned(const Tensor& tensor) {
  return RowsAligned(tensor) ? tensor
                             : tensor.clone(at::MemoryFormat::Contiguous);
}

// The fused kernels read the sums in groups of so many rows.
constexpr int64_t kSumsAligned = 32;

at::ScalarType AccumulateType(const Tensor& query) {
  return query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Repeats heads of keys or values until there are as many as of queries, in the
// type in which sums are accumulated.
Tensor Widened(const Tensor& tensor, const Tensor& query) {
  const Tensor wide = tensor.to(AccumulateType(query));
  const int64_t times = query.size(1) / tensor.size(1);
  return times == 1 ? wide : wide.repeat_interleave(times, 1);
}

// Adds up the gradients of repeated heads, for as many heads as `like` has.
Tensor Narrowed(const Tensor& gradient, const Tensor& like) {
  if (gradient.size(1) == like.size(1)) return gradient;
  return gradient.unflatten(1, {like.size(1), gradient.size(1) / like.size(1)})
      .sum(2);
}

// The rows of some batches' queries that are computed at once.
struct Part {
  Tensor BatchesOf(const Tensor& tensor) const {
    return tensor.narrow(0, batch, batches);
  }
  Tensor Of(const Tensor& tensor) const {
    return BatchesOf(tensor).narrow(2, row, rows);
  }

  int64_t batch = 0, batches = 0;
  int64_t row = 0, rows = 0;
};

// Calls `visit` for all parts, each of at most kScoresAtOnce scores or one row.
template <typename Visitor>
void ForParts(const Tensor& query, const Tensor& key, Visitor visit) {
  const int64_t of_row = std::max<int64_t>(query.size(1) * key.size(2), 1);
  const int64_t all_rows = query.size(2);
  const int64_t rows = std::clamp<int64_t>(kScoresAtOnce / of_row, 1,
                                           std::max<int64_t>(all_rows, 1));
  const int64_t batches = std::max<int64_t>(
      kScoresAtOnce / of_row / std::max<int64_t>(all_rows, 1), 1);
  for (int64_t batch = 0; batch < query.size(0); batch += batches) {
    for (int64_t row = 0; row < all_rows; row += rows) {
      visit(Part{batch, std::min(batches, query.size(0) - batch), row,
                 std::min(rows, all_rows - row)});
    }
  }
}

// Returns the part's rows of a mask that broadcasts to (batch, heads, rows,
// columns).
Tensor MaskOf(const Tensor& mask, const Tensor& query, const Part& part) {
  TORCH_CHECK(mask.scalar_type() == query.scalar_type() ||
                  mask.scalar_type() == at::kFloat,
              "scaled_dot_product_attention: attn_mask is of type ",
              mask.scalar_type(), ", the query of ", query.scalar_type());
  TORCH_CHECK(mask.dim() <= 4 &&
                  (mask.dim() < 4 || mask.size(0) == 1 ||
                   mask.size(0) == query.size(0)) &&
                  (mask.dim() < 2 || mask.size(-2) == 1 ||
                   mask.size(-2) == query.size(2)),
              "scaled_dot_product_attention: attn_mask is of sizes ",
              mask.sizes(), ", the query of ", query.sizes());
  Tensor own = mask;
  if (own.dim() == 4 && own.size(0) > 1) own = part.BatchesOf(own);
  if (own.dim() >= 2 && own.size(-2) > 1)
    own = own.narrow(-2, part.row, part.rows);
  return own;
}

OptionalTensor OwnMask(const OptionalTensor& mask, const Tensor& query,
                       const Part& part) {
  if (!mask.has_value() || !mask->defined()) return std::nullopt;
  return MaskOf(*mask, query, part);
}

// Returns the scores of a part's widened query with all widened keys.
Tensor Scores(const Tensor& query, const Tensor& key, bool causal,
              const OptionalTensor& mask, double scale, const Part& part) {
  Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
  if (causal) {
    const Tensor later =
        at::ones({part.rows, key.size(-2)}, query.options().dtype(at::kBool))
            .triu(1 + part.row);
    scores = scores.masked_fill(later, -kInfinity);
  }
  if (mask.has_value()) scores = scores + mask->to(scores.scalar_type());
  return scores;
}

// Returns exp(scores) divided by its sums; zeros for rows whose scores are all
// masked.
Tensor Weights(const Tensor& scores, const Tensor& logsumexp) {
  const Tensor sums = logsumexp.unsqueeze(-1);
  return at::exp(scores - sums.masked_fill(sums == -kInfinity, kInfinity));
}

Tensor EmptyOfHeads(const Tensor& query, int64_t width) {
  return at::empty({query.size(0), query.size(1), query.size(2), width},
                   query.options());
}

}  // namespace

std::tuple<Tensor, Tensor> AttentionForward(
    const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
    bool causal, const OptionalTensor& mask, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0,
              "scaled_dot_product_attention_flash_attention: Currently do not "
              "support dropout > 0");
  if (FusedTakes(query, key, value, causal, mask)) {
    const auto results = at::_scaled_dot_product_efficient_attention(
        query, key, value, std::nullopt, /*compute_log_sumexp=*/true, 0, causal,
        scale);
    return {std::get<0>(results),
            std::get<1>(results).narrow(2, 0, query.size(2))};
  }
  const Tensor out = EmptyOfHeads(query, value.size(3));
  const Tensor sums = at::empty({query.size(0), query.size(1), query.size(2)},
                                query.options().dtype(AccumulateType(query)));
  ForParts(query, key, [&](const Part& part) {
    const Tensor q = part.Of(query);
    const Tensor scores =
        Scores(Widened(q, q), Widened(part.BatchesOf(key), q), causal,
               OwnMask(mask, query, part), ScaleOf(query, scale), part);
    const Tensor row_sums = at::logsumexp(scores, -1);
    part.Of(sums).copy_(row_sums);
    part.Of(out).copy_(at::matmul(Weights(scores, row_sums),
                                  Widened(part.BatchesOf(value), q)));
  });
  return {out, sums};
}

std::tuple<Tensor, Tensor, Tensor> AttentionBackward(
    const Tensor& gradient, const Tensor& query, const Tensor& key,
    const Tensor& value, const Tensor& out, const Tensor& logsumexp,
    double dropout, bool causal, const OptionalTensor& mask,
    std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "attention's gradients know no dropout");
  if (FusedTakes(query, key, value, causal, mask)) {
    const int64_t rows = query.size(2);
    const Tensor sums = at::constant_pad_nd(
        logsumexp.to(at::kFloat),
        {0, (kSumsAligned - rows % kSumsAligned) % kSumsAligned}, kInfinity);
    const Tensor unused = at::zeros({}, query.options().dtype(at::kLong));
    // The kernels' backward takes no strides for the output's rows and expects
    // the layout of the kernels' own forward: heads side by side.
    const Tensor rows_of_heads = out.to(query.scalar_type())
                                     .transpose(1, 2)
                                     .contiguous()
                                     .transpose(1, 2);
    const auto results = at::_scaled_dot_product_efficient_attention_backward(
        Aligned(gradient.to(query.scalar_type())), query, key, value,
        /*attn_bias=*/Tensor(), rows_of_heads, sums.contiguous(), unused,
        unused, 0, {true, true, true, false}, causal, scale);
    return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
  }
  const double factor = ScaleOf(query, scale);
  const Tensor for_query = at::empty_like(query, at::MemoryFormat::Contiguous);
  const auto wide =
      at::TensorOptions(query.device()).dtype(AccumulateType(query));
  const Tensor for_key = at::zeros(key.sizes(), wide);
  const Tensor for_value = at::zeros(value.sizes(), wide);
  ForParts(query, key, [&](const Part& part) {
    const Tensor q = Widened(part.Of(query), query);
    const Tensor k = Widened(part.BatchesOf(key), q);
    const Tensor v = Widened(part.BatchesOf(value), q);
    const Tensor g = Widened(part.Of(gradient), q);
    const Tensor o = Widened(part.Of(out), q);
    const Tensor weights =
        Weights(Scores(q, k, causal, OwnMask(mask, query, part), factor, part),
                part.Of(logsumexp).to(q.scalar_type()));
    const Tensor for_weights = at::matmul(g, v.transpose(-2, -1));
    const Tensor for_scores =
        weights * (for_weights - (g * o).sum(-1, /*keepdim=*/true)) * factor;
    part.Of(for_query).copy_(at::matmul(for_scores, k));
    part.BatchesOf(for_key).add_(
        Narrowed(at::matmul(for_scores.transpose(-2, -1), q), key));
    part.BatchesOf(for_value).add_(
        Narrowed(at::matmul(weights.transpose(-2, -1), g), value));
  });
  return {for_query, for_key.to(key.scalar_type()),
          for_value.to(value.scalar_type())};
}

}  // namespace djinn::worker
