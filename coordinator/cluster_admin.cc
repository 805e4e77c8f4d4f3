// What operators see.
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
std::vector<v1::WorkerInfo> Cluster::Workers() {
  MutexLock lock(&mu_);
  std::vector<v1::WorkerInfo> result;
  for (const auto& [id, worker] : workers_.all()) {
    v1::WorkerInfo& info = result.emplace_back();
    info.set_worker_id(id);
    info.set_state(worker->state);
    info.set_incarnation(worker->incarnation);
    info.set_address(worker->address);
    info.set_device(worker->device);
    info.set_memory_bytes(worker->memory_bytes);
    info.set_free_bytes(worker->free_bytes);
    info.set_queued_runs(worker->queued_runs);
    info.set_content_count(worker->content_count);
    info.set_content_bytes(worker->content_bytes);
    info.set_graph_count(static_cast<uint32_t>(worker->graphs.size()));
    std::set<std::string> sessions;
    for (const Worker::Held& held : worker->held) {
      sessions.insert(held.session_id);
    }
    info.set_session_count(static_cast<uint32_t>(sessions.size()));
    *info.mutable_report_age() =
        ToProtoDuration(clock_->Monotonic() - worker->last_report);
  }
  return result;
}

std::vector<v1::SessionInfo> Cluster::Sessions() {
  MutexLock lock(&mu_);
  std::map<std::string, std::pair<uint64_t, uint64_t>> storages;
  for (const auto& [id, worker] : workers_.all()) {
    for (const Worker::Held& held : worker->held) {
      auto& [count, bytes] = storages[held.session_id];
      count += held.storage_count;
      bytes += held.storage_bytes;
    }
  }
  std::vector<v1::SessionInfo> result;
  for (const auto& [id, session] : sessions_.all()) {
    v1::SessionInfo& info = result.emplace_back();
    info.set_session_id(log::ShortId(id));
    info.set_tenant(session->tenant);
    info.set_program(session->program);
    info.set_state(session->state);
    for (const Lease* lease : leases_.OfSession(id)) {
      info.add_lease_ids(lease->id);
    }
    info.set_structure_count(session->structures.size());
    info.mutable_open_time()->set_seconds(
        absl::ToUnixSeconds(session->open_time));
    const auto found = storages.find(id);
    if (found != storages.end()) {
      info.set_storage_count(found->second.first);
      info.set_storage_bytes(found->second.second);
    }
  }
  return result;
}

std::vector<v1::TenantInfo> Cluster::TenantInfos() {
  MutexLock lock(&mu_);
  std::vector<v1::TenantInfo> result;
  for (const Tenant& tenant : tenants_.all()) {
    v1::TenantInfo& info = result.emplace_back();
    info.set_tenant(tenant.name);
    *info.mutable_limits() = tenant.limits;
    info.set_max_sessions(tenant.max_sessions);
    info.set_session_count(
        static_cast<uint32_t>(sessions_.CountOfTenant(tenant.name)));
    uint32_t leases = 0;
    for (const auto& [id, lease] : leases_.all()) {
      leases += lease->tenant == tenant.name;
    }
    info.set_lease_count(leases);
    uint64_t storage_bytes = 0;
    uint64_t content_bytes = 0;
    for (const auto& [id, worker] : workers_.all()) {
      for (const Worker::Held& held : worker->held) {
        if (held.tenant == tenant.name) storage_bytes += held.storage_bytes;
      }
      const auto contents = worker->contents.find(tenant.name);
      if (contents == worker->contents.end()) continue;
      for (const ContentKey& key : contents->second) {
        content_bytes += key.second;
      }
    }
    info.set_storage_bytes(storage_bytes);
    info.set_content_bytes(content_bytes);
  }
  return result;
}

std::vector<v1::LeaseInfo> Cluster::Leases() {
  MutexLock lock(&mu_);
  std::vector<v1::LeaseInfo> result;
  for (const auto& [id, lease] : leases_.all()) {
    v1::LeaseInfo& info = result.emplace_back();
    info.set_lease_id(id);
    info.set_session_id(log::ShortId(lease->session_id));
    info.set_tenant(lease->tenant);
    info.set_worker_id(lease->worker_id);
    info.set_virtual_device(lease->virtual_device);
    info.set_session_epoch(lease->epoch);
    *info.mutable_age() = ToProtoDuration(clock_->Monotonic() - lease->created);
    info.set_placement_reason(lease->placement_reason);
  }
  return result;
}

std::map<std::string, uint64_t> Cluster::RunCounts() {
  MutexLock lock(&mu_);
  std::map<std::string, uint64_t> result;
  for (const auto& [id, worker] : workers_.all()) {
    for (const auto& [fingerprint, runs] : worker->graphs) {
      result[fingerprint] += runs;
    }
  }
  return result;
}

}  // namespace djinn::coordinator
