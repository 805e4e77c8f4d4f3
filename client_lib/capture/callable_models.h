// What one registered callable keeps using on each device, as the worker there
// was told: where a tenant has a budget of models, its calls are carried out as
// a whole only within that.
//
// Thread-safe. Calls devices without holding its lock.
#ifndef CLIENT_LIB_CAPTURE_CALLABLE_MODELS_H_
#define CLIENT_LIB_CAPTURE_CALLABLE_MODELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/mutex.h"

namespace djinn::capture {

class CallableModels {
 public:
  // For operators.
  explicit CallableModels(std::string name) : name_(std::move(name)) {}
  // The workers forget them.
  ~CallableModels();
  CallableModels(const CallableModels&) = delete;
  CallableModels& operator=(const CallableModels&) = delete;

  // Whether a call may be carried out as a whole that keeps using `kept`; none
  // of the storages is gone. If the worker does not know `all` that the
  // callable's calls on the device keep using, it is told, and waited for.
  // What was refused is asked for again when it is something else, and now and
  // then. False, too, while another thread asks. A device that fails is
  // nobody's refusal: the call will say so.
  bool Admit(uint32_t lane, const std::shared_ptr<VirtualDevice>& device,
             const std::vector<StoragePtr>& kept, std::vector<StoragePtr> all);

  // Why a worker refused the last one, for people; empty when it did not.
  std::string refusal() const;

  // Forgets what is on other devices than these.
  void Retain(const absl::flat_hash_set<const VirtualDevice*>& devices);

 private:
  using Ids = absl::flat_hash_set<uint64_t>;
  struct Model {
    std::shared_ptr<VirtualDevice> device;
    uint64_t id = 0;
    // Of the storages that the worker knows of, and of what it refused last.
    Ids known;
    Ids refused;
    // Calls since then that would have asked for the same.
    uint64_t held_back = 0;
    bool asking = false;
    // Retain() left it out meanwhile.
    bool gone = false;

    bool Knows(const std::vector<StoragePtr>& kept) const;
  };

  std::shared_ptr<Model> ModelOn(const std::shared_ptr<VirtualDevice>& device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the worker answered; what Admit() is to say.
  bool Note(const absl::Status& status, Ids wanted,
            const std::vector<StoragePtr>& kept, Model* model)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  mutable Mutex mu_;
  // What they say is guarded, too. Few: one, mostly.
  std::vector<std::shared_ptr<Model>> models_ ABSL_GUARDED_BY(mu_);
  std::string refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_CALLABLE_MODELS_H_
