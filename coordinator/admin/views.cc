#include "coordinator/admin/views.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/saturating.h"
#include "common/log/log.h"
#include "coordinator/admin/lineage.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/queue_stops.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::coordinator::views {
namespace {

// Most migrations in a SessionInfo, as admin.proto says.
constexpr size_t kShownMigrations = 8;

void Add(const v1::StorageUse& use, v1::StorageUse* sum) {
  sum->set_count(sum->count() + use.count());
  sum->set_size_bytes(sum->size_bytes() + use.size_bytes());
}

void Add(const v1::SessionUse& use, v1::SessionUse* sum) {
  Add(use.contents(), sum->mutable_contents());
  Add(use.storages(), sum->mutable_storages());
  if (use.has_caches()) Add(use.caches(), sum->mutable_caches());
  Add(use.generators(), sum->mutable_generators());
  sum->set_queued_runs(sum->queued_runs() + use.queued_runs());
  sum->set_outstanding(sum->outstanding() + use.outstanding());
  sum->set_outstanding_bytes(sum->outstanding_bytes() +
                             use.outstanding_bytes());
  sum->set_graph_count(sum->graph_count() + use.graph_count());
  sum->set_model_count(sum->model_count() + use.model_count());
  // A worker reports the maximum for a number that does not fit.
  sum->set_model_bytes(SaturatingSum(sum->model_bytes(), use.model_bytes()));
  sum->set_refused_models(sum->refused_models() + use.refused_models());
  sum->mutable_models()->MergeFrom(use.models());
}

void DescribeCredits(ClusterState& state, const Tenant& tenant,
                     v1::TenantCredits* credits)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (tenant.credits.device_time.has_value()) {
    *credits->mutable_granted()->mutable_device_time() =
        ToProtoDuration(*tenant.credits.device_time);
  }
  if (tenant.credits.bytes.has_value()) {
    credits->mutable_granted()->set_bytes(*tenant.credits.bytes);
  }
  state.billing.ledger.UsedNow(tenant.name, tenant.credits, state.clock->Now())
      .AddTo(credits->mutable_used());
  state.billing.ledger.Reserved(tenant.name).AddTo(credits->mutable_reserved());
}

template <typename Info, typename Map>
Page<Info> DescribePage(ClusterState& state, const Map& map,
                        const PageRange& range)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Page<typename Map::const_iterator> slice = Slice(map, range);
  Page<Info> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) {
    Describe(state, *entry->second, &page.items.emplace_back());
  }
  return page;
}

}  // namespace

void Describe(ClusterState& state, const Worker& worker, v1::WorkerInfo* info) {
  info->set_worker_id(worker.id);
  info->set_state(worker.state);
  info->set_incarnation(worker.incarnation);
  info->set_address(worker.facts.address);
  info->set_shared_memory_socket(worker.facts.shared_memory_socket);
  info->set_device(worker.facts.device);
  info->set_memory_bytes(worker.facts.memory_bytes);
  info->set_free_bytes(worker.facts.free_bytes);
  info->set_queued_runs(worker.facts.queued_runs);
  info->set_content_count(worker.cache.content_count);
  info->set_content_bytes(worker.cache.content_bytes);
  info->set_graph_count(static_cast<uint32_t>(worker.load.graphs.size()));
  std::set<absl::string_view> sessions;
  for (const auto& [lease_id, held] : worker.leases.held) {
    sessions.insert(held.session_id);
  }
  info->set_session_count(static_cast<uint32_t>(sessions.size()));
  *info->mutable_report_age() =
      ToProtoDuration(state.clock->Monotonic() - worker.last_report);
  info->set_lease_count(
      static_cast<uint32_t>(state.leases.OfWorker(worker.id).size()));
  if (worker.facts.speed.flops_per_second() > 0) {
    *info->mutable_speed() = worker.facts.speed;
  }
  info->set_price_per_hour(worker.facts.price_per_hour);
  info->set_link_bytes_per_second(worker.facts.link_bytes_per_second);
  for (const auto& [worker_id, bytes_per_second] : worker.facts.links) {
    v1::PeerLink* const link = info->add_links();
    link->set_worker_id(worker_id);
    link->set_bytes_per_second(bytes_per_second);
  }
  info->mutable_capabilities()->Assign(worker.facts.capabilities.begin(),
                                       worker.facts.capabilities.end());
  for (int phase = 0; phase < v1::Phase_ARRAYSIZE; ++phase) {
    if ((worker.facts.phases >> phase & 1) != 0) {
      info->add_phases(static_cast<v1::Phase>(phase));
    }
  }
  info->set_cordoned(state.moves.Cordoned(worker.id));
  info->set_draining(state.moves.Draining(worker.id));
  info->set_busy_share(worker.load.busy_share);
  const absl::Duration now = state.clock->Monotonic();
  const UnreachedWorkers::Summary unreached =
      state.unreached.Summarize(worker.id, now);
  info->set_unreached_sessions(static_cast<uint32_t>(unreached.sessions));
  info->set_unreached_tenants(static_cast<uint32_t>(unreached.tenants));
  info->set_unreached_by_all(unreached.by_everyone());
  if (unreached.sessions > 0) {
    *info->mutable_unreached_age() = ToProtoDuration(now - unreached.last);
  }
  if (worker.facts.gpu_health.has_value()) {
    *info->mutable_gpu_health() = *worker.facts.gpu_health;
  }
  if (!worker.facts.memory.has_value()) return;
  *info->mutable_memory() = *worker.facts.memory;
  *info->mutable_plan_cache() = worker.facts.plan_cache;
  *info->mutable_content_cache() = worker.facts.content_cache;
  if (worker.facts.disk.has_value()) *info->mutable_disk() = *worker.facts.disk;
  *info->mutable_executed() = worker.facts.executed;
}

