// Keeps the objects that packed weights were made into (packed_operators.h), so
// that a call with unchanged weights packs nothing and reads none of their
// bytes.
//
// An object belongs to the buffer of its first part. It is used while no part
// was written, and destroyed with the buffer. Its memory is spare memory: it is
// reserved, limited, and released under pressure.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_OBJECTS_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_OBJECTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/types/span.h"
#include "common/torch/packed_operators.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// Thread-safe.
class PackedObjects {
 public:
  // The most objects of one buffer; further ones replace the oldest.
  static constexpr size_t kMaxOfBuffer = 8;

  // All objects together take at most `max_bytes`.
  explicit PackedObjects(uint64_t max_bytes);
  ~PackedObjects();

  // Sets the source of spare memory, as Device::SetSpareMemory(). Without one
  // only `max_bytes` limits the objects.
  void SetSpareMemory(SpareMemory* spare);
  // Releases the objects that were used least recently, as
  // Device::ReleaseSpareMemory().
  uint64_t Release(uint64_t bytes);
  // Returns the memory of all objects.
  uint64_t bytes() const;

  // Provides the objects of one call, for the thread that makes it.
  class ForCall final : public PackedSource {
   public:
    // All arguments outlive this.
    ForCall(PackedObjects* objects, const NodeInput& input,
            absl::Span<const uint32_t> operand_slots)
        : objects_(*objects),
          input_(input),
          operand_slots_(operand_slots),
          use_(this) {}

    c10::IValue Get(const c10::Type& type, at::TensorList tensors,
                    c10::IntArrayRef layout) override;

   private:
    // Returns null if the tensor is no operand's.
    const TorchBuffer* BufferOf(const at::Tensor& tensor) const;

    PackedObjects& objects_;
    const NodeInput& input_;
    const absl::Span<const uint32_t> operand_slots_;
    const UsePackedSource use_;
  };

 private:
  struct State;
  struct Object;
  class OfBuffer;

  // Reserves the object's memory. Returns false if there is none to spare.
  bool Reserve(Object* object, const std::string& tenant);

  const uint64_t max_bytes_;
  // Shared with the objects, which may outlive this.
  const std::shared_ptr<State> state_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_OBJECTS_H_
