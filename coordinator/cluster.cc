// Takes the lock, unless the concern does so itself, and calls it. What the
// cluster does is in
//   cluster_state.h         the tables, and their lock,
//   cluster_notices.h       what sessions and workers are told,
//   cluster_fleet.h         what decisions see of workers,
//   cluster_line.h          who waits for a worker, and in which order,
//   cluster_phases.h        what workers are told of their graphs,
//   cluster_demand_meter.h  what the scaler asks,
//   cluster_credits.h       credits and rates of leases,
//   cluster_persistence.h   what outlives the process,
//   cluster_leases.h        the life of a lease,
//   cluster_quota.h         which leases fit quotas,
//   cluster_views.h         what operators see,
//   cluster_reclaim.h       who gives back what is borrowed,
//   cluster_placement.h     the choice of workers,
//   cluster_migration.h     ways to other workers,
//   cluster_moves.h         who goes there, and when,
//   cluster_sessions.h      the streams of sessions,
//   cluster_requests.h      requests and returns of leases,
//   cluster_stages.h        the cuts of virtual devices that span workers,
//   cluster_usage.h         reports of leases' use,
//   cluster_adoption.h      leases that workers report and nobody knows,
//   cluster_jobs.h          what ran, as it is recorded,
//   cluster_workers.h       the streams of workers,
//   cluster_tenants.h       tenants that come, change and go,
//   cluster_explain.h       why virtual devices are where they are,
//   cluster_queue.h         tenants' queues, and stops of them,
//   cluster_runs.h          single runs, which workers are asked for,
//   cluster_scrape.h        what is scraped.
// None includes one below it here.
#include "coordinator/cluster.h"

#include <utility>

#include "absl/time/time.h"
#include "common/error.h"
#include "common/metrics/exposition.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "coordinator/cluster_credits.h"
#include "coordinator/cluster_demand.h"
#include "coordinator/cluster_demand_meter.h"
#include "coordinator/cluster_explain.h"
#include "coordinator/cluster_jobs.h"
#include "coordinator/cluster_line.h"
#include "coordinator/cluster_migration.h"
#include "coordinator/cluster_moves.h"
#include "coordinator/cluster_persistence.h"
#include "coordinator/cluster_placement.h"
#include "coordinator/cluster_queue.h"
#include "coordinator/cluster_quota.h"
#include "coordinator/cluster_requests.h"
#include "coordinator/cluster_runs.h"
#include "coordinator/cluster_scrape.h"
#include "coordinator/cluster_sessions.h"
#include "coordinator/cluster_stages.h"
#include "coordinator/cluster_state.h"
#include "coordinator/cluster_tenants.h"
#include "coordinator/cluster_views.h"
#include "coordinator/cluster_workers.h"
#include "coordinator/lease_table.h"
#include "coordinator/session_table.h"
#include "coordinator/stage_planner.h"
#include "coordinator/tenants.h"
#include "coordinator/waker.h"
#include "coordinator/work_table.h"
#include "coordinator/worker_registry.h"

namespace djinn::coordinator {

Cluster::Cluster(const Config* config, Tenants* tenants, Clock* clock,
                 RandomSource* random)
    : state_(std::make_unique<ClusterState>(config, tenants, clock, random)) {
  MutexLock lock(&state_->mu);
  state_->keys.Update(clock->Now(), state_->saves + 1);
  quota::Configure(*state_);
}

Cluster::~Cluster() = default;

absl::StatusOr<StreamId> Cluster::Attach(const Tenant& tenant,
                                         const v1::OpenSession& open,
                                         std::shared_ptr<Waker> waker) {
  DJINN_RETURN_IF_ERROR(sessions::CheckOpen(open));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return sessions::Attach(*state_, tenant, open, waker, &wakes);
}

absl::Status Cluster::RequestLease(const StreamId& session,
                                   const v1::LeaseRequest& request) {
  DJINN_ASSIGN_OR_RETURN(PendingLease asked, requests::Parse(request));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return requests::Request(*state_, session,
                           {request.virtual_device(), request.member()},
                           std::move(asked), &wakes);
}

absl::Status Cluster::SetUrgency(const StreamId& id,
                                 const v1::Urgency& urgency) {
  DJINN_RETURN_IF_ERROR(sessions::CheckUrgency(urgency));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state_->FindOpenSession(id));
  sessions::TakeUrgency(*state_, urgency, session, &wakes);
  return absl::OkStatus();
}

absl::Status Cluster::NoteMigration(const StreamId& session,
                                    const v1::MigrationOutcome& outcome) {
  DJINN_RETURN_IF_ERROR(migration::CheckOutcome(outcome));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return migration::NoteOutcome(*state_, session, outcome, &wakes);
}

absl::Status Cluster::ReturnLease(const StreamId& session,
                                  const v1::LeaseReturn& returned) {
  DJINN_RETURN_IF_ERROR(requests::CheckReturn(returned));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return requests::Return(*state_, session, returned, &wakes);
}

