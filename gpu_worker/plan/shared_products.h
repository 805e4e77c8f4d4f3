// Whether runs have so much in common that they should go on side by side
// (lockstep.h).
//
// A run that joins others waits for them, and they for it. That is worth it
// where most of what can be joined is: one product in common would have a
// decoder wait for all of a prompt whose last row goes through the same head.
#ifndef GPU_WORKER_PLAN_SHARED_PRODUCTS_H_
#define GPU_WORKER_PLAN_SHARED_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "gpu_worker/plan/ongoing_run.h"

namespace djinn::worker {

class SharedProducts {
 public:
  using Products = absl::Span<const OngoingRun::Product>;

  // Of the run that others may join.
  explicit SharedProducts(Products products);

  // Half of those of either run, at least, have one to join in the other.
  bool Suit(Products others) const;

 private:
  // How many of the run's products are such a one.
  absl::flat_hash_map<std::pair<const Buffer*, uint64_t>, size_t> counts_;
  const size_t total_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_SHARED_PRODUCTS_H_
