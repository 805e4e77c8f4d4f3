// Completes a run's message: gives every slot one binding and fills in what the
// message omits because an earlier run of the same graph had the same, which
// the session remembers.
//
// A BoundRun is reused from run to run to save allocations. Not thread-safe: it
// belongs to one session.
#ifndef GPU_WORKER_PLAN_BOUND_RUN_H_
#define GPU_WORKER_PLAN_BOUND_RUN_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gpu_worker/plan/plan.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::v1 {
class Run;
}  // namespace djinn::v1

namespace djinn::worker {

// Says when the values that a run creates are destroyed, and the peak of their
// bytes, which the run reserves at once.
struct Lifetimes {
  // The final slots with the last node that uses each: (last node, slot),
  // ascending.
  std::vector<std::pair<uint32_t, uint32_t>> ends;
  uint64_t peak_bytes = 0;
};

struct BoundRun {
  // The fields of v1::Binding.
  struct Binding {
    uint64_t storage = 0;
    uint64_t base_version = 0;
    uint32_t writes = 0;
    bool reads = false;
    // Null for a storage that the run creates.
    Storage* existing = nullptr;
  };

  // Holds the scalar tensors and the mode. Outlives this.
  const v1::Run* message = nullptr;
  // Values by float hole.
  std::vector<double> floats;
  std::vector<Binding> bindings;
  std::vector<uint32_t> final_slots;
  // The run that this one repeats had the same final slots.
  bool same_final_slots = false;
};

// The parts of a graph's run that a session remembers.
struct RememberedRun {
  std::vector<uint64_t> storages;  // by slot
  std::vector<uint32_t> final_slots;
  std::vector<double> floats;  // by hole
  int64_t size = 0;
  Lifetimes lifetimes;

  // Returns the number of slots and float holes.
  size_t size_in_slots() const { return storages.size() + floats.size(); }
};

// Fills `run`. `plan` may be null for a graph that was refused. `remembered`
// holds the remembered runs of the graph, by the index that messages use.
// Checks the message only as far as reading it requires. Returns
// InvalidArgument (PROTOCOL_VIOLATION) and changes nothing else if that fails.
absl::Status BindRun(const v1::Run& message, const Plan* plan,
                     absl::Span<const RememberedRun> remembered,
                     const StorageTable& storages, BoundRun* run);

// Returns the lifetimes that follow from the final slots of a run of the plan,
// which are in range.
Lifetimes LifetimesOf(const Plan& plan,
                      const std::vector<uint32_t>& final_slots);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_BOUND_RUN_H_
