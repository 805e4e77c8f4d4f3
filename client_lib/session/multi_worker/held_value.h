// What a storage of the program holds at one version: how a rematerialization
// names an operand without keeping it.
//
// The device's lock (multi_worker_device.h) guards everything but deaths: the
// program may drop a storage at any time, in any thread, and then nothing may
// name it any more. So whoever is about to use it pins it for a while, and sees
// to its end himself if it died meanwhile. Thread-safe.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_HELD_VALUE_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_HELD_VALUE_H_

#include "client_lib/session/model/remote_storage.h"
#include "common/base/mutex.h"

namespace djinn {

class HeldValue {
 public:
  explicit HeldValue(RemoteStorage* storage) : storage_(storage) {}

  // The storage, usable until Unpin(); null when the value is gone.
  StoragePtr Pin() {
    MutexLock lock(&mu_);
    if (storage_ == nullptr || dead_) return StoragePtr();
    ++pins_;
    return StoragePtr(storage_);
  }
  // Whether the storage has died, and its end is the caller's to see to.
  bool Unpin() {
    MutexLock lock(&mu_);
    return --pins_ == 0 && dead_;
  }
  // The program has dropped it. False: whoever has pinned it sees to its end.
  bool Die() {
    MutexLock lock(&mu_);
    dead_ = true;
    return pins_ == 0;
  }
  // It holds something else now, or is no more.
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
