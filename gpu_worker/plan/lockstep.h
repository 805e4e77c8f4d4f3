// Executes runs of several sessions side by side and joins their products with
// the same weight, so that the device reads the weight once for all of them.
//
// Each run advances by itself up to its next product, waits there for the runs
// that will reach the same weight, and continues with them. So runs need not
// share a graph: decoders at different positions differ in everything but their
// weights. A run sees nothing of the others: its nodes are its own, each row of
// a product depends on its own row alone, and a failure ends only its own run.
#ifndef GPU_WORKER_PLAN_LOCKSTEP_H_
#define GPU_WORKER_PLAN_LOCKSTEP_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/plan/ongoing_run.h"

namespace djinn::worker {

// Decides whether runs have so much in common that they should be executed side
// by side. A run that joins others waits for them, and they for it. That pays
// only where most of the products are shared: with one common product a decoder
// would wait for all of a prompt whose last row uses the same output matrix.
class SharedProducts {
 public:
  using Products = absl::Span<const OngoingRun::Product>;

  // Takes the products of the run that others may join.
  explicit SharedProducts(Products products);

  // Returns whether at least half of the products of either run have one to
  // join in the other.
  bool Suit(Products others) const;

 private:
  // The number of the run's products by weight and kind.
  absl::flat_hash_map<std::pair<const Buffer*, uint64_t>, size_t> counts_;
  const size_t total_;
};

struct LockstepMember {
  // A run on which Begin() was called.
  OngoingRun* run = nullptr;
  // The member's time: that of its own nodes, and its share by rows of joined
  // products. The times of all members add up to the whole time.
  absl::Duration used;
};

struct LockstepCalls {
  // Returns the present time, which only grows.
  absl::FunctionRef<absl::Duration()> now;
  // Finishes a member. Called once for each, as soon as it has no node left.
  absl::FunctionRef<void(size_t member)> done;
  // Called when products of these members were joined into one of `rows` rows.
  absl::FunctionRef<void(absl::Span<const size_t> members, int64_t rows)>
      joined;
};

// Executes all runs to their ends, in the calling thread. Returns the time of
// the products that one more run could have joined.
absl::Duration ExecuteInLockstep(absl::Span<LockstepMember> members,
                                 OperatorLibrary* library,
                                 const LockstepCalls& calls);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_LOCKSTEP_H_