bool Cluster::NoteStructure(const StreamId& session,
                            absl::string_view fingerprint, SharedWork work,
                            SharedWork shown) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  // Not moved: what the table does not keep goes without the lock.
  return sessions::NoteStructure(*state_, session, fingerprint, work, shown,
                                 &wakes);
}

std::optional<StageMembers> Cluster::MembersForStages(const StreamId& session,
                                                      uint32_t virtual_device) {
  MutexLock lock(&state_->mu);
  return stages::MembersOf(*state_, session, virtual_device);
}

v1::StagePlan Cluster::StagesInForce(const StreamId& session,
                                     uint32_t virtual_device,
                                     const std::string& fingerprint) {
  MutexLock lock(&state_->mu);
  return stages::InForce(*state_, session, virtual_device, fingerprint);
}

void Cluster::AnswerStages(const StreamId& session, v1::StageAnswer answer) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  stages::Answer(*state_, session, &answer, &wakes);
}

void Cluster::Close(const StreamId& session) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  sessions::Close(*state_, session, &wakes);
}

void Cluster::Detach(const StreamId& session) {
  MutexLock lock(&state_->mu);
  sessions::Detach(*state_, session);
}

absl::StatusOr<std::optional<v1::SessionResponse>> Cluster::NextResponse(
    const StreamId& session) {
  MutexLock lock(&state_->mu);
  return sessions::NextResponse(*state_, session);
}

absl::StatusOr<StreamId> Cluster::Join(const v1::WorkerState& report,
                                       std::shared_ptr<Waker> waker) {
  DJINN_RETURN_IF_ERROR(workers::CheckJoin(report));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return workers::Join(*state_, report, waker, &wakes);
}

absl::Status Cluster::Report(const StreamId& worker,
                             const v1::WorkerState& report) {
  DJINN_RETURN_IF_ERROR(WorkerRegistry::Check(report));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return workers::Report(*state_, worker, report, &wakes);
}

void Cluster::Leave(const StreamId& worker) {
  MutexLock lock(&state_->mu);
  workers::Leave(*state_, worker);
}

absl::StatusOr<std::optional<v1::DesiredState>> Cluster::NextDesiredState(
    const StreamId& worker) {
  MutexLock lock(&state_->mu);
  return workers::NextDesiredState(*state_, worker);
}

void Cluster::Tick() {
  Wakes wakes;
  ClusterState& state = *state_;
  MutexLock lock(&state.mu);
  const absl::Duration now = state.clock->Monotonic();
  workers::LoseSilent(state, now, &wakes);
  state.ledger.ForgetRetired(now);
  state.keys.Update(state.clock->Now(), state.saves + 1);
  if (now >= state.restored_until) persistence::GiveUpRestored(state);
  credits::AdvanceRates(state, &wakes);
  // Workers may have told of leases from before a restart.
  queues::DrainStopped(state, &wakes);
  placement::RetryUnplaced(state, &wakes);
  migration::Expire(state, now, &wakes);
  moves::Rebalance(state, now, &wakes);
  moves::AdvanceDrains(state, now, &wakes);
  for (Session* session : state.sessions.TimedOut(now)) {
    sessions::End(state, session, "timed out", &wakes);
  }
  state.inquiries.Expire(now, &wakes);
  line::Places places;
  for (const auto& [id, session] : state.sessions.all()) {
    requests::Expire(state, session.get(), now, &places, &wakes);
    sessions::TellUrgency(state, session.get(), &wakes);
  }
  workers::SendHeartbeats(state, now, &wakes);
}

void Cluster::Stop() {
  Wakes wakes;
  ClusterState& state = *state_;
  MutexLock lock(&state.mu);
  state.stopping = true;
  state.inquiries.End(
      MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                "the coordinator stops"),
      &wakes);
  for (const auto& [id, session] : state.sessions.all()) {
    wakes.Add(session->waker);
  }
  for (const auto& [id, worker] : state.workers.all()) wakes.Add(worker->waker);
}

v1::ReloadConfigResponse Cluster::SetTenants(std::vector<Tenant> tenants,
                                             std::vector<Cohort> cohorts) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return tenants::Set(*state_, std::move(tenants), std::move(cohorts), &wakes);
}

v1::ReloadConfigResponse Cluster::SetTenants(std::vector<Tenant> tenants) {
  return SetTenants(std::move(tenants), {});
}

std::map<std::string, std::string> Cluster::Save() {
  return persistence::Save(*state_);
}

void Cluster::NoteKept() {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  persistence::NoteKept(*state_, &wakes);
}

absl::Status Cluster::Restore(const std::map<std::string, std::string>& state) {
  return persistence::Restore(*state_, state);
}