void Describe(ClusterState& state, const Session& session,
              v1::SessionInfo* info) {
  info->set_session_id(log::ShortId(session.id));
  info->set_tenant(session.tenant);
  info->set_program(session.program);
  info->set_state(session.state);
  info->set_session_epoch(session.devices.epoch);
  info->set_graph_count(session.work.graphs.size());
  info->set_placement_policy(session.policy);
  *info->mutable_open_time() = ToProtoTimestamp(session.open_time);
  for (const auto& [device, pending] : session.devices.pending) {
    // A request of a further member never waits: it is granted or refused.
    if (device.member == 0) {
      info->add_pending_virtual_devices(device.virtual_device);
    }
  }
  // A session whose tenant was just removed has no limits.
  if (const auto tenant = state.tenants->Find(session.tenant)) {
    *info->mutable_limits() = tenant->limits;
    *info->mutable_urgency() = AllowedUrgency(*tenant, session.urgency);
  }
  const size_t count = session.devices.migrations.size();
  for (size_t i = count - std::min(count, kShownMigrations); i < count; ++i) {
    Describe(state, session.devices.migrations[i], info->add_migrations());
  }
  for (const Recovery& recovery : session.devices.recoveries) {
    lineage::Describe(state, recovery, info->add_recoveries());
  }
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    info->add_lease_ids(lease->id);
    const Worker::Held* const held = state.HeldFor(*lease);
    if (held == nullptr) continue;
    info->set_storage_count(info->storage_count() + held->storage_count);
    info->set_storage_bytes(info->storage_bytes() + held->storage_bytes);
    Add(held->use, info->mutable_use());
  }
}

absl::flat_hash_map<std::string, TenantSums> SumTenants(ClusterState& state) {
  absl::flat_hash_map<std::string, TenantSums> sums;
  for (const auto& [id, lease] : state.leases.all()) {
    ++sums[lease->tenant].leases;
  }
  for (const auto& [id, worker] : state.workers.all()) {
    for (const auto& [lease_id, held] : worker->leases.held) {
      TenantSums& sum = sums[held.tenant];
      sum.storage_bytes += held.storage_bytes;
      if (!sum.use.has_value()) sum.use.emplace();
      Add(held.use, &*sum.use);
    }
    for (const auto& [tenant, contents] : worker->cache.contents) {
      TenantSums& sum = sums[tenant];
      for (const ContentKey& key : contents) sum.content_bytes += key.second;
    }
  }
  return sums;
}

