// Fused attention of the CPU on other devices. Programs are captured as a CPU
// would run them, and a CPU's attention that keeps what its gradients need is
// an operator of its own, which PyTorch gives a GPU no kernel for. Forward and
// backward are FlashAttention's (Dao et al., 2022): rows of the scores are not
// kept but rematerialized from the logarithm of their sums.
//
// Where the GPU's own memory-efficient kernels take the operands these are
// called, for which bfloat16 needs compute capability 8.0; others are
// multiplied out, some rows at a time, by operators that any device has.
#ifndef GPU_WORKER_DEVICE_CUDA_ATTENTION_KERNELS_H_
#define GPU_WORKER_DEVICE_CUDA_ATTENTION_KERNELS_H_

#include <optional>
#include <tuple>

#include "ATen/core/Tensor.h"

namespace djinn::worker {

// The arguments and results of
// aten::_scaled_dot_product_flash_attention_for_cpu: output (batch, heads,
// rows, width) and the scores' logsumexp (batch, heads, rows). Keys may have
// fewer heads, of which each then serves as many queries' as fit. A row whose
// scores are all masked is zeros.
std::tuple<at::Tensor, at::Tensor> AttentionForward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    double dropout, bool causal, const std::optional<at::Tensor>& mask,
    std::optional<double> scale);

// Gradients of query, key and value.
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionBackward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp,
    double dropout, bool causal, const std::optional<at::Tensor>& mask,
    std::optional<double> scale);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_ATTENTION_KERNELS_H_
