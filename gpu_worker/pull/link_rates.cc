#include "gpu_worker/pull/link_rates.h"

#include <algorithm>
#include <cmath>

namespace djinn::worker {
namespace {

// Of a new measurement beside what is fresh.
constexpr double kWeight = 0.5;

}  // namespace

v1::PeerLink LinkRates::Add(const std::string& worker_id, uint64_t bytes,
                            absl::Duration took) {
  const double measured =
      absl::ToDoubleSeconds(took) / static_cast<double>(bytes);
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mu_);
  if (links_.size() >= kMaxLinks && !links_.contains(worker_id)) {
    links_.erase(std::min_element(
        links_.begin(), links_.end(), [](const auto& a, const auto& b) {
          return a.second.measured < b.second.measured;
        }));
  }
  const auto [it, first] = links_.try_emplace(worker_id);
  Link& link = it->second;
  link.seconds_per_byte =
      first || now - link.measured > kFresh
          ? measured
          : kWeight * measured + (1 - kWeight) * link.seconds_per_byte;
  link.measured = now;
  return Describe(worker_id, link);
}

std::vector<v1::PeerLink> LinkRates::Known() const {
  const absl::Duration now = clock_->Monotonic();
  std::vector<v1::PeerLink> known;
  MutexLock lock(&mu_);
  for (const auto& [worker_id, link] : links_) {
    if (now - link.measured > kKept) continue;
    known.push_back(Describe(worker_id, link));
  }
  return known;
}

v1::PeerLink LinkRates::Describe(const std::string& worker_id,
                                 const Link& link) {
  v1::PeerLink told;
  told.set_worker_id(worker_id);
  // No link is faster than what can be told.
  told.set_bytes_per_second(static_cast<uint64_t>(
      std::llround(std::clamp(1 / link.seconds_per_byte, 1.0, 1e15))));
  return told;
}

}  // namespace djinn::worker
