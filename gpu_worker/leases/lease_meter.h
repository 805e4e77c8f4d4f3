// Counts what the sessions of one lease have used here, against what they may
// use.
//
// The executor asks before each step and adds the time that the step took;
// credits arrive with the revisions of the lease. Everything that a step
// touches is an atomic: no lock, no allocation. A step that began with credit
// may exceed it.
#ifndef GPU_WORKER_LEASES_LEASE_METER_H_
#define GPU_WORKER_LEASES_LEASE_METER_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "djinn/v1/lease.pb.h"
#include "gpu_worker/leases/phase_counters.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/leases/yielded.h"

namespace djinn::worker {

class LeaseMeter {
 public:
  // Adds all bytes to `total` as well, which must outlive the meter.
  explicit LeaseMeter(Traffic* total, std::string lease_id = "")
      : lease_id_(std::move(lease_id)), traffic_(total) {}

  const std::string& lease_id() const { return lease_id_; }
  // Returns the counter of the bytes of the lease's sessions.
  Traffic* traffic() { return &traffic_; }

  // Sets the credits of the lease's newest revision.
  void SetCredits(const v1::LeaseClaims& claims);

  bool HasCredit() const {
    return nanoseconds_.load(std::memory_order_relaxed) <
               may_nanoseconds_.load(std::memory_order_relaxed) &&
           traffic_.bytes() < may_bytes_.load(std::memory_order_relaxed);
  }
  // Adds device time that the lease used for work of this phase. Returns true
  // once per change of credits, when half of them is used up and the
  // coordinator should grant more.
  bool Add(v1::Phase phase, absl::Duration used);

  // Sets whether a session waits for credit; returns whether that changed.
  bool SetWaiting(bool waits) { return waiting_.exchange(waits) != waits; }
  bool waiting() const { return waiting_; }

  absl::Duration device_time() const {
    return absl::Nanoseconds(nanoseconds_.load(std::memory_order_relaxed));
  }
  v1::LeaseUse use() const;

  // Returns the record of how the lease's runs yielded.
  Yielded* yielded() { return &yielded_; }

 private:
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

  const std::string lease_id_;
  Traffic traffic_;
  std::atomic<uint64_t> nanoseconds_{0};
  // The device time of nanoseconds_, by phase.
  PhaseCounters phases_;
  std::atomic<uint64_t> may_nanoseconds_{kUnlimited};
  std::atomic<uint64_t> may_bytes_{kUnlimited};
  // Use beyond these amounts must be reported to the coordinator soon.
  std::atomic<uint64_t> low_nanoseconds_{kUnlimited};
  std::atomic<uint64_t> low_bytes_{kUnlimited};
  std::atomic<bool> waiting_{false};
  Yielded yielded_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_LEASE_METER_H_
