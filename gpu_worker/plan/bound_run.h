// A run with one binding for every slot, whatever its message left out because
// an earlier run of the same graph said it, which the session remembers.
//
// Reused from run to run for its memory. Not thread-safe: a session's.
#ifndef GPU_WORKER_PLAN_BOUND_RUN_H_
#define GPU_WORKER_PLAN_BOUND_RUN_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/plan/plan.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

// When what a run makes ceases to be, and the most of it that lives at a time:
// that is paid for at once.
struct Lifetimes {
  // (last node, slot) of the final slots, ascending.
  std::vector<std::pair<uint32_t, uint32_t>> ends;
  uint64_t peak_bytes = 0;
};

struct BoundRun {
  // As v1::Binding.
  struct Binding {
    uint64_t storage = 0;
    uint64_t base_version = 0;
    uint32_t writes = 0;
    bool reads = false;
    // Null for one that is born.
    Storage* existing = nullptr;
  };

  // Scalar tensors and mode. Outlives this.
  const v1::Run* message = nullptr;
  // By hole.
  std::vector<double> floats;
  std::vector<Binding> bindings;
  std::vector<uint32_t> final_slots;
  // The run that it repeats had the same.
  bool same_final_slots = false;
};

// The parts of a graph's run that a session remembers.
struct RememberedRun {
  std::vector<uint64_t> storages;  // by slot
  std::vector<uint32_t> final_slots;
  std::vector<double> floats;  // by hole
  int64_t size = 0;
  Lifetimes lifetimes;

  // Slots and float holes.
  size_t size_in_slots() const { return storages.size() + floats.size(); }
};

// Fills `run`. `plan` may be null for a graph that was refused.
// `remembered`: the runs of the graph, by place. What the
// message says is checked as far as is needed to read it: InvalidArgument
// (PROTOCOL_VIOLATION); nothing else is changed then.
absl::Status BindRun(const v1::Run& message, const Plan* plan,
                     absl::Span<const RememberedRun> remembered,
                     const StorageTable& storages, BoundRun* run);

// Returns the lifetimes that follow from the final slots of a run of the plan,
// which are in range.
Lifetimes LifetimesOf(const Plan& plan,
                      const std::vector<uint32_t>& final_slots);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_BOUND_RUN_H_
