// Watches what a function that is being registered does besides calling
// operators on its device: whatever it takes from tensors of this process, or
// leaves in them, would be missing when its calls are carried out again without
// it.
//
// A tensor of this process that was made meanwhile, from nothing but numbers,
// is as good as the numbers. What the session refuses to record is seen here,
// too, since here is known which operator it was, and where the program called
// it. Belongs to one thread.
#ifndef CLIENT_LIB_CAPTURE_HOST_EFFECTS_H_
#define CLIENT_LIB_CAPTURE_HOST_EFFECTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "client_lib/capture/capture_scope_fallback.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

class HostEffects : public OperatorObserver {
 public:
  // Where the function may call operators, and where this thread records them.
  HostEffects(std::shared_ptr<VirtualDevice> device, uint32_t lane)
      : device_(std::move(device)), lane_(lane) {}

  void Before(const c10::OperatorHandle& op,
              const torch::jit::Stack& stack) override;
  void After(const c10::OperatorHandle& op,
             const torch::jit::Stack& stack) override;

  // What was seen first that cannot be repeated; empty when nothing was.
  const std::string& refusal() const { return refusal_; }

 private:
  // Where a tensor that an operator writes was before.
  struct Geometry {
    at::Tensor tensor;
    c10::DimVector sizes;
    c10::DimVector strides;
    int64_t offset;
    const c10::StorageImpl* storage;
  };

  void Refuse(const c10::OperatorHandle& op, const std::string& what);
  void LookAt(const c10::OperatorHandle& op, const at::Tensor& tensor,
              bool written);
  void NoteResult(const c10::OperatorHandle& op, const at::Tensor& tensor);
  // What the session refused; `op`, if not null, did it.
  void NoteRecording(const c10::OperatorHandle* op);

  const std::shared_ptr<VirtualDevice> device_;
  const uint32_t lane_;
  std::string refusal_;
  // Memory of this process that was made meanwhile, kept so that no other
  // takes its place.
  absl::flat_hash_map<const c10::StorageImpl*, c10::Storage> made_;
  // Remote tensors that were made meanwhile; they may be gone.
  absl::flat_hash_map<const c10::TensorImpl*,
                      c10::weak_intrusive_ptr<c10::TensorImpl>>
      made_remote_;
  // Of the operator that runs.
  std::vector<Geometry> written_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_HOST_EFFECTS_H_