std::map<std::string, v1::TenantStanding> Standings(ClusterState& state) {
  std::map<std::string, v1::TenantStanding> standings;
  const Tenants::Snapshot tenants = state.tenants->all();
  absl::Duration all_used;
  for (const auto& [name, tenant] : *tenants) {
    v1::TenantStanding& standing = standings[name];
    standing.set_tenant(name);
    standing.set_weight(tenant->weight);
    const auto used = state.billing.ledger.tenants().find(name);
    if (used == state.billing.ledger.tenants().end()) continue;
    used->second.used.AddTo(standing.mutable_used());
    all_used += used->second.used.device_time;
  }
  for (const auto& [id, session] : state.sessions.all()) {
    const auto standing = standings.find(session->tenant);
    if (standing == standings.end()) continue;
    standing->second.set_session_count(standing->second.session_count() + 1);
    for (const auto& [device, pending] : session->devices.pending) {
      if (!pending.lease_id.empty()) continue;
      standing->second.set_waiting_count(standing->second.waiting_count() + 1);
    }
  }
  for (const auto& [id, lease] : state.leases.all()) {
    const auto standing = standings.find(lease->tenant);
    if (standing == standings.end()) continue;
    standing->second.set_lease_count(standing->second.lease_count() + 1);
  }
  double all_weights = 0;
  for (const auto& [name, standing] : standings) {
    if (standing.lease_count() > 0) all_weights += standing.weight();
  }
  for (auto& [name, standing] : standings) {
    if (standing.lease_count() > 0) {
      standing.set_fair_share(standing.weight() / all_weights);
    }
    if (all_used > absl::ZeroDuration()) {
      standing.set_device_time_share(absl::FDivDuration(
          FromProtoDuration(standing.used().device_time()), all_used));
    }
  }
  return standings;
}

void Describe(ClusterState& state, const Tenant& tenant, const TenantSums& sums,
              v1::TenantInfo* info) {
  info->set_tenant(tenant.name);
  *info->mutable_limits() = tenant.limits;
  info->set_max_sessions(tenant.max_sessions);
  if (tenant.totals.has_max_models()) {
    info->set_max_models(tenant.totals.max_models());
  }
  if (tenant.totals.has_model_bytes()) {
    info->set_model_bytes(tenant.totals.model_bytes());
  }
  if (tenant.totals.has_node_limit()) {
    *info->mutable_node_limit() = tenant.totals.node_limit();
  }
  info->set_placement_policy(tenant.placement.policy.empty()
                                 ? state.config.placement_policy
                                 : tenant.placement.policy);
  info->mutable_required_capabilities()->Assign(
      tenant.placement.required.begin(), tenant.placement.required.end());
  info->set_session_count(
      static_cast<uint32_t>(state.sessions.CountOfTenant(tenant.name)));
  info->set_lease_count(sums.leases);
  DescribeCredits(state, tenant, info->mutable_credits());
  if (const QueueStops::Stop* const stop =
          state.queue.stops.Find(tenant.name)) {
    *info->mutable_queue_stop() = QueueStops::Describe(*stop);
  }
  info->set_weight(tenant.weight);
  info->set_max_priority_class(tenant.max_priority_class);
  info->set_share_contents(tenant.share_contents);
  info->set_batch_with_others(tenant.batch_with_others);
  quota::Describe(state, tenant, info);
  info->set_storage_bytes(sums.storage_bytes);
  info->set_content_bytes(sums.content_bytes);
  if (sums.use.has_value()) *info->mutable_use() = *sums.use;
}

void Describe(ClusterState& state, const Lease& lease, v1::LeaseInfo* info) {
  const Worker::Held* const held = state.HeldFor(lease);
  info->set_lease_id(lease.id);
  info->set_session_id(log::ShortId(lease.session_id));
  info->set_tenant(lease.tenant);
  info->set_worker_id(lease.worker_id);
  info->set_incarnation(lease.incarnation);
  info->set_virtual_device(lease.device.virtual_device);
  info->set_member(lease.device.member);
  info->set_session_epoch(lease.epoch);
  *info->mutable_age() =
      ToProtoDuration(state.clock->Monotonic() - lease.created);
  info->set_placement_reason(lease.placement_reason);
  *info->mutable_limits() = lease.limits;
  info->set_out_of_credit(lease.out_of_credit);
  if (const CreditLedger::Account* account =
          state.billing.ledger.Find(lease.id)) {
    account->billed.AddTo(info->mutable_lease_use());
  }
  v1::LeaseClaims claims;
  if (const auto tenant = state.tenants->Find(lease.tenant)) {
    state.billing.ledger.Describe(lease.id, tenant->credits, &claims);
  }
  if (claims.has_credits()) *info->mutable_credits() = claims.credits();
  if (lease.state == Lease::State::kOffered) {
    info->set_state(v1::LeaseInfo::OFFERED);
  } else if (held != nullptr && held->attached) {
    info->set_state(v1::LeaseInfo::IN_USE);
  } else {
    info->set_state(v1::LeaseInfo::GRANTED);
  }
  if (held != nullptr && held->attached) *info->mutable_use() = held->use;
  if (held != nullptr && held->yielded.has_value()) {
    *info->mutable_yielded() = *held->yielded;
  }
}

