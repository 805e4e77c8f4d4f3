// What modules that a registered callable uses hold at a call, and what else of
// them says which operators they call: the C++ side's counterpart of looking
// through what a Python function refers to.
//
// Seen are, of the modules and all their submodules: which they are, whether
// they are in training mode, their registered parameters and buffers, and the
// public tensors of PyTorch's own layers, which a program may replace past the
// registration (`linear->weight = other`).
//
// Thread-safe.
#ifndef CLIENT_LIB_CALLABLE_MODULE_WATCH_H_
#define CLIENT_LIB_CALLABLE_MODULE_WATCH_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"

namespace djinn::capture {

class ModuleWatch {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  // Throws where there is none: it could be watched by nobody.
  explicit ModuleWatch(Modules modules);

  // Appends the tensors that the modules hold now, and to `key` bytes that are
  // equal as long as they are the same modules in the same modes, with as many
  // tensors each.
  void Inspect(std::vector<at::Tensor>* tensors, std::string* key);

 private:
  // Calls a visitor with the public tensors of a layer of PyTorch's.
  using VisitMembers = void (*)(const torch::nn::Module&,
                                std::vector<const at::Tensor*>*);
  struct Known {
    // Its address is no other module's while this is not expired.
    std::weak_ptr<torch::nn::Module> module;
    uint64_t number = 0;
    VisitMembers visit = nullptr;  // or null
  };

  void InspectModule(const std::shared_ptr<torch::nn::Module>& module,
                     std::vector<at::Tensor>* tensors, std::string* key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Known& Find(const std::shared_ptr<torch::nn::Module>& module)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Modules modules_;
  Mutex mu_;
  absl::flat_hash_map<const torch::nn::Module*, Known> known_
      ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Modules seen by the last Look().
  size_t seen_ ABSL_GUARDED_BY(mu_) = 0;
  // Of one module; reused.
  std::vector<const at::Tensor*> members_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_MODULE_WATCH_H_
