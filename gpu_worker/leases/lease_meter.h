// What the sessions of one lease have used here, and what they may.
//
// The executor asks before each step and adds what the step took; credits come
// with the issues of the lease. What every step touches is an atomic: no lock,
// no allocation. A step that began with credit may end beyond it.
#ifndef GPU_WORKER_LEASES_LEASE_METER_H_
#define GPU_WORKER_LEASES_LEASE_METER_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "djinn/v1/lease.pb.h"
#include "gpu_worker/leases/phase_counters.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/leases/yielded.h"

namespace djinn::worker {

class LeaseMeter {
 public:
  // Bytes are added to `total`, too, which outlives the meter.
  explicit LeaseMeter(Traffic* total) : traffic_(total) {}

  // Where sessions of the lease count their bytes.
  Traffic* traffic() { return &traffic_; }

  // From the newest issue.
  void SetCredits(const v1::LeaseClaims& claims);

  bool HasCredit() const {
    return nanoseconds_.load(std::memory_order_relaxed) <
               may_nanoseconds_.load(std::memory_order_relaxed) &&
           traffic_.bytes() < may_bytes_.load(std::memory_order_relaxed);
  }
  // The device served the lease for so long, for work of this phase. True when
  // half of what the newest issue brought is gone, once for each issue: more
  // should be asked for.
  bool Add(v1::Phase phase, absl::Duration used);

  // Turns to `waits`; true when it was otherwise before.
  bool SetWaiting(bool waits) { return waiting_.exchange(waits) != waits; }
  bool waiting() const { return waiting_; }

  absl::Duration device_time() const {
    return absl::Nanoseconds(nanoseconds_.load(std::memory_order_relaxed));
  }
  v1::LeaseUse use() const;

  // Of its runs.
  Yielded* yielded() { return &yielded_; }

 private:
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

  Traffic traffic_;
  std::atomic<uint64_t> nanoseconds_{0};
  // What that is the sum of.
  PhaseCounters phases_;
  std::atomic<uint64_t> may_nanoseconds_{kUnlimited};
  std::atomic<uint64_t> may_bytes_{kUnlimited};
  // Use beyond these is worth a word to the coordinator.
  std::atomic<uint64_t> low_nanoseconds_{kUnlimited};
  std::atomic<uint64_t> low_bytes_{kUnlimited};
  std::atomic<bool> waiting_{false};
  Yielded yielded_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_LEASE_METER_H_
