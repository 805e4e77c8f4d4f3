#include "coordinator/admin/config_reloader.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/log/audit.h"
#include "common/log/log.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/config/config_changes.h"

namespace djinn::coordinator {

void AuditReload(absl::string_view who,
                 const absl::StatusOr<std::string>& changes) {
  log::Audit({{"who", who},
              {"what", "ReloadConfig"},
              {"after", changes.ok() ? *changes : "-"},
              {"result", changes.ok() ? "OK" : ErrorReason(changes.status())},
              {"error", changes.status().message()}});
}

ConfigReloader::ConfigReloader(const Config* running,
                               std::function<absl::StatusOr<Config>()> read,
                               ClusterState* cluster, Credentials* credentials,
                               Clock* clock)
    : running_(*running),
      read_(std::move(read)),
      cluster_(cluster),
      credentials_(credentials),
      clock_(clock),
      last_(*running),
      success_time_(clock->Now()) {}

absl::StatusOr<ConfigReloader::Reloaded> ConfigReloader::Reload() {
  MutexLock reloading(&reloading_mu_);
  absl::StatusOr<Config> config = read_();
  {
    MutexLock lock(&mu_);
    successful_ = config.ok();
    if (config.ok()) success_time_ = clock_->Now();
  }
  if (!config.ok()) {
    log::Error("configuration not reloaded: nothing changed",
               {{"status", config.status()}});
    return MakeError(absl::StatusCode::kFailedPrecondition, "BAD_CONFIG",
                     config.status().message());
  }
  const std::vector<std::string> pending = PendingSettings(running_, *config);
  Reloaded reloaded;
  reloaded.changes = ConfigChanges(last_, *config);
  if (reloaded.changes.empty()) reloaded.changes = "nothing";
  last_ = *config;
  credentials_->Set(OperatorsOf(*config), config->join_token);
  reloaded.response = tenants::Set(*cluster_, std::move(config->tenants),
                                   std::move(config->cohorts));
  reloaded.response.mutable_pending_settings()->Assign(pending.begin(),
                                                       pending.end());
  log::Info("configuration reloaded", {{"changes", reloaded.changes}});
  if (!pending.empty()) {
    log::Warning("settings need a restart to take effect",
                 {{"settings", absl::StrJoin(pending, " ")}});
  }
  return reloaded;
}

void ConfigReloader::ReloadAtSignal() {
  const absl::StatusOr<Reloaded> reloaded = Reload();
  if (reloaded.ok()) {
    AuditReload("SIGHUP", reloaded->changes);
  } else {
    AuditReload("SIGHUP", reloaded.status());
  }
}

void ConfigReloader::Collect(Exposition* out) const {
  MutexLock lock(&mu_);
  out->Gauge("djinn_config_last_reload_successful",
             "1 unless the last reload of the configuration failed.",
             successful_ ? 1 : 0);
  out->Gauge("djinn_config_last_reload_success_timestamp_seconds",
             "Unix time at which the configuration in force was read.",
             absl::ToDoubleSeconds(success_time_ - absl::UnixEpoch()));
}

}  // namespace djinn::coordinator
