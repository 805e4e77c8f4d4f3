// Packed forms of weights: which are made, and when they go.
//
// A packed form belongs to the buffer whose bytes it was made from: it cannot
// be found by way of any other buffer, nor for any other view of the same one;
// it is dropped before the first write of the bytes, and goes with the buffer.
// Whoever shares a buffer copies it before writing, so that a form stays right
// while it is in use. One is made when a weight was used often enough without
// being written, piece by piece in the runs that use it. Who finds it no faster
// does not use it, and one that nobody uses is dropped.
//
// The memory is spare: asked for, limited, and given back under pressure.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_WEIGHTS_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/cpu/packed_matrix.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// Thread-safe.
class PackedWeights {
 public:
  // A weight is packed after kUses uses with kRows rows together, or after
  // kManyUses.
  static constexpr int64_t kUses = 4;
  static constexpr int64_t kRows = 512;
  static constexpr int64_t kManyUses = 16;
  // After a form was dropped, was in vain or got no memory, so many times as
  // much, again and again.
  static constexpr int64_t kSetback = 8;
  // Source bytes packed in one use at most, so that no run waits for long.
  static constexpr uint64_t kBytesPerUse = uint64_t{4} << 20;
  // Of all weights together no more is packed than goes with the work they are
  // used for: as many of their bytes as there are multiplied by kRowsPerByte
  // rows. A product of few rows takes as long as one of kFewRows.
  static constexpr int64_t kRowsPerByte = 512;
  static constexpr int64_t kFewRows = 4;
  // A form that was offered so often and not used is dropped.
  static constexpr int64_t kOffers = 64;

  struct Stats {
    // Of all forms, finished or not.
    uint64_t bytes = 0;
    // Since the beginning.
    uint64_t finished = 0;
    uint64_t released = 0;
  };

  // All forms together take at most `max_bytes`. Without a kernel nothing is
  // packed.
  PackedWeights(const PackedKernel* kernel, uint64_t max_bytes);
  ~PackedWeights();

  bool enabled() const { return kernel_ != nullptr && max_bytes_ > 0; }

  // As Device::SetSpareMemory(); without it only the own limit holds.
  void SetSpareMemory(SpareMemory* spare);

  // Notes that the weight is about to be multiplied with `rows` rows, and packs
  // some of it if that is due. Returns the form once it is finished, otherwise
  // null. The caller holds the buffer, which contains the matrix.
  std::shared_ptr<const PackedMatrix> Offer(const TorchBuffer& buffer,
                                            const MatrixLayout& layout,
                                            int64_t rows,
                                            const std::string& tenant);

  // As Device::ReleaseSpareMemory(); forms in use stay.
  uint64_t Release(uint64_t bytes);

  Stats stats() const;

 private:
  struct State;
  struct Form;
  struct Paid;
  class Forms;

  std::shared_ptr<PackedMatrix> Begin(const MatrixLayout& layout,
                                      uint64_t first_used,
                                      const std::string& tenant);
  uint64_t ReleaseUsedBefore(uint64_t time, uint64_t bytes);

  const PackedKernel* const kernel_;
  const uint64_t max_bytes_;
  // Shared with the forms, which may outlive this.
  const std::shared_ptr<State> state_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_WEIGHTS_H_
