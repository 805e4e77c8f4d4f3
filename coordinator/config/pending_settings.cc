#include "coordinator/config/pending_settings.h"

namespace djinn::coordinator {

std::vector<std::string> PendingSettings(const Config& running,
                                         const Config& read) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, const auto& before,
                           const auto& after) {
    if (before != after) names.push_back(name);
  };
  compare("listen", running.listen, read.listen);
  compare("insecure", running.insecure, read.insecure);
  // The contents of these files are read again while it runs; a new name is
  // not.
  compare("tls.certificate_file", running.tls.certificate_file,
          read.tls.certificate_file);
  compare("tls.private_key_file", running.tls.private_key_file,
          read.tls.private_key_file);
  compare("tls.client_ca_file", running.tls.client_ca_file,
          read.tls.client_ca_file);
  compare("monitoring.listen", running.monitoring.listen,
          read.monitoring.listen);
  compare("monitoring.insecure", running.monitoring.insecure,
          read.monitoring.insecure);
  compare("session_timeout", running.session_timeout, read.session_timeout);
  compare("worker_timeout", running.worker_timeout, read.worker_timeout);
  compare("heartbeat_interval", running.heartbeat_interval,
          read.heartbeat_interval);
  compare("lease_valid_for", running.lease_valid_for, read.lease_valid_for);
  compare("lease_grace_period", running.lease_grace_period,
          read.lease_grace_period);
  compare("lease_key_lifetime", running.lease_key_lifetime,
          read.lease_key_lifetime);
  compare("lease_request_timeout", running.lease_request_timeout,
          read.lease_request_timeout);
  compare("line_patience", running.line_patience, read.line_patience);
  compare("reclaim_spares_for", running.reclaim_spares_for,
          read.reclaim_spares_for);
  compare("reclaim_loss_limit", running.reclaim_loss_limit,
          read.reclaim_loss_limit);
  compare("graph_store_size", running.graph_store_bytes,
          read.graph_store_bytes);
  compare("scaler.listen", running.scaler.listen, read.scaler.listen);
  compare("scaler.insecure", running.scaler.insecure, read.scaler.insecure);
  compare("scaler.target_utilisation", running.scaler.target_utilisation,
          read.scaler.target_utilisation);
  compare("automatic_migration", running.automatic_migration,
          read.automatic_migration);
  compare("placement_policy", running.placement_policy, read.placement_policy);
  compare("recorded_jobs", running.recorded_jobs, read.recorded_jobs);
  compare("state_file", running.state_file, read.state_file);
  compare("join_token_file", running.join_token, read.join_token);
  compare("admin_token_file", running.admin_token, read.admin_token);
  return names;
}

}  // namespace djinn::coordinator
