// Remembers how the memory of workers was used at past moments, for the memory
// picture and its slider.
#ifndef COORDINATOR_CONSOLE_MEMORY_HISTORY_H_
#define COORDINATOR_CONSOLE_MEMORY_HISTORY_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::console {

// Sizes are in bytes.
struct WorkerMemory {
  std::string worker, device;
  v1::WorkerInfo::State state = v1::WorkerInfo::STATE_UNSPECIFIED;
  // As WorkerInfo and MemoryUse.
  uint64_t memory = 0, free = 0;
  uint64_t storages = 0, contents = 0, idle_contents = 0, transfers = 0;
  uint64_t caches = 0;
  // Evictions since the worker started, of contents and of plans.
  uint64_t content_evictions = 0, plan_evictions = 0;

  friend bool operator==(const WorkerMemory&, const WorkerMemory&) = default;
};

// The use of a tenant's leases at one worker, by class. Contents that several
// sessions share count for each.
struct TenantMemory {
  // Index into MemoryMoment::workers.
  uint32_t worker = 0;
  std::string tenant;
  uint64_t contents = 0, storages = 0, caches = 0, generators = 0;

  friend bool operator==(const TenantMemory&, const TenantMemory&) = default;
};

struct MemoryMoment {
  absl::Time at;
  std::vector<WorkerMemory> workers;
  // Ordered by worker and tenant.
  std::vector<TenantMemory> tenants;
};

// Returns the use of memory that these lists show.
std::shared_ptr<const MemoryMoment> MemoryMomentOf(
    const v1::ListWorkersResponse& workers,
    const v1::ListLeasesResponse& leases, absl::Time now);

// Not thread-safe. The moments that it returns are immutable.
class MemoryHistory {
 public:
  // Keeps moments with at most `capacity` workers and tenants in total, the
  // last, and always one.
  explicit MemoryHistory(size_t capacity) : capacity_(capacity) {}

  // Adds a moment, unless nothing changed since the last one.
  void Add(std::shared_ptr<const MemoryMoment> moment);

  // Returns the last moment that is not after `at`, or else the oldest; null
  // before the first Add().
  std::shared_ptr<const MemoryMoment> At(absl::Time at) const;
  // Returns the times of the moments, ascending.
  std::vector<absl::Time> times() const;

 private:
  const size_t capacity_;
  size_t size_ = 0;
  std::deque<std::shared_ptr<const MemoryMoment>> moments_;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_MEMORY_HISTORY_H_
