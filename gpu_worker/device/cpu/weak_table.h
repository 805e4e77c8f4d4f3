// Objects by name that live as long as somebody uses them.
#ifndef GPU_WORKER_DEVICE_CPU_WEAK_TABLE_H_
#define GPU_WORKER_DEVICE_CPU_WEAK_TABLE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/mutex.h"

namespace djinn::worker {

// Thread-safe.
template <typename T>
class WeakTable {
 public:
  // The object of that name; a new one if there is none. `make` is called under
  // the lock.
  std::shared_ptr<T> Find(std::string name,
                          absl::FunctionRef<std::shared_ptr<T>()> make) {
    MutexLock lock(&mu_);
    std::weak_ptr<T>& known = objects_[std::move(name)];
    std::shared_ptr<T> object = known.lock();
    if (object != nullptr) return object;
    object = make();
    known = object;
    if (objects_.size() >= clear_at_) {
      absl::erase_if(objects_,
                     [](const auto& entry) { return entry.second.expired(); });
      clear_at_ = 2 * objects_.size() + 1024;
    }
    return object;
  }

  // How many are known, forgotten ones included that were not cleared yet.
  size_t size() const {
    MutexLock lock(&mu_);
    return objects_.size();
  }

 private:
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, std::weak_ptr<T>> objects_
      ABSL_GUARDED_BY(mu_);
  // Size at which the forgotten ones are cleared.
  size_t clear_at_ ABSL_GUARDED_BY(mu_) = 1024;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_WEAK_TABLE_H_
