// Decides whether runs have so much in common that they should be executed side
// by side (lockstep.h).
//
// A run that joins others waits for them, and they for it. That pays only where
// most of the products are shared: with one common product a decoder would wait
// for all of a prompt whose last row uses the same output matrix.
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

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_SHARED_PRODUCTS_H_
