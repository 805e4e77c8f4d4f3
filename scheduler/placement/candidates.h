// Chooses the workers that a placement decision looks at: the worker reserved
// for the request, workers that hold some of its state, and a few drawn at
// random.
//
// Two random candidates are exponentially better than one (Mitzenmacher 2001;
// Sparrow, SOSP '13); a few more make up for different devices. Looking at all
// workers would cost time in proportion to the cluster, and would send every
// request to the same worker between two of its reports.
#ifndef SCHEDULER_PLACEMENT_CANDIDATES_H_
#define SCHEDULER_PLACEMENT_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <random>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

using Randomness = std::mt19937_64;

// Returns a random number below `bound`, which is not 0.
uint64_t Draw(Randomness* random, uint64_t bound);

// Iterates over the workers of the fleet, each once: first the worker reserved
// for the request, then up to kMaxHolders that hold some of the state, the
// largest piece first, then the others in random order.
// The cost is proportional to the number of workers returned.
class CandidateWalk {
 public:
  static constexpr size_t kMaxHolders = 16;

  struct Candidate {
    const Fleet::Member* member = nullptr;
    // True for the reserved worker and for holders of state.
    bool first = false;
  };

  // All arguments must outlive the walk, and the fleet must not change.
  CandidateWalk(const Fleet* fleet, const Request& request, Randomness* random);

  // Returns the next candidate; its member is null at the end.
  Candidate Next();
  // Returns how many candidates a decision looks at unless all are filtered
  // out: the reserved worker, the holders, and `draws` others.
  size_t WorthLooking(size_t draws) const { return first_.size() + draws; }

 private:
  void FindHolders(const Request& request);

  const Fleet* const fleet_;
  Randomness* const random_;
  std::vector<const Fleet::Member*> first_;
  absl::flat_hash_set<const Fleet::Member*> seen_;
  size_t next_first_ = 0;
  // State of a partial shuffle of the fleet: positions that were exchanged.
  size_t shuffled_ = 0;
  absl::flat_hash_map<size_t, size_t> moved_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_CANDIDATES_H_
