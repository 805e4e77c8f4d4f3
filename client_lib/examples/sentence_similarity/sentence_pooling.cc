#include "client_lib/examples/sentence_similarity/sentence_pooling.h"

#include "ATen/TensorOperators.h"
#include "ATen/ops/linalg_vector_norm.h"

namespace djinn::examples {

at::Tensor PoolSentences(const at::Tensor& token_vectors,
                         const at::Tensor& attention_mask) {
  const at::Tensor weights =
      attention_mask.to(token_vectors.scalar_type()).unsqueeze(-1);
  const at::Tensor mean =
      (token_vectors * weights).sum(1) / weights.sum(1).clamp_min(1);
  // The bound only keeps a vector of zeros from becoming one of NaN.
  const at::Tensor length =
      at::linalg_vector_norm(mean, /*ord=*/2, /*dim=*/{1}, /*keepdim=*/true);
  return mean / length.clamp_min(1e-12);
}

}  // namespace djinn::examples
