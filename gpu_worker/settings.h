// Holds the settings of a worker that a reload of its configuration replaces:
// tokens, the worker's description of itself, its minimum of free memory and
// its drain timeout. All other settings count at the next start.
//
// Thread-safe.
#ifndef GPU_WORKER_SETTINGS_H_
#define GPU_WORKER_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/config.h"

namespace djinn::worker {

// Returns the keys of the settings in which `read` differs from `running` and
// that a reload cannot change.
std::vector<std::string> PendingSettings(const WorkerConfig& running,
                                         const WorkerConfig& read);

class Settings {
 public:
  // `clock` must outlive this.
  Settings(const WorkerConfig& running, Clock* clock);

  // Applies the settings that a reload can change, and logs those that count at
  // the next start. If `read` is an error, returns false, changes nothing and
  // logs the error.
  bool Reload(const absl::StatusOr<WorkerConfig>& read);

  std::string join_token() const;
  // Returns false when there is no admin token.
  bool IsAdminToken(absl::string_view token) const;
  uint64_t min_free_bytes() const;
  absl::Duration drain_timeout() const;
  // Adds the configured price, link, capabilities and phases.
  void AddFacts(v1::WorkerState* state) const;

  // Adds to a scrape whether the last reload succeeded, and when one did.
  void Collect(Exposition* out) const;

 private:
  Clock* const clock_;
  // As at the start.
  const WorkerConfig running_;

  mutable Mutex mu_;
  // As last read.
  WorkerConfig current_ ABSL_GUARDED_BY(mu_);
  bool successful_ ABSL_GUARDED_BY(mu_) = true;
  absl::Time success_time_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SETTINGS_H_
