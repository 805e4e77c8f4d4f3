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
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/virtual_device.h"

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
  // A storage whose every element has this value.
  struct Filled {
    StoragePtr storage;
    float value;
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
