// Work whose right results are known without running it, for sessions on fake
// devices: uploads, chains of additions, reads, small and large, storages that
// come and go. Goes on until it is told to stop or a call fails.
#ifndef TESTS_CHAOS_WORKLOAD_H_
#define TESTS_CHAOS_WORKLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn {

struct WorkloadResult {
  uint64_t calls = 0;
  uint64_t reads = 0;
  // Of the call that failed first.
  absl::Status error;
  // A value that was not what it must be. Empty: none.
  std::string wrong;
  // The longest that any call took.
  absl::Duration longest;
};

// One lane's work. Not thread-safe.
class Workload {
 public:
  // `seed` decides everything.
  Workload(std::shared_ptr<VirtualDevice> device, uint32_t lane, uint64_t seed);

  // Until `stop`, an error, a wrong value, or `max_calls`.
  WorkloadResult Run(const std::atomic<bool>& stop,
                     uint64_t max_calls = UINT64_MAX);

 private:
  // A handle on a storage whose every element has this value.
  class Filled {
   public:
    Filled(StoragePtr storage, float value)
        : storage_(std::move(storage)), value_(value) {}
    Filled(Filled&&) = default;
    Filled& operator=(Filled&& other) noexcept {
      std::swap(storage_, other.storage_);
      std::swap(value_, other.value_);
      return *this;
    }
    ~Filled() {
      if (storage_) storage_->device()->MarkDead(storage_.get());
    }

    const StoragePtr& storage() const { return storage_; }
    float value() const { return value_; }

   private:
    StoragePtr storage_;
    float value_;
  };

  absl::Status Step(WorkloadResult* result);
  absl::Status Upload();
  absl::Status AddOne(size_t index);
  absl::Status Read(size_t index, WorkloadResult* result);
  uint64_t Draw(uint64_t bound) { return random_() % bound; }

  const std::shared_ptr<VirtualDevice> device_;
  const uint32_t lane_;
  std::mt19937_64 random_;
  std::vector<Filled> live_;
};

}  // namespace djinn

#endif  // TESTS_CHAOS_WORKLOAD_H_
