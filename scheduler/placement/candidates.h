// Which workers a decision looks at: the one that is kept for the request,
// those that hold some of the state, and a few drawn from all.
//
// Two drawn ones are exponentially better than one (Mitzenmacher 2001, used by
// Sparrow, SOSP '13); a few more make up for different devices. Looking at all
// would cost time in proportion to the cluster, and would send everybody to the
// same worker between two of its reports.
#ifndef SCHEDULER_PLACEMENT_CANDIDATES_H_
#define SCHEDULER_PLACEMENT_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <random>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/request.h"

namespace djinn::scheduler {

using Randomness = std::mt19937_64;

// Below `bound`, which is not 0.
uint64_t Draw(Randomness* random, uint64_t bound);

// Yields each worker of the fleet once: first the one that is kept for the
// request, if any, and up to kMaxHolders that hold some of the state, the
// largest piece first, then the others in a random order.
// What it takes is in proportion to what it yields.
class CandidateWalk {
 public:
  static constexpr size_t kMaxHolders = 16;

  struct Candidate {
    const Fleet::Member* member = nullptr;
    // Comes first.
    bool first = false;
  };

  // All outlive the walk; the fleet stays as it is meanwhile.
  CandidateWalk(const Fleet* fleet, const Request& request, Randomness* random);

  // Null at the end.
  Candidate Next();
  // Candidates of a decision, unless all of them fall: those that come first,
  // and `draws` others.
  size_t WorthLooking(size_t draws) const { return first_.size() + draws; }

 private:
  void FindHolders(const Request& request);

  const Fleet* const fleet_;
  Randomness* const random_;
  std::vector<const Fleet::Member*> first_;
  absl::flat_hash_set<const Fleet::Member*> seen_;
  size_t next_first_ = 0;
  // A shuffle of places in the fleet, begun: those that are not where they
  // were.
  size_t shuffled_ = 0;
  absl::flat_hash_map<size_t, size_t> moved_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_CANDIDATES_H_
