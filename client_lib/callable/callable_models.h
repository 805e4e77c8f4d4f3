// Registers the storages that one registered callable captures with the worker
// of each device. A worker counts them as a resident model against the tenant's
// budget, and the callable's calls are replayed only within that budget.
//
// Thread-safe. Calls devices without holding its lock.
#ifndef CLIENT_LIB_CALLABLE_CALLABLE_MODELS_H_
#define CLIENT_LIB_CALLABLE_CALLABLE_MODELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/mutex.h"

namespace djinn::capture {

class CallableModels {
 public:
  // Operators see the model under `name`.
  explicit CallableModels(std::string name) : name_(std::move(name)) {}
  // Tells the workers to forget the models.
  ~CallableModels();
  CallableModels(const CallableModels&) = delete;
  CallableModels& operator=(const CallableModels&) = delete;

  // Returns whether a call that captures the storages `captured` may be
  // replayed. `all` are the storages that all of the callable's calls on the
  // device capture. If the worker does not know all of them, registers them and
  // waits for the answer. A refused set is registered once more if it changes,
  // and otherwise once in 256 calls. Returns false while another thread
  // registers. Returns true if the device fails, because the call will report
  // the failure. Every storage must be live.
  bool Admit(uint32_t lane, const std::shared_ptr<VirtualDevice>& device,
             const std::vector<StoragePtr>& captured,
             std::vector<StoragePtr> all);

  // Returns a human-readable reason for the last refusal, or an empty string if
  // the last request was granted.
  std::string refusal() const;

  // Forgets the models on all other devices.
  void Retain(const absl::flat_hash_set<const VirtualDevice*>& devices);

 private:
  using Ids = absl::flat_hash_set<uint64_t>;
  struct Model {
    std::shared_ptr<VirtualDevice> device;
    uint64_t id = 0;
    // The ids of the storages that the worker knows, and of the storages in the
    // last refused set.
    Ids known;
    Ids refused;
    // The number of calls since the refusal that wanted the same storages.
    uint64_t held_back = 0;
    bool asking = false;
    // True if Retain() removed the model while it was being asked for.
    bool gone = false;

    bool Knows(const std::vector<StoragePtr>& captured) const;
  };

  std::shared_ptr<Model> ModelOn(const std::shared_ptr<VirtualDevice>& device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes the worker's answer and returns Admit()'s result.
  bool Note(const absl::Status& status, Ids wanted,
            const std::vector<StoragePtr>& captured, Model* model)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  mutable Mutex mu_;
  // The lock guards the models' fields as well. There is usually one model.
  std::vector<std::shared_ptr<Model>> models_ ABSL_GUARDED_BY(mu_);
  std::string refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_CALLABLE_MODELS_H_
