// Detects side effects of a function while it is captured: whatever it does
// besides calling operators on its device. A replay does not run the function
// and would miss its side effects, so a function that has one is not
// registered.
#ifndef CLIENT_LIB_CALLABLE_SIDE_EFFECTS_H_
#define CLIENT_LIB_CALLABLE_SIDE_EFFECTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/capture/device/operator_observer.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// Observes the operators that the function calls, and reports the first one
// that reads or writes a CPU tensor, uses another device, or changes the shape
// of a tensor that existed before. A CPU tensor that the function created from
// numbers alone counts as these numbers. It also reports the calls that the
// session refuses to record, because it knows their operators and call sites.
// Belongs to one thread.
class SideEffectObserver : public OperatorObserver {
 public:
  // The function may call operators on `device` alone. This thread records them
  // in `lane`.
  SideEffectObserver(std::shared_ptr<VirtualDevice> device, uint32_t lane)
      : device_(std::move(device)), lane_(lane) {}

  void Before(const c10::OperatorHandle& op,
              const torch::jit::Stack& stack) override;
  void After(const c10::OperatorHandle& op,
             const torch::jit::Stack& stack) override;

  // Lets the function use and write this CPU tensor. The caller looks at what
  // it does.
  void Allow(const at::Tensor& tensor);

  // Returns the first side effect, or an empty string.
  const std::string& refusal() const { return refusal_; }

 private:
  // The geometry of a tensor before an operator wrote to it.
  struct Geometry {
    at::Tensor tensor;
    c10::DimVector sizes;
    c10::DimVector strides;
    int64_t offset;
    const c10::StorageImpl* storage;
  };

  void Refuse(const c10::OperatorHandle& op, const std::string& what);
  void CheckArgument(const c10::OperatorHandle& op, const at::Tensor& tensor,
                     bool written);
  void NoteResult(const c10::OperatorHandle& op, const at::Tensor& tensor);
  // Takes over the session's refusal. `op` is the operator that caused it, or
  // null if none did.
  void NoteSessionRefusal(const c10::OperatorHandle* op);

  const std::shared_ptr<VirtualDevice> device_;
  const uint32_t lane_;
  std::string refusal_;
  // The CPU memory that the function allocated or may use. Holding the memory
  // keeps other memory from getting the same address.
  absl::flat_hash_map<const c10::StorageImpl*, c10::Storage> created_;
  // The remote tensors that the function created; some may be released.
  absl::flat_hash_map<const c10::TensorImpl*,
                      c10::weak_intrusive_ptr<c10::TensorImpl>>
      created_remote_;
  // The tensors that the running operator writes.
  std::vector<Geometry> written_;
};

// Remembers the state that the function can change without calling an operator:
// the memory, gradients and hooks of its arguments, the memory and metadata of
// gradients, and random generators. Belongs to the thread that created it.
class SideEffectSnapshot {
 public:
  SideEffectSnapshot() = default;
  // `gradients` are those of the tensors that the function refers to; some may
  // be undefined. The snapshot holds all memory that it remembers, so that no
  // other memory gets the same address.
  SideEffectSnapshot(const std::vector<at::Tensor>& arguments,
                     const std::vector<at::Tensor>& gradients);

  // Returns a human-readable description of the first change, or an empty
  // string if there is none.
  std::string FirstChange(const std::vector<at::Tensor>& arguments) const;
  // Returns whether the state of PyTorch's default CPU generator has changed.
  // Another thread may have changed it.
  bool CpuGeneratorChanged() const;

 private:
  struct Argument {
    c10::Storage storage;
    at::Tensor gradient;
    uint32_t hooks = 0;
  };
  // A gradient that existed before, whichever tensor has it afterwards.
  struct Gradient {
    at::Tensor tensor;
    c10::Storage storage;
    std::string geometry;
  };

  void AddGradient(const at::Tensor& gradient);

  std::vector<Argument> arguments_;
  std::vector<Gradient> gradients_;
  uint64_t remote_settings_ = 0;
  // The state of PyTorch's default CPU generator.
  at::Tensor cpu_state_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_SIDE_EFFECTS_H_
