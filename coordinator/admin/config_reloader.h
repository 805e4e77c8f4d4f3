// Reads the configuration again while the coordinator runs.
//
// Puts the tenants and cohorts into force, with all their settings, and the
// tokens of operators and workers. Everything else counts when the coordinator
// starts again. A configuration that is wrong in any part changes nothing.
//
// Thread-safe; one reload at a time.
#ifndef COORDINATOR_ADMIN_CONFIG_RELOADER_H_
#define COORDINATOR_ADMIN_CONFIG_RELOADER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "coordinator/config/config.h"
#include "coordinator/config/operators.h"
#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator {

// Writes the audit line of a reload that no operator's call asked for.
// `changes` describes what changed, or is the error.
void AuditReload(absl::string_view who,
                 const absl::StatusOr<std::string>& changes);

class ConfigReloader {
 public:
  // `read` reads the configuration again; `running` is the one in force. All
  // pointers must outlive this.
  ConfigReloader(const Config* running,
                 std::function<absl::StatusOr<Config>()> read,
                 ClusterState* cluster, Credentials* credentials, Clock* clock);

  struct Reloaded {
    // The tenants that changed, and the settings that differ but are not in
    // force.
    v1::ReloadConfigResponse response;
    // ConfigChanges() for the audit log, or "nothing".
    std::string changes;
  };
  // Reloads. Returns FailedPrecondition (BAD_CONFIG), which names every fault.
  absl::StatusOr<Reloaded> Reload();
  // Reloads at SIGHUP, and writes the audit line.
  void ReloadAtSignal();

  // Adds to a scrape whether the last reload succeeded, and when one did.
  void Collect(Exposition* out) const;

 private:
  const Config& running_;
  const std::function<absl::StatusOr<Config>()> read_;
  ClusterState* const cluster_;
  Credentials* const credentials_;
  Clock* const clock_;

  // Held for a whole reload.
  Mutex reloading_mu_;
  // The configuration that was read last.
  Config last_ ABSL_GUARDED_BY(reloading_mu_);
  mutable Mutex mu_;
  bool successful_ ABSL_GUARDED_BY(mu_) = true;
  absl::Time success_time_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_CONFIG_RELOADER_H_
