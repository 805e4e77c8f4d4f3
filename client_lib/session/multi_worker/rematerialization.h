// Describes how a value was computed, so that another worker can compute the
// value instead of fetching it.
//
// A *cheap* value takes only a few calls of almost no cost: a mask, positions,
// a tensor of zeros. It is rematerialized wherever it is needed. For any other
// value, the device compares the time of computing it with that of fetching it,
// and checks whether its operands have changed.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZATION_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "common/base/mutex.h"

namespace djinn {

// Represents the value of a program's storage at one version, so that a
// rematerialization can name an operand without keeping it alive.
//
// The device's lock (multi_worker_device.h) guards everything but releases. The
// program may release a storage at any time, in any thread, and no call may
// name it afterwards. A user therefore pins the storage while it needs it, and
// on unpinning destroys a storage that was released meanwhile. Thread-safe.
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
  // Returns true if the storage was released while it was pinned. The caller
  // must then destroy it.
  bool Unpin() {
    MutexLock lock(&mu_);
    return --pins_ == 0 && dead_;
  }
  // Notes that the program released the storage. Returns false if a thread has
  // pinned the storage; that thread then destroys it.
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

// Immutable, so that values computed from others share their descriptions.
struct Rematerialization {
  // Limit on the calls in all. A value that takes more is fetched.
  static constexpr uint32_t kMaxCalls = 8;

  Rematerialization() = default;
  ~Rematerialization();
  Rematerialization(const Rematerialization&) = delete;
  Rematerialization& operator=(const Rematerialization&) = delete;

  // The last of the calls that compute the value; its touches name no storages.
  // Meaningless if `calls` is 0: the value is then zeros that no call has
  // written.
  Call call;
  // Describes, for each touch, how the contents of its storage before the call
  // were computed. Null for a storage that the call creates. In a value that is
  // not cheap, also null if this is unknown.
  std::vector<std::shared_ptr<const Rematerialization>> before;
  // Empty if the value is cheap. Otherwise has, for each touch, the storage
  // whose contents `before` describes, while the storage still has them. Null
  // for a storage that the call creates. An entry may be null where that of
  // `before` is not.
  std::vector<std::shared_ptr<HeldValue>> held;
  // The touch that is the value.
  uint32_t made = 0;
  // Size of the value's storage.
  uint64_t size_bytes = 0;
  uint32_t calls = 0;
  // Size of everything that is computed on the way, including the value.
  uint64_t bytes = 0;
  // The session's count of root errors when the first of the calls was
  // recorded.
  uint64_t errors_before = 0;
  // The replica that computed the value, unless it is cheap.
  int member = 0;

  bool cheap() const { return held.empty(); }

  // The memory of this object, and the sum to which the device adds it; null
  // for cheap values.
  int64_t footprint = 0;
  std::shared_ptr<std::atomic<int64_t>> footprints;
};

// Returns whether the operator costs almost nothing and, at least for integers,
// gives the same bits on every device. Such an operator creates, compares,
// masks or copies elements one by one. Thread-safe.
bool IsCheap(uint32_t operator_id);

// Describes the value that `call` computes, before the call is recorded;
// `before` is as in Rematerialization. Returns null if the call is not cheap,
// draws, writes no value or several, has unknown results, reads a value that is
// not cheap, or takes much larger intermediates. Also returns null if the call
// computes real numbers whose last bits depend on the processor (arange, and
// sums, which may be fused with a product).
std::shared_ptr<Rematerialization> RematerializationOf(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before);

// Describes a value that is not cheap; `before` and `held` are as in
// Rematerialization. Returns null if the operator may give different bits
// (repeatable.h), draws, writes no value or several, has unknown results,
// partly overwrites a value that cannot be rematerialized, or takes much more
// memory. If the descriptions of operands would take too many calls, drops
// those of operands that a storage still holds.
std::shared_ptr<Rematerialization> WeighedRematerializationOf(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before,
    std::vector<std::shared_ptr<HeldValue>> held);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZATION_H_
