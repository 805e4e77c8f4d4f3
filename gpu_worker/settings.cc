#include "gpu_worker/settings.h"

#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "common/hash/hash.h"
#include "common/log/audit.h"
#include "common/log/log.h"

namespace djinn::worker {

std::vector<std::string> PendingSettings(const WorkerConfig& running,
                                         const WorkerConfig& read) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, const auto& before,
                           const auto& after) {
    if (before != after) names.push_back(name);
  };
  compare("worker_id", running.worker_id, read.worker_id);
  compare("listen", running.listen, read.listen);
  compare("advertise", running.advertise, read.advertise);
  compare("shared_memory_socket", running.shared_memory_socket,
          read.shared_memory_socket);
  // The contents of these files are read again while the process runs; a new
  // name of a file is not.
  compare("tls.certificate_file", running.tls.certificate_file,
          read.tls.certificate_file);
  compare("tls.private_key_file", running.tls.private_key_file,
          read.tls.private_key_file);
  compare("tls.client_ca_file", running.tls.client_ca_file,
          read.tls.client_ca_file);
  compare("coordinator", running.coordinator, read.coordinator);
  const auto compare_channel = [&](const std::string& key,
                                   const ChannelTls& before,
                                   const ChannelTls& after) {
    if (before.ca_file != after.ca_file ||
        before.certificate_file != after.certificate_file ||
        before.private_key_file != after.private_key_file ||
        before.server_name != after.server_name) {
      names.push_back(key);
    }
  };
  compare_channel("coordinator_tls", running.coordinator_tls,
                  read.coordinator_tls);
  compare_channel("peer_tls", running.peer_tls, read.peer_tls);
  compare("insecure", running.insecure, read.insecure);
  compare("monitoring.listen", running.monitoring.listen,
          read.monitoring.listen);
  compare("monitoring.insecure", running.monitoring.insecure,
          read.monitoring.insecure);
  const std::vector<std::string> tracing =
      TracingDifferences(running.tracing, read.tracing);
  names.insert(names.end(), tracing.begin(), tracing.end());
  const auto kind = [](const WorkerConfig& config) {
    return std::tuple(config.device_kind, config.all_gpus,
                      config.device_ordinal);
  };
  compare("device.kind", kind(running), kind(read));
  compare("device.plugin", running.device_plugin, read.device_plugin);
  compare("device.nvml_library", running.nvml_library, read.nvml_library);
  compare("device.graph_memory", running.graph_memory, read.graph_memory);
  compare("device.graphs", running.graphs, read.graphs);
  compare("device.memory", running.device_memory, read.device_memory);
  compare("device.threads", running.device_threads, read.device_threads);
  compare("device.packed_weights", running.packed_weights, read.packed_weights);
  compare("device.packed_weight_memory", running.packed_weight_memory,
          read.packed_weight_memory);
  compare("device.fuse_attention", running.fuse_attention, read.fuse_attention);
  compare("device.calibrate", running.calibrate, read.calibrate);
  // A worker that calibrates has measured the speed that it runs with.
  if (!read.calibrate && !running.calibrate) {
    compare("device.speed", running.speed.SerializeAsString(),
            read.speed.SerializeAsString());
  }
  compare("operator_libraries", running.operator_libraries,
          read.operator_libraries);
  compare("heartbeat_interval", running.heartbeat_interval,
          read.heartbeat_interval);
  compare("transfer_idle_timeout", running.transfer_idle_timeout,
          read.transfer_idle_timeout);
  compare("offer_timeout", running.offer_timeout, read.offer_timeout);
  compare("resume_timeout", running.resume_timeout, read.resume_timeout);
  compare("max_connections", running.max_connections, read.max_connections);
  compare("graph_cache_entries", running.graph_cache_entries,
          read.graph_cache_entries);
  compare("max_batch_runs", running.max_batch_runs, read.max_batch_runs);
  compare("tokens_first", running.tokens_first, read.tokens_first);
  compare("isolation.mode", running.isolated, read.isolated);
  compare("isolation.executors", running.executors, read.executors);
  compare("isolation.node_limit", running.node_limit, read.node_limit);
  compare("isolation.content_memory", running.content_memory,
          read.content_memory);
  compare("isolation.ports",
          std::pair(running.first_executor_port, running.last_executor_port),
          std::pair(read.first_executor_port, read.last_executor_port));
  compare("content_disk.directory", running.content_disk_directory,
          read.content_disk_directory);
  compare("content_disk.limit", running.content_disk_limit,
          read.content_disk_limit);
  return names;
}

Settings::Settings(const WorkerConfig& running, Clock* clock)
    : clock_(clock),
      running_(running),
      current_(running),
      success_time_(clock->Now()) {}

bool Settings::Reload(const absl::StatusOr<WorkerConfig>& read) {
  log::Audit({{"who", "SIGHUP"},
              {"what", "ReloadConfig"},
              {"result", absl::StatusCodeToString(read.status().code())},
              {"error", read.status().message()}});
  {
    MutexLock lock(&mu_);
    successful_ = read.ok();
    if (read.ok()) {
      success_time_ = clock_->Now();
      current_ = *read;
    }
  }
  if (!read.ok()) {
    log::Error("configuration not reloaded: nothing changed",
               {{"status", read.status()}});
    return false;
  }
  log::Info("configuration reloaded");
  const std::vector<std::string> pending = PendingSettings(running_, *read);
  if (!pending.empty()) {
    log::Warning("settings need a restart to take effect",
                 {{"settings", absl::StrJoin(pending, " ")}});
  }
  return true;
}

std::string Settings::join_token() const {
  MutexLock lock(&mu_);
  return current_.join_token;
}

bool Settings::IsAdminToken(absl::string_view token) const {
  MutexLock lock(&mu_);
  return !current_.admin_token.empty() &&
         TokensEqual(token, current_.admin_token);
}

uint64_t Settings::min_free_bytes() const {
  MutexLock lock(&mu_);
  return current_.min_free_bytes;
}

absl::Duration Settings::drain_timeout() const {
  MutexLock lock(&mu_);
  return current_.drain_timeout;
}

void Settings::AddFacts(v1::WorkerState* state) const {
  MutexLock lock(&mu_);
  state->set_price_per_hour(current_.price_per_hour);
  state->set_link_bytes_per_second(current_.link_bandwidth);
  state->mutable_capabilities()->Add(current_.capabilities.begin(),
                                     current_.capabilities.end());
  state->mutable_phases()->Assign(current_.phases.begin(),
                                  current_.phases.end());
}

void Settings::Collect(Exposition* out) const {
  MutexLock lock(&mu_);
  out->Gauge("djinn_config_last_reload_successful",
             "1 unless the last reload of the configuration failed.",
             successful_ ? 1 : 0);
  out->Gauge("djinn_config_last_reload_success_timestamp_seconds",
             "Unix time at which the configuration in force was read.",
             absl::ToDoubleSeconds(success_time_ - absl::UnixEpoch()));
}

}  // namespace djinn::worker
