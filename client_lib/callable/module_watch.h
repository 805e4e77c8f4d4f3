// Reads, before each call of a registered callable, the state of the modules
// that it uses. The Python package does the same for the objects that a Python
// function refers to.
//
// For the modules and all their submodules, the state is their identity,
// whether they are in training mode, their registered parameters and buffers,
// and the public tensors of PyTorch's own layers, which a program may replace
// without registering the new tensor (`linear->weight = other`).
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
#include "common/base/mutex.h"

namespace djinn::capture {

class ModuleWatch {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  // Throws c10::Error if a module is null.
  explicit ModuleWatch(Modules modules);

  // Appends the tensors that the modules hold now to `tensors`. Appends bytes
  // to `key` that stay equal as long as the modules, their modes and the number
  // of tensors of each module do.
  void Inspect(std::vector<at::Tensor>* tensors, std::string* key);

 private:
  // Appends the public tensors of one of PyTorch's layers.
  using VisitMembers = void (*)(const torch::nn::Module&,
                                std::vector<const at::Tensor*>*);
  struct Known {
    // While this is not expired, no other module has the same address.
    std::weak_ptr<torch::nn::Module> module;
    uint64_t number = 0;
    VisitMembers visit = nullptr;  // null for other classes
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
  // The number of modules that the last Inspect() visited.
  size_t seen_ ABSL_GUARDED_BY(mu_) = 0;
  // A buffer for the members of one module.
  std::vector<const at::Tensor*> members_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_MODULE_WATCH_H_
