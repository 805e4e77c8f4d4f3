// What operators see.
#include <algorithm>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/saturating.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

// As SessionInfo.migrations says.
constexpr size_t kShownMigrations = 8;

absl::Status Unknown(absl::string_view what, absl::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, absl::StrCat(what, "_UNKNOWN"),
                   absl::StrCat("there is no \"", name, "\""));
}

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
  sum->set_structure_count(sum->structure_count() + use.structure_count());
  sum->set_model_count(sum->model_count() + use.model_count());
  // A worker says the most there is of what no sum can hold.
  sum->set_model_bytes(SaturatingSum(sum->model_bytes(), use.model_bytes()));
  sum->set_refused_models(sum->refused_models() + use.refused_models());
  sum->mutable_models()->MergeFrom(use.models());
}

}  // namespace

void Cluster::Describe(const Worker& worker, v1::WorkerInfo* info) {
  info->set_worker_id(worker.id);
  info->set_state(worker.state);
  info->set_incarnation(worker.incarnation);
  info->set_address(worker.address);
  info->set_shared_memory_socket(worker.shared_memory_socket);
  info->set_device(worker.device);
  info->set_memory_bytes(worker.memory_bytes);
  info->set_free_bytes(worker.free_bytes);
  info->set_queued_runs(worker.queued_runs);
  info->set_content_count(worker.content_count);
  info->set_content_bytes(worker.content_bytes);
  info->set_graph_count(static_cast<uint32_t>(worker.graphs.size()));
  std::set<absl::string_view> sessions;
  for (const auto& [lease_id, held] : worker.held) {
    sessions.insert(held.session_id);
  }
  info->set_session_count(static_cast<uint32_t>(sessions.size()));
  *info->mutable_report_age() =
      ToProtoDuration(clock_->Monotonic() - worker.last_report);
  info->set_lease_count(
      static_cast<uint32_t>(leases_.OfWorker(worker.id).size()));
  info->set_protocol_version(worker.protocol_version);
  if (worker.speed.flops_per_second() > 0) {
    *info->mutable_speed() = worker.speed;
  }
  info->set_price_per_hour(worker.price_per_hour);
  info->set_link_bytes_per_second(worker.link_bytes_per_second);
  for (const auto& [worker_id, bytes_per_second] : worker.links) {
    v1::PeerLink* const link = info->add_links();
    link->set_worker_id(worker_id);
    link->set_bytes_per_second(bytes_per_second);
  }
  info->mutable_capabilities()->Assign(worker.capabilities.begin(),
                                       worker.capabilities.end());
  for (int phase = 0; phase < v1::Phase_ARRAYSIZE; ++phase) {
    if ((worker.phases >> phase & 1) != 0) {
      info->add_phases(static_cast<v1::Phase>(phase));
    }
  }
  info->set_cordoned(cordoned_.contains(worker.id));
  info->set_draining(draining_.contains(worker.id));
  info->set_busy_share(worker.busy_share);
  if (!worker.memory.has_value()) return;
  *info->mutable_memory() = *worker.memory;
  *info->mutable_plan_cache() = worker.plan_cache;
  *info->mutable_content_cache() = worker.content_cache;
  if (worker.disk.has_value()) *info->mutable_disk() = *worker.disk;
  *info->mutable_executed() = worker.executed;
}

const Worker::Held* Cluster::HeldFor(const Lease& lease) {
  const Worker* const worker = workers_.Find(lease.worker_id);
  if (worker == nullptr) return nullptr;
  const auto found = worker->held.find(lease.id);
  return found == worker->held.end() ? nullptr : &found->second;
}

