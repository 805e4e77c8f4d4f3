// Multiplies by prepacked copies of weights, with PyTorch's oneDNN.
//
// A weight that was used often enough without being written is reordered once
// (mkldnn::_reorder_linear_weight), and later products of several rows use the
// copy (mkldnn::_linear_pointwise). oneDNN takes sums in another order than
// eager PyTorch, so only fast mode uses this.
//
// A copy belongs to the buffer whose bytes it was made from: it is dropped
// before the first write of the bytes and destroyed with the buffer. Its memory
// is spare memory: it is reserved, limited, and released under pressure.
#ifndef GPU_WORKER_DEVICE_CPU_PREPACKED_LINEAR_H_
#define GPU_WORKER_DEVICE_CPU_PREPACKED_LINEAR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ATen/core/Tensor.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/row_products.h"

namespace djinn::worker {

// Thread-safe.
class PrepackedLinear {
 public:
  // The number of uses since the last write at which a weight is packed.
  static constexpr int64_t kUses = 4;
  // The factor by which a weight's number of uses grows each time that its copy
  // is dropped or gets no memory.
  static constexpr int64_t kSetback = 8;
  // Limits below which eager PyTorch is as fast.
  static constexpr int64_t kLeastElements = 1 << 17;
  static constexpr int64_t kLeastRows = 2;

  // All copies together take at most `max_bytes`. With 0, or without oneDNN,
  // nothing is packed.
  explicit PrepackedLinear(uint64_t max_bytes);
  ~PrepackedLinear();

  // Sets the source of spare memory, as Device::SetSpareMemory(). Without a
  // source only `max_bytes` limits the copies.
  void SetSpareMemory(SpareMemory* spare);

  // Returns whether products of the kind use a packed copy once there is one.
  bool Suits(const RowsByMatrix& product) const;

  // Counts a use of the product's weight, packs the weight if that is due, and
  // returns the product of `rows` and the packed copy. Returns an undefined
  // tensor if there is no copy yet. May throw c10::Error.
  at::Tensor Multiply(const RowsByMatrix& product, const NodeInput& input,
                      const at::Tensor& rows,
                      const std::optional<at::Tensor>& bias);

  // Releases copies that are not in use, as Device::ReleaseSpareMemory().
  uint64_t Release(uint64_t bytes);

  // Returns the memory of all copies.
  uint64_t bytes() const;

 private:
  struct State;
  struct Packed;
  struct Form;
  class Forms;

  std::shared_ptr<const Packed> Find(const RowsByMatrix& product,
                                     const NodeInput& input);
  std::shared_ptr<const Packed> Pack(const at::Tensor& weight,
                                     uint64_t first_used,
                                     const std::string& tenant);
  uint64_t ReleaseUsedBefore(uint64_t time, uint64_t bytes);

  const uint64_t max_bytes_;
  // Shared with the copies, which may outlive this.
  const std::shared_ptr<State> state_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PREPACKED_LINEAR_H_
