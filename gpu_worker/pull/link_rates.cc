#include "gpu_worker/pull/link_rates.h"

#include <algorithm>

namespace djinn::worker {

v1::PeerLink LinkRates::Add(const std::string& worker_id, uint64_t bytes,
                            absl::Duration took) {
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mu_);
  if (links_.size() >= kMaxLinks && !links_.contains(worker_id)) {
    links_.erase(std::min_element(
        links_.begin(), links_.end(), [](const auto& a, const auto& b) {
          return a.second.measured() < b.second.measured();
        }));
  }
  DecayedRate& link = links_[worker_id];
  link.Add(bytes, took, now);
  return Describe(worker_id, link.BytesPerSecond(now));
}

std::vector<v1::PeerLink> LinkRates::Known() const {
  const absl::Duration now = clock_->Monotonic();
  std::vector<v1::PeerLink> known;
  MutexLock lock(&mu_);
  for (const auto& [worker_id, link] : links_) {
    const uint64_t rate = link.BytesPerSecond(now);
    if (rate > 0) known.push_back(Describe(worker_id, rate));
  }
  return known;
}

v1::PeerLink LinkRates::Describe(const std::string& worker_id, uint64_t rate) {
  v1::PeerLink told;
  told.set_worker_id(worker_id);
  told.set_bytes_per_second(rate);
  return told;
}

}  // namespace djinn::worker