void Cluster::Describe(const Session& session, v1::SessionInfo* info) {
  info->set_session_id(log::ShortId(session.id));
  info->set_tenant(session.tenant);
  info->set_program(session.program);
  info->set_state(session.state);
  info->set_session_epoch(session.epoch);
  info->set_structure_count(session.structures.size());
  info->set_placement_policy(session.policy);
  *info->mutable_open_time() = ToProtoTimestamp(session.open_time);
  for (const auto& [device, pending] : session.pending) {
    // A further member never waits.
    if (device.member == 0) {
      info->add_pending_virtual_devices(device.virtual_device);
    }
  }
  // A session whose tenant was just removed has none.
  if (const auto tenant = tenants_->Find(session.tenant)) {
    *info->mutable_limits() = tenant->limits;
    *info->mutable_urgency() = Allowed(*tenant, session.urgency);
  }
  const size_t count = session.migrations.size();
  for (size_t i = count - std::min(count, kShownMigrations); i < count; ++i) {
    Describe(session.migrations[i], info->add_migrations());
  }
  for (const Lease* lease : leases_.OfSession(session.id)) {
    info->add_lease_ids(lease->id);
    const Worker::Held* const held = HeldFor(*lease);
    if (held == nullptr) continue;
    info->set_storage_count(info->storage_count() + held->storage_count);
    info->set_storage_bytes(info->storage_bytes() + held->storage_bytes);
    Add(held->use, info->mutable_use());
  }
}

absl::flat_hash_map<std::string, Cluster::TenantSums> Cluster::SumTenants() {
  absl::flat_hash_map<std::string, TenantSums> sums;
  for (const auto& [id, lease] : leases_.all()) ++sums[lease->tenant].leases;
  for (const auto& [id, worker] : workers_.all()) {
    for (const auto& [lease_id, held] : worker->held) {
      TenantSums& sum = sums[held.tenant];
      sum.storage_bytes += held.storage_bytes;
      if (!sum.use.has_value()) sum.use.emplace();
      Add(held.use, &*sum.use);
    }
    for (const auto& [tenant, contents] : worker->contents) {
      TenantSums& sum = sums[tenant];
      for (const ContentKey& key : contents) sum.content_bytes += key.second;
    }
  }
  return sums;
}

void Cluster::Describe(const Tenant& tenant, const TenantSums& sums,
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
  info->set_placement_policy(tenant.placement.policy.empty()
                                 ? config_.placement_policy
                                 : tenant.placement.policy);
  info->mutable_required_capabilities()->Assign(
      tenant.placement.required.begin(), tenant.placement.required.end());
  info->set_session_count(
      static_cast<uint32_t>(sessions_.CountOfTenant(tenant.name)));
  info->set_lease_count(sums.leases);
  Describe(tenant, info->mutable_credits());
  if (const QueueStops::Stop* const stop = queue_stops_.Find(tenant.name)) {
    *info->mutable_queue_stop() = QueueStops::Describe(*stop);
  }
  info->set_weight(tenant.weight);
  info->set_max_priority_class(tenant.max_priority_class);
  info->set_share_contents(tenant.share_contents);
  info->set_batch_with_others(tenant.batch_with_others);
  DescribeQuota(tenant, info);
  info->set_storage_bytes(sums.storage_bytes);
  info->set_content_bytes(sums.content_bytes);
  if (sums.use.has_value()) *info->mutable_use() = *sums.use;
}

void Cluster::Describe(const Tenant& tenant, v1::TenantCredits* credits) {
  if (tenant.credits.device_time.has_value()) {
    *credits->mutable_granted()->mutable_device_time() =
        ToProtoDuration(*tenant.credits.device_time);
  }
  if (tenant.credits.bytes.has_value()) {
    credits->mutable_granted()->set_bytes(*tenant.credits.bytes);
  }
  ledger_.UsedNow(tenant.name, tenant.credits, clock_->Now())
      .AddTo(credits->mutable_used());
  ledger_.Reserved(tenant.name).AddTo(credits->mutable_reserved());
}

void Cluster::Describe(const Lease& lease, v1::LeaseInfo* info) {
  const Worker::Held* const held = HeldFor(lease);
  info->set_lease_id(lease.id);
  info->set_session_id(log::ShortId(lease.session_id));
  info->set_tenant(lease.tenant);
  info->set_worker_id(lease.worker_id);
  info->set_incarnation(lease.incarnation);
  info->set_virtual_device(lease.device.virtual_device);
  info->set_member(lease.device.member);
  info->set_session_epoch(lease.epoch);
  *info->mutable_age() = ToProtoDuration(clock_->Monotonic() - lease.created);
  info->set_placement_reason(lease.placement_reason);
  *info->mutable_limits() = lease.limits;
  info->set_out_of_credit(lease.out_of_credit);
  if (const CreditLedger::Account* account = ledger_.Find(lease.id)) {
    account->billed.AddTo(info->mutable_lease_use());
  }
  v1::LeaseClaims claims;
  if (const auto tenant = tenants_->Find(lease.tenant)) {
    ledger_.Describe(lease.id, tenant->credits, &claims);
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
  if (held != nullptr && held->given_way.has_value()) {
    *info->mutable_given_way() = *held->given_way;
  }
}

template <typename Info, typename Map>
Page<Info> Cluster::DescribePage(const Map& map, const PageRange& range) {
  const Page<typename Map::const_iterator> slice = Slice(map, range);
  Page<Info> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) {
    Describe(*entry->second, &page.items.emplace_back());
  }
  return page;
}

