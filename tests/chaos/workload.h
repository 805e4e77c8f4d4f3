// Issues calls whose right results are known in advance, for sessions on fake
// devices: uploads, chains of additions, and reads, small and large, of
// storages that are created and released. Continues until it is stopped or a
// call fails.
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
  // Error of the call that failed first.
  absl::Status error;
  // Description of a wrong value. Empty: there was none.
  std::string wrong;
  // Time of the longest call.
  absl::Duration longest;
};

// The calls of one lane. Not thread-safe.
class Workload {
 public:
  // `seed` determines all calls.
  Workload(std::shared_ptr<VirtualDevice> device, uint32_t lane, uint64_t seed);

  // Runs until `stop`, an error, a wrong value, or `max_calls`.
  WorkloadResult Run(const std::atomic<bool>& stop,
                     uint64_t max_calls = UINT64_MAX);

 private:
  // A handle on a storage whose elements all have this value.
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
