// Carries out runs of several sessions side by side, so that products with the
// same weight become one: the weight is read once for all of them.
//
// Each run goes on by itself up to its next product, waits there for those that
// will come to the same weight, and is then carried on with them. So runs need
// not be of one structure: decoders at different positions differ in all but
// their weights. A run sees nothing of the others: nodes are its own, a product
// is one of rows, and what fails in one run is the end of that run alone.
#ifndef GPU_WORKER_PLAN_LOCKSTEP_H_
#define GPU_WORKER_PLAN_LOCKSTEP_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/plan/ongoing_run.h"

namespace djinn::worker {

struct LockstepMember {
  // Begun.
  OngoingRun* run = nullptr;
  // How much of the time was its own: of its nodes, and of what it shared by
  // rows. Those of all members add up to what all took.
  absl::Duration used;
};

struct LockstepCalls {
  // Only grows.
  absl::FunctionRef<absl::Duration()> now;
  // The member has no node left, as soon as that is so; to be finished. Once
  // for each.
  absl::FunctionRef<void(size_t member)> done;
  // Products of these members became one of so many rows.
  absl::FunctionRef<void(absl::Span<const size_t> members, int64_t rows)>
      joined;
};

// Carries all out to their ends. Returns what the products took, which one more
// run would have shared. One thread.
absl::Duration CarryOutInLockstep(absl::Span<LockstepMember> members,
                                  OperatorLibrary* library,
                                  const LockstepCalls& calls);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_LOCKSTEP_H_