Page<v1::WorkerInfo> Cluster::Workers(const PageRange& range) {
  MutexLock lock(&mu_);
  return DescribePage<v1::WorkerInfo>(workers_.all(), range);
}

Page<v1::SessionInfo> Cluster::Sessions(const PageRange& range) {
  MutexLock lock(&mu_);
  return DescribePage<v1::SessionInfo>(sessions_.in_order(), range);
}

Page<v1::TenantInfo> Cluster::TenantInfos(const PageRange& range) {
  MutexLock lock(&mu_);
  const Tenants::Snapshot tenants = tenants_->all();
  auto sums = SumTenants();
  const auto slice = Slice(*tenants, range);
  Page<v1::TenantInfo> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) {
    Describe(*entry->second, sums[entry->first], &page.items.emplace_back());
  }
  return page;
}

Page<v1::LeaseInfo> Cluster::Leases(const PageRange& range) {
  MutexLock lock(&mu_);
  return DescribePage<v1::LeaseInfo>(leases_.all(), range);
}

absl::StatusOr<v1::WorkerInfo> Cluster::GetWorker(const std::string& id) {
  MutexLock lock(&mu_);
  const Worker* const worker = workers_.Find(id);
  if (worker == nullptr) return Unknown("WORKER", id);
  v1::WorkerInfo info;
  Describe(*worker, &info);
  return info;
}

const Session* Cluster::FindForOperator(const std::string& id) {
  const Session* const session = sessions_.FindByPrefix(id);
  return session != nullptr &&
                 (id == session->id || id == log::ShortId(session->id))
             ? session
             : nullptr;
}

absl::Status Cluster::SessionUnknown(const std::string& id) {
  return Unknown("SESSION", log::ShortId(id));
}

absl::StatusOr<v1::SessionInfo> Cluster::GetSession(const std::string& id) {
  MutexLock lock(&mu_);
  const Session* const session = FindForOperator(id);
  if (session == nullptr) return SessionUnknown(id);
  v1::SessionInfo info;
  Describe(*session, &info);
  return info;
}

absl::StatusOr<v1::TenantInfo> Cluster::GetTenant(const std::string& name) {
  const std::shared_ptr<const Tenant> tenant = tenants_->Find(name);
  if (tenant == nullptr) return Unknown("TENANT", name);
  MutexLock lock(&mu_);
  v1::TenantInfo info;
  Describe(*tenant, SumTenants()[name], &info);
  return info;
}

absl::StatusOr<v1::LeaseInfo> Cluster::GetLease(const std::string& id) {
  MutexLock lock(&mu_);
  const Lease* const lease = leases_.Find(id);
  if (lease == nullptr) return Unknown("LEASE", id);
  v1::LeaseInfo info;
  Describe(*lease, &info);
  return info;
}

void Cluster::DescribePlans(absl::Span<v1::GraphInfo> graphs) {
  MutexLock lock(&mu_);
  for (v1::GraphInfo& graph : graphs) {
    const std::string fingerprint = absl::HexStringToBytes(graph.fingerprint());
    for (const Worker* const worker : workers_.WithGraph(fingerprint)) {
      const Worker::Runs& runs = worker->graphs.at(fingerprint);
      graph.set_run_count(graph.run_count() + runs.count);
      graph.add_worker_ids(worker->id);
      graph.set_content_bytes(
          std::max(graph.content_bytes(), runs.content_bytes));
    }
  }
}

}  // namespace djinn::coordinator
