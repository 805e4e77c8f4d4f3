#include "gpu_worker/leases/lease_meter.h"

#include <algorithm>

#include "common/base/proto_duration.h"

namespace djinn::worker {
namespace {

// Returns the middle between what is used and what may be used.
uint64_t Midway(uint64_t used, uint64_t may) {
  return used >= may ? may : used + (may - used) / 2;
}

}  // namespace

void LeaseMeter::SetCredits(const v1::LeaseClaims& claims) {
  const v1::LeaseCredits& credits = claims.credits();
  const uint64_t nanoseconds =
      credits.has_device_time()
          ? static_cast<uint64_t>(std::max<int64_t>(
                0, absl::ToInt64Nanoseconds(
                       FromProtoDuration(credits.device_time()))))
          : kUnlimited;
  const uint64_t bytes = credits.has_bytes() ? credits.bytes() : kUnlimited;
  // The same credits may arrive again. The coordinator need not learn of their
  // low credit twice.
  if (nanoseconds != may_nanoseconds_) {
    may_nanoseconds_ = nanoseconds;
    low_nanoseconds_ = Midway(nanoseconds_, nanoseconds);
  }
  if (bytes != may_bytes_) {
    may_bytes_ = bytes;
    low_bytes_ = Midway(traffic_.bytes(), bytes);
  }
}

bool LeaseMeter::Add(v1::Phase phase, absl::Duration used) {
  const auto added = static_cast<uint64_t>(
      std::max<int64_t>(0, absl::ToInt64Nanoseconds(used)));
  const uint64_t sum =
      nanoseconds_.fetch_add(added, std::memory_order_relaxed) + added;
  phases_.Add(phase, added);
  bool low = false;
  if (sum >= low_nanoseconds_.load(std::memory_order_relaxed)) {
    low_nanoseconds_ = kUnlimited;
    low = true;
  }
  if (traffic_.bytes() >= low_bytes_.load(std::memory_order_relaxed)) {
    low_bytes_ = kUnlimited;
    low = true;
  }
  return low;
}

v1::LeaseUse LeaseMeter::use() const {
  v1::LeaseUse use;
  const PhaseTimes phases = phases_.Read();
  *use.mutable_device_time() = ToProtoDuration(phases.total());
  use.set_bytes(traffic_.bytes());
  phases.Describe(use.mutable_phases());
  return use;
}

}  // namespace djinn::worker
