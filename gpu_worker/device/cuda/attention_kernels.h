// Implements the CPU's fused attention on other devices. Programs are captured
// as a CPU would run them. A CPU's attention that keeps what its gradients need
// is an operator of its own, for which PyTorch has no GPU kernel. Forward and
// backward are FlashAttention's (Dao et al., 2022): rows of the scores are not
// kept but rematerialized from the logarithm of their sums.
//
// The GPU's own memory-efficient kernels compute the result if they take the
// operands; for bfloat16 they need compute capability 8.0. Otherwise operators
// that any device has multiply some rows at a time.
#ifndef GPU_WORKER_DEVICE_CUDA_ATTENTION_KERNELS_H_
#define GPU_WORKER_DEVICE_CUDA_ATTENTION_KERNELS_H_

#include <optional>
#include <tuple>

#include "ATen/core/Tensor.h"

namespace djinn::worker {

// Takes the arguments of aten::_scaled_dot_product_flash_attention_for_cpu and
// returns its results: output (batch, heads, rows, width) and the scores'
// logsumexp (batch, heads, rows). If keys have fewer heads than queries, each
// head of keys serves an equal number of query heads. A row whose scores are
// all masked is zeros.
std::tuple<at::Tensor, at::Tensor> AttentionForward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    double dropout, bool causal, const std::optional<at::Tensor>& mask,
    std::optional<double> scale);

// Returns the gradients of query, key and value.
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionBackward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp,
    double dropout, bool causal, const std::optional<at::Tensor>& mask,
    std::optional<double> scale);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_ATTENTION_KERNELS_H_