Page<v1::WorkerInfo> Cluster::Workers(const PageRange& range) {
  MutexLock lock(&state_->mu);
  return views::Workers(*state_, range);
}

Page<v1::SessionInfo> Cluster::Sessions(const PageRange& range) {
  MutexLock lock(&state_->mu);
  return views::Sessions(*state_, range);
}

Page<v1::TenantInfo> Cluster::TenantInfos(const PageRange& range) {
  MutexLock lock(&state_->mu);
  return views::TenantInfos(*state_, range);
}

Page<v1::LeaseInfo> Cluster::Leases(const PageRange& range) {
  MutexLock lock(&state_->mu);
  return views::Leases(*state_, range);
}

absl::StatusOr<v1::WorkerInfo> Cluster::GetWorker(const std::string& id) {
  MutexLock lock(&state_->mu);
  return views::GetWorker(*state_, id);
}

absl::StatusOr<v1::SessionInfo> Cluster::GetSession(const std::string& id) {
  MutexLock lock(&state_->mu);
  return views::GetSession(*state_, id);
}

absl::StatusOr<v1::TenantInfo> Cluster::GetTenant(const std::string& name) {
  MutexLock lock(&state_->mu);
  return views::GetTenant(*state_, name);
}

absl::StatusOr<v1::LeaseInfo> Cluster::GetLease(const std::string& id) {
  MutexLock lock(&state_->mu);
  return views::GetLease(*state_, id);
}

absl::StatusOr<v1::SessionExplanation> Cluster::ExplainSession(
    const std::string& id) {
  MutexLock lock(&state_->mu);
  return explain::ExplainSession(*state_, id);
}

absl::StatusOr<v1::TenantExplanation> Cluster::ExplainTenant(
    const std::string& name) {
  MutexLock lock(&state_->mu);
  return explain::ExplainTenant(*state_, name);
}

void Cluster::ListRuns(const std::string& session_id, RunsCallback done) {
  runs::List(*state_, session_id, std::move(done));
}

void Cluster::ExplainRun(const v1::ExplainRunRequest& request,
                         ExplainRunCallback done) {
  runs::Explain(*state_, request, std::move(done));
}

absl::StatusOr<v1::TryPlacementResponse> Cluster::TryPlacement(
    const v1::TryPlacementRequest& request) {
  DJINN_RETURN_IF_ERROR(explain::CheckTry(request));
  MutexLock lock(&state_->mu);
  return explain::TryPlacement(*state_, request);
}

absl::StatusOr<v1::WorkerInfo> Cluster::CordonWorker(const std::string& id,
                                                     bool cordoned,
                                                     bool drain) {
  DJINN_RETURN_IF_ERROR(moves::CheckCordon(cordoned, drain));
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return moves::Cordon(*state_, id, cordoned, drain, &wakes);
}

absl::StatusOr<v1::MigrateSessionResponse> Cluster::MigrateSession(
    const v1::MigrateSessionRequest& request) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return moves::MigrateSession(*state_, request, &wakes);
}

absl::StatusOr<v1::TryQuotaResponse> Cluster::TryQuota(
    const v1::TryQuotaRequest& request) {
  MutexLock lock(&state_->mu);
  return quota::Try(*state_, request);
}

absl::StatusOr<v1::QueueInfo> Cluster::StopQueue(const std::string& tenant,
                                                 bool drain) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return queues::Stop(*state_, tenant, drain, &wakes);
}

absl::StatusOr<v1::QueueInfo> Cluster::ResumeQueue(const std::string& tenant) {
  Wakes wakes;
  MutexLock lock(&state_->mu);
  return queues::Resume(*state_, tenant, &wakes);
}

absl::StatusOr<v1::QueueInfo> Cluster::GetQueue(const std::string& tenant) {
  MutexLock lock(&state_->mu);
  return queues::Get(*state_, tenant);
}

Page<v1::QueueInfo> Cluster::Queues(const PageRange& range) {
  MutexLock lock(&state_->mu);
  return queues::List(*state_, range);
}

absl::StatusOr<Page<v1::RecordedJob>> Cluster::RecordedJobs(
    const PageRange& range) {
  MutexLock lock(&state_->mu);
  return jobs::Recorded(*state_, range);
}

absl::StatusOr<ClusterDemand> Cluster::Demand() {
  MutexLock lock(&state_->mu);
  return demand::Demand(*state_);
}

void Cluster::Collect(Exposition* out) {
  state_->metrics.Collect(out);
  MutexLock lock(&state_->mu);
  scrape::Collect(*state_, out);
}

void Cluster::CountRejection(const std::string& tenant,
                             const absl::Status& why) {
  state_->metrics.CountRejection(tenant, why);
}

void Cluster::DescribePlans(absl::Span<v1::GraphInfo> graphs) {
  MutexLock lock(&state_->mu);
  views::DescribePlans(*state_, graphs);
}

}  // namespace djinn::coordinator
