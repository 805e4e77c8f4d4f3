// Represents the value of a program's storage at one version, so that a
// rematerialization can name an operand without keeping it alive.
//
// The device's lock (multi_worker_device.h) guards everything but releases. The
// program may release a storage at any time, in any thread, and nothing may
// name it afterwards. A user therefore pins the storage for a while, and
// destroys it if it was released meanwhile. Thread-safe.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_HELD_VALUE_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_HELD_VALUE_H_

#include "client_lib/session/model/remote_storage.h"
#include "common/base/mutex.h"

namespace djinn {

class HeldValue {
 public:
  explicit HeldValue(RemoteStorage* storage) : storage_(storage) {}

  // Returns the storage, usable until Unpin(), or null when the value is gone.
  StoragePtr Pin() {
    MutexLock lock(&mu_);
    if (storage_ == nullptr || dead_) return StoragePtr();
    ++pins_;
    return StoragePtr(storage_);
  }
  // Returns whether the storage was released meanwhile and the caller must
  // destroy it.
  bool Unpin() {
    MutexLock lock(&mu_);
    return --pins_ == 0 && dead_;
  }
  // Notes that the program released the storage. Returns false if a thread has
  // pinned it, which then destroys it.
  bool Die() {
    MutexLock lock(&mu_);
    dead_ = true;
    return pins_ == 0;
  }
  // Notes that the storage has another value now, or does not exist any more.
  void Leave() {
    MutexLock lock(&mu_);
    storage_ = nullptr;
  }

 private:
  Mutex mu_;
  RemoteStorage* storage_ ABSL_GUARDED_BY(mu_);
  int pins_ ABSL_GUARDED_BY(mu_) = 0;
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_HELD_VALUE_H_
