// Executes runs of several sessions side by side, so that products with the
// same weight become one: the weight is read once for all of them.
//
// Each run advances by itself up to its next product, waits there for the runs
// that will come to the same weight, and continues with them. So runs need not
// share a graph: decoders at different positions differ in all but their
// weights. A run sees nothing of the others: its nodes are its own, a product
// is one of rows, and a failure ends its own run alone.
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
  // The member's time: of its own nodes, and its part by rows of shared
  // products. The times of all members add up to the whole time.
  absl::Duration used;
};

struct LockstepCalls {
  // Only grows.
  absl::FunctionRef<absl::Duration()> now;
  // Called once for each member, as soon as it has no node left; finishes it.
  absl::FunctionRef<void(size_t member)> done;
  // Called when products of these members became one of so many rows.
  absl::FunctionRef<void(absl::Span<const size_t> members, int64_t rows)>
      joined;
};

// Executes all runs to their ends. Returns the time of the products, which one
// more run would have shared. For one thread.
absl::Duration ExecuteInLockstep(absl::Span<LockstepMember> members,
                                 OperatorLibrary* library,
                                 const LockstepCalls& calls);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_LOCKSTEP_H_
