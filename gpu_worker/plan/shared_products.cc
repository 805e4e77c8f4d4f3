#include "gpu_worker/plan/shared_products.h"

#include "absl/container/flat_hash_set.h"

namespace djinn::worker {

SharedProducts::SharedProducts(Products products) : total_(products.size()) {
  for (const OngoingRun::Product& product : products) {
    ++counts_[{product.weight, product.kind}];
  }
}

bool SharedProducts::Suit(Products others) const {
  if (others.empty()) return false;
  size_t met = 0;
  size_t others_met = 0;
  absl::flat_hash_set<std::pair<const Buffer*, uint64_t>> seen;
  for (const OngoingRun::Product& other : others) {
    const auto found = counts_.find({other.weight, other.kind});
    if (found == counts_.end()) continue;
    ++others_met;
    if (seen.insert(found->first).second) met += found->second;
  }
  return 2 * others_met >= others.size() && 2 * met >= total_;
}

}  // namespace djinn::worker