void Describe(ClusterState& state, const Migration& migration,
              v1::MigrationInfo* info) {
  info->set_virtual_device(migration.virtual_device);
  info->set_from_worker_id(migration.from_worker_id);
  info->set_to_worker_id(migration.to_worker_id);
  info->set_reason(migration.reason);
  info->set_state(migration.state);
  *info->mutable_age() =
      ToProtoDuration(state.clock->Monotonic() - migration.decided);
  if (migration.terms.has_value()) {
    v1::MigrationTerms* const terms = info->mutable_terms();
    terms->set_stay_seconds(migration.terms->stay_seconds);
    terms->set_go_seconds(migration.terms->go_seconds);
    terms->set_state_bytes(migration.terms->state_bytes);
    terms->set_transfer_seconds(migration.terms->transfer_seconds);
  }
  if (migration.state == v1::MigrationInfo::FAILED) {
    info->set_failure_reason(ErrorReason(migration.failure));
    info->set_failure(std::string(migration.failure.message()));
  }
  if (migration.state != v1::MigrationInfo::DONE) return;
  info->set_storage_count(migration.outcome.storage_count());
  info->set_moved_bytes(migration.outcome.moved_bytes());
  info->set_held_bytes(migration.outcome.held_bytes());
  *info->mutable_paused() = migration.outcome.paused();
}

Page<v1::WorkerInfo> Workers(ClusterState& state, const PageRange& range) {
  MutexLock lock(&state.mu);
  return DescribePage<v1::WorkerInfo>(state, state.workers.all(), range);
}

Page<v1::SessionInfo> Sessions(ClusterState& state, const PageRange& range) {
  MutexLock lock(&state.mu);
  return DescribePage<v1::SessionInfo>(state, state.sessions.in_order(), range);
}

Page<v1::TenantInfo> TenantInfos(ClusterState& state, const PageRange& range) {
  MutexLock lock(&state.mu);
  const Tenants::Snapshot tenants = state.tenants->all();
  auto sums = SumTenants(state);
  const auto slice = Slice(*tenants, range);
  Page<v1::TenantInfo> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) {
    Describe(state, *entry->second, sums[entry->first],
             &page.items.emplace_back());
  }
  return page;
}

Page<v1::LeaseInfo> Leases(ClusterState& state, const PageRange& range) {
  MutexLock lock(&state.mu);
  return DescribePage<v1::LeaseInfo>(state, state.leases.all(), range);
}

absl::StatusOr<v1::WorkerInfo> GetWorker(ClusterState& state,
                                         const std::string& id) {
  MutexLock lock(&state.mu);
  const Worker* const worker = state.workers.Find(id);
  if (worker == nullptr) return Unknown("WORKER", id);
  v1::WorkerInfo info;
  Describe(state, *worker, &info);
  return info;
}

absl::StatusOr<v1::SessionInfo> GetSession(ClusterState& state,
                                           const std::string& id) {
  MutexLock lock(&state.mu);
  const Session* const session = state.FindForOperator(id);
  if (session == nullptr) return SessionUnknown(id);
  v1::SessionInfo info;
  Describe(state, *session, &info);
  return info;
}

absl::StatusOr<v1::TenantInfo> GetTenant(ClusterState& state,
                                         const std::string& name) {
  MutexLock lock(&state.mu);
  const std::shared_ptr<const Tenant> tenant = state.tenants->Find(name);
  if (tenant == nullptr) return Unknown("TENANT", name);
  v1::TenantInfo info;
  Describe(state, *tenant, SumTenants(state)[name], &info);
  return info;
}

absl::StatusOr<v1::LeaseInfo> GetLease(ClusterState& state,
                                       const std::string& id) {
  MutexLock lock(&state.mu);
  const Lease* const lease = state.leases.Find(id);
  if (lease == nullptr) return Unknown("LEASE", id);
  v1::LeaseInfo info;
  Describe(state, *lease, &info);
  return info;
}

void DescribePlans(ClusterState& state, absl::Span<v1::GraphInfo> graphs) {
  MutexLock lock(&state.mu);
  for (v1::GraphInfo& graph : graphs) {
    const std::string fingerprint = absl::HexStringToBytes(graph.fingerprint());
    for (const Worker* const worker : state.workers.WithGraph(fingerprint)) {
      const Worker::Runs& runs = worker->load.graphs.at(fingerprint);
      graph.set_run_count(graph.run_count() + runs.count);
      graph.add_worker_ids(worker->id);
      graph.set_content_bytes(
          std::max(graph.content_bytes(), runs.content_bytes));
    }
  }
}

}  // namespace djinn::coordinator::views
