// Counts runs by how they ended, by tenant and phase. Successes take one
// atomic, failures a counter that locks.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_OBSERVE_REQUEST_COUNTS_H_
#define GPU_WORKER_SESSION_OBSERVE_REQUEST_COUNTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/lease/phase_times.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"

namespace djinn::worker {

class RequestCounts {
 public:
  using Succeeded = std::array<std::atomic<uint64_t>, PhaseTimes::kPhases>;

  // Returns the counters of the tenant with this label, which live as long as
  // this.
  Succeeded* SucceededOf(const std::string& tenant);
  void AddFailed(const std::string& tenant, v1::Phase phase,
                 absl::StatusCode code);

  void Collect(Exposition* out) const;

 private:
  LabelledCounter failed_{kName, kHelp, {"tenant", "phase", "code"}};
  mutable Mutex mu_;
  std::map<std::string, std::unique_ptr<Succeeded>> succeeded_
      ABSL_GUARDED_BY(mu_);

  static constexpr char kName[] = "djinn_requests_total";
  static constexpr char kHelp[] = "Runs that are over, by how they ended.";
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_REQUEST_COUNTS_H_
