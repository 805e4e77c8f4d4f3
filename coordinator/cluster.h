// The state of the cluster and its rules: sessions, workers, leases.
//
// Streams come and go by number. A stream's adapter hands over what it receives
// and asks for the next message whenever its Waker was woken, so that nothing
// queues up behind a slow peer: a worker gets the state as it is then, a
// client's outbox is bounded by its devices. Everything that waits for time is
// done by Tick().
//
// A lease is listed to its worker first; the client hears of it when the worker
// has carried that out. A session that ends is dropped at its workers by name,
// until they say it is gone. Sessions that a worker reports and nobody knows
// are adopted: this process may have restarted.
//
// Thread-safe. Wakes streams only after its lock is released.
#ifndef COORDINATOR_CLUSTER_H_
#define COORDINATOR_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/metrics/exposition.h"
#include "common/mutex.h"
#include "common/random.h"
#include "coordinator/cluster_demand.h"
#include "coordinator/cluster_metrics.h"
#include "coordinator/config.h"
#include "coordinator/credit_ledger.h"
#include "coordinator/job_recorder.h"
#include "coordinator/kept_decision.h"
#include "coordinator/lease_keys.h"
#include "coordinator/lease_table.h"
#include "coordinator/page.h"
#include "coordinator/queue_stops.h"
#include "coordinator/run_inquiries.h"
#include "coordinator/run_name.h"
#include "coordinator/session_table.h"
#include "coordinator/stage_planner.h"
#include "coordinator/tenants.h"
#include "coordinator/waker.h"
#include "coordinator/work_table.h"
#include "coordinator/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "scheduler/fairness/waiting_line.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/migration.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/policy.h"
#include "scheduler/placement/request.h"
#include "scheduler/placement/reservation.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/reclaim_losses.h"
#include "scheduler/quota/victims.h"

namespace djinn::coordinator {

// A session or worker as one of its streams sees it. Calls with the id of a
// stream that was replaced do nothing or return Aborted.
struct StreamId {
  std::string owner;
  uint64_t stream = 0;
};

struct PolicyChoice {
  const scheduler::Policy* policy = nullptr;
  // As KeptDecision::policy_source.
  const char* source = "";
};

class Cluster {
 public:
  // All must outlive the cluster.
  Cluster(const Config* config, Tenants* tenants, Clock* clock,
          RandomSource* random);

  // --- Sessions ---

  // Opens a session or attaches to one again; an older stream of it ends.
  // Errors: as Session.Attach in session.proto.
  absl::StatusOr<StreamId> Attach(const Tenant& tenant,
                                  const v1::OpenSession& open,
                                  std::shared_ptr<Waker> waker);
  // The answer comes through NextResponse(). InvalidArgument
  // (PROTOCOL_VIOLATION) for a device beyond kMaxVirtualDevices, a member
  // beyond kMaxMembers, or more than kMaxContentHints contents.
  absl::Status RequestLease(const StreamId& session,
                            const v1::LeaseRequest& request);
  // What the session says of its runs from now on. InvalidArgument
  // (PROTOCOL_VIOLATION) for a deadline that is not in the future.
  absl::Status SetUrgency(const StreamId& session, const v1::Urgency& urgency);
  // How the session carried out a MigrationRequest. Leases that are not its
  // own, and outcomes that are known, change nothing. InvalidArgument
  // (PROTOCOL_VIOLATION) for ids that cannot be leases'.
  absl::Status NoteMigration(const StreamId& session,
                             const v1::MigrationOutcome& outcome);
  // The session has no use for the lease. Leases that are not its own, or have
  // ended, change nothing. InvalidArgument (PROTOCOL_VIOLATION) for an id that
  // cannot be one.
  absl::Status ReturnLease(const StreamId& session,
                           const v1::LeaseReturn& returned);
  // Notes that the session defined a structure, and its work, as it is to the
  // session's tenant, which may be null when it is not known; true when it had
  // not before. `shown`: as the structure shows by itself, if anybody knows.
  bool NoteStructure(const StreamId& session, absl::string_view fingerprint,
                     SharedWork work = nullptr, SharedWork shown = nullptr);
  // The members of its virtual device that have their leases, and what was
  // learnt of devices. Nothing when the session is gone, or asks too often: it
  // will ask again.
  std::optional<StageMembers> MembersForStages(const StreamId& session,
                                               uint32_t virtual_device);
  // The last plan that its virtual device was given for the structure, by its
  // fingerprint in hex; without stages: none is known.
  v1::StagePlan StagesInForce(const StreamId& session, uint32_t virtual_device,
                              const std::string& fingerprint);
  // Keeps the plan, for operators and for the next question. Not sent while the
  // session leaves too many unread.
  void AnswerStages(const StreamId& session, v1::StageAnswer answer);
  // Ends the session.
  void Close(const StreamId& session);
  // The stream broke; the session waits for its time-out.
  void Detach(const StreamId& session);
  // The next message to send, if any. A status ends the stream.
  absl::StatusOr<std::optional<v1::SessionResponse>> NextResponse(
      const StreamId& session);

  // --- Workers ---

  // Errors: as WorkerRegistry.Synchronize in worker_registry.proto.
  absl::StatusOr<StreamId> Join(const v1::WorkerState& report,
                                std::shared_ptr<Waker> waker);
  // InvalidArgument (PROTOCOL_VIOLATION) when the report is another worker's or
  // acknowledges what was never sent.
  absl::Status Report(const StreamId& worker, const v1::WorkerState& report);
  void Leave(const StreamId& worker);
  // The desired state, if it changed or a heartbeat is due.
  absl::StatusOr<std::optional<v1::DesiredState>> NextDesiredState(
      const StreamId& worker);

  // --- Time ---

  // Lets time-outs take effect and sends heartbeats. To be called often
  // compared to the heartbeat interval.
  void Tick();
  // Ends every stream with Unavailable (COORDINATOR_STOPPING), for good.
  void Stop();

  // --- Tenants ---

  // Replaces the tenants, and what is said of cohorts. Running sessions have
  // the new limits, totals and credits soon, except what a client was told when
  // it opened its session on a worker; those of a tenant that is there no more
  // end. A tenant whose cohort has changed counts as changed.
  v1::ReloadConfigResponse SetTenants(std::vector<Tenant> tenants,
                                      std::vector<Cohort> cohorts = {});

  // --- What outlives the process ---

  // Everything that another process needs to go on, by the keys of
  // coordinator_state.proto. What was learnt of work is up to ten seconds old,
  // unless the cluster has stopped.
  std::map<std::string, std::string> Save();
  // What Save() returned last is where another process will find it. Workers
  // are told only then that it knows what they reported, and new keys begin to
  // sign.
  void NoteKept();
  // Takes up what an earlier process saved; before the first stream. From then
  // on only leases that its keys signed are believed. DataLoss (STORE_CORRUPT)
  // names an entry that cannot be read, unless it is one of what was learnt,
  // which is left out.
  absl::Status Restore(const std::map<std::string, std::string>& state);

  // --- For operators ---

  // In the orders that admin.proto promises.
  Page<v1::WorkerInfo> Workers(const PageRange& range = {});
  Page<v1::SessionInfo> Sessions(const PageRange& range = {});
  Page<v1::TenantInfo> TenantInfos(const PageRange& range = {});
  Page<v1::LeaseInfo> Leases(const PageRange& range = {});
  // NotFound (WORKER_UNKNOWN and so on).
  absl::StatusOr<v1::WorkerInfo> GetWorker(const std::string& id);
  // By the id or its shortened form.
  absl::StatusOr<v1::SessionInfo> GetSession(const std::string& id);
  absl::StatusOr<v1::TenantInfo> GetTenant(const std::string& name);
  absl::StatusOr<v1::LeaseInfo> GetLease(const std::string& id);
  // As in admin.proto.
  absl::StatusOr<v1::SessionExplanation> ExplainSession(const std::string& id);
  absl::StatusOr<v1::TenantExplanation> ExplainTenant(const std::string& name);
  // Likewise, once the workers have answered, or had time to: called once, by
  // any thread, without locks, perhaps before these return.
  using RunsCallback =
      std::function<void(absl::StatusOr<v1::ListRunsResponse>)>;
  using ExplainRunCallback =
      std::function<void(absl::StatusOr<v1::RunExplanation>)>;
  void ListRuns(const std::string& session_id, RunsCallback done);
  void ExplainRun(const v1::ExplainRunRequest& request,
                  ExplainRunCallback done);
  absl::StatusOr<v1::TryPlacementResponse> TryPlacement(
      const v1::TryPlacementRequest& request);
  absl::StatusOr<v1::WorkerInfo> CordonWorker(const std::string& id,
                                              bool cordoned, bool drain);
  absl::StatusOr<v1::MigrateSessionResponse> MigrateSession(
      const v1::MigrateSessionRequest& request);
  absl::StatusOr<v1::TryQuotaResponse> TryQuota(
      const v1::TryQuotaRequest& request);
  absl::StatusOr<v1::QueueInfo> StopQueue(const std::string& tenant,
                                          bool drain);
  absl::StatusOr<v1::QueueInfo> ResumeQueue(const std::string& tenant);
  absl::StatusOr<v1::QueueInfo> GetQueue(const std::string& tenant);
  Page<v1::QueueInfo> Queues(const PageRange& range = {});
  // FailedPrecondition (NOT_RECORDING).
  absl::StatusOr<Page<v1::RecordedJob>> RecordedJobs(const PageRange& range);
  // Unavailable (DEMAND_UNKNOWN) as long as not all that should be known is.
  absl::StatusOr<ClusterDemand> Demand();
  // Adds what the cluster knows and has counted to a scrape.
  void Collect(Exposition* out);
  // Counts a refusal that an adapter decided on or sent. `tenant` is empty when
  // nobody knows it.
  void CountRejection(const std::string& tenant, const absl::Status& why);
  // Sets what workers say of the graphs: runs, and who has a plan.
  void DescribePlans(absl::Span<v1::GraphInfo> graphs);

  static constexpr uint32_t kMaxVirtualDevices = 64;
  // Workers that one of them spans.
  static constexpr uint32_t kMaxMembers = 16;
  // As LeaseRequest.contents in session.proto says.
  static constexpr int kMaxContentHints = 64;

 private:
  // A lease of which nobody has told since the process began.
  struct RestoredLease {
    v1::StoredLease lease;
    // Empty: not known.
    std::string worker_id;
    // What it holds of whose quota.
    std::string tenant;
    scheduler::Amounts quota = {};
  };

  // Where those stand that wait in line; unset until the first one is asked
  // about, since it takes long where many wait.
  using LinePlaces = std::optional<scheduler::WaitingLine::Places>;

  // What a tenant has at all workers together.
  struct TenantSums {
    uint32_t leases = 0;
    uint64_t storage_bytes = 0;
    uint64_t content_bytes = 0;
    // Unset: no worker tells of a lease.
    std::optional<v1::SessionUse> use;
  };

  Session* FindSession(const StreamId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Worker* FindWorker(const StreamId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // What the stream of a session that another one attached to is told.
  static absl::Status Replaced();
  // InvalidArgument (POLICY_UNKNOWN). An empty name leaves the choice to
  // others.
  static absl::Status CheckPolicy(const std::string& name);
  // Nothing but what this program knows: what is signed and sent on must not
  // carry what a peer put there besides.
  static v1::Urgency Known(const v1::Urgency& said);
  // What counts of it for the tenant's sessions.
  static v1::Urgency Allowed(const Tenant& tenant, const v1::Urgency& asked);
  // Sends to a session; kept for its next stream if it has none now.
  void Send(v1::SessionResponse response, Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Refuse(const absl::Status& why, MemberId device, Session* session,
              Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the worker told soon.
  void Touch(Worker* worker, Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The workers that sessions of this one use besides it.
  void ListPeers(const Worker& worker, v1::DesiredState* desired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // In order.
  std::vector<std::string> TenantsThat(bool Tenant::* agree) const;
  std::vector<std::string> SharingTenants() const {
    return TenantsThat(&Tenant::share_contents);
  }
  std::vector<std::string> BatchingTenants() const {
    return TenantsThat(&Tenant::batch_with_others);
  }
  // The lease is new: the session's other workers are to hear of its worker.
  void TouchPeers(const Lease& lease, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Its leases tell their workers, if it is another one than before: at once,
  // or, where it changes all the time, soon.
  void TakeUrgency(const v1::Urgency& said, Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellUrgency(Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Where the request goes, or why nowhere, as it is kept; counted.
  KeptDecision Decide(const scheduler::Request& request,
                      const PolicyChoice& choice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Offers the pending request to a worker, notes why there is none for now, or
  // refuses it.
  void TryPlace(MemberId device, Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing places the request yet: it waits for a worker, or is refused.
  void LeaveUnplaced(MemberId device, const absl::Status& obstacle,
                     Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The virtual device has several workers, or is about to.
  bool Spans(const Session& session, uint32_t virtual_device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A lease there for the session's virtual device, not added yet.
  Lease NewLease(const Worker& worker, MemberId device, const Tenant* tenant,
                 Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Offers a lease at another worker, or at this very one if it is named, to
  // the virtual device that uses `from`. `reason` lives for ever. Errors as
  // Admin.MigrateSession's.
  absl::StatusOr<Migration*> StartMigration(Lease* from,
                                            const std::string& to_worker,
                                            const char* reason, Wakes* wakes,
                                            bool if_it_pays = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the virtual device holds, as far as its worker says.
  PendingLease StateOf(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Where it would go; a decision with a worker, and whether that pays.
  absl::StatusOr<KeptDecision> PlaceMigration(const Lease& from,
                                              const std::string& to_worker,
                                              const Session& session,
                                              const Tenant* tenant,
                                              scheduler::MigrationTerms* terms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The session defined a structure with this work: it may be another phase,
  // which another worker is better for.
  void NotePhase(const SharedWork& work, Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is known, first of what it shows by itself, then of each tenant.
  std::vector<v1::GraphPhase> PhasesOfGraph(const std::string& fingerprint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker is to hear of its graphs' phases as far as they are known, and
  // hears of some.
  void NotePhasesToTell(Worker* worker, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellPhases(Worker* worker, v1::DesiredState* desired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The structure's phase is known now, to a tenant or by itself, or another
  // one than before: the workers that have it are to hear of it.
  void TellPhase(const std::string& fingerprint, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Looks for better places, for some leases in turn.
  void Rebalance(absl::Duration now, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker knows the lease: asks the client.
  void AskToMigrate(Lease* to, Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The virtual device uses the lease now.
  void SettleMigration(Lease* to, Lease* from, Session* session, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It does not; the lease ends.
  void DropMigration(Lease* to, const absl::Status& why, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndMigrationRecord(const std::string& lease_id,
                          v1::MigrationOutcome outcome, absl::Status failure,
                          Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A lease of the session has ended that was the worker's. If nobody of the
  // session is there any more, it forgets the session.
  void LeaveWorker(const std::string& session_id, const std::string& worker_id,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends those that took too long.
  void ExpireMigrations(absl::Duration now, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has leases go from the workers that drain.
  void AdvanceDrains(absl::Duration now, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Describe(const Migration& migration, v1::MigrationInfo* info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The request of a stopped tenant is in nobody's way.
  void SetAside(PendingLease* pending, const std::string& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Calls it for the tenant's requests without a worker, the oldest first.
  void ForEachUnplaced(const std::string& tenant,
                       absl::FunctionRef<void(MemberId, Session*)> visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends what leases there are of tenants whose queues are drained.
  void DrainStopped(Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of all tenants, and of those that are stopped, by name.
  std::map<std::string, v1::QueueInfo> DescribeQueues()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DescribeWaiting(std::map<std::string, v1::QueueInfo>* queues)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The pending request waits for a worker from now on, unless it does, or its
  // tenant is stopped: then it is set aside.
  void JoinLine(MemberId device, Session* session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It does not any more, if it did.
  void LeaveLine(PendingLease* pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Since when its session's urgency is another.
  void ChangePlaces(Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Who has the lesser share of what its cohort lends goes first.
  scheduler::WaitingLine::Precedence PrecedenceInLine() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What counts there of its class. `tenant` may be null.
  static int ClassInLine(const Session& session, const Tenant* tenant);
  // 1 for the first. It waits.
  size_t PlaceInLine(scheduler::WaitingLine::Ticket ticket, absl::Duration now,
                     LinePlaces* places) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tries some of those again that wait for a worker, in their order.
  void RetryUnplaced(Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // So does this, unless more than a quarter of the time would go into it: then
  // the next tick does. For what comes as often as there are workers.
  void RetryInTime(Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // These were: a worker is kept for the first in line, if it is time.
  void ReviewReservation(absl::Span<const scheduler::WaitingLine::Ticket> tried)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the lease's session said that it would bring and has not yet, for as
  // long as that counts.
  uint64_t PromisedBytes(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same of all the worker's leases: no tenant's more than its sessions may
  // hold there together.
  uint64_t PromisedBytes(const Worker& worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker, or its leases, changed: decisions see it as it is now.
  void RefreshFleet(const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What decisions are made from, with all that was put off.
  const scheduler::Fleet& FreshFleet() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same after a report; learns from it, too. Whether the worker may now
  // take what it could not before.
  bool AbsorbState(const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps what the report says of runs, if that is kept.
  void RecordJobs(const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whose runs of the structure the worker's last report tells of: of several
  // sessions that defined it, the one whose use grew most. Null when none did.
  const Session* RunnerOf(const Worker& worker, const std::string& fingerprint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the report says of work that came and waits.
  void AbsorbDemand(Worker* worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of its work.
  uint32_t PhaseBit(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Phases of the work of sessions with leases there, bit N for phase N.
  uint32_t PhasesAt(const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker is about to be lost, and its leases to end.
  void NoteServesOn(absl::Duration now, Worker* worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<ClusterDemand> DemandLocked()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectDemand(Exposition* out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `tenant` may be null.
  PolicyChoice PolicyFor(const std::string& of_request,
                         const std::string& of_session,
                         const Tenant* tenant) const;
  // What the session, which has some, did in all: its phases by the time that
  // they took.
  SharedWork WorkDone(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is known of the session's, or else of its program's; may be null.
  SharedWork WorkOf(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks for no more than a lease of the tenant may hold. Of contents that are
  // somewhere already, those count that the tenant has there: what others have
  // must neither show nor be felt. All but `tenant`, which may be null, outlive
  // the request.
  scheduler::Request RequestFor(const Session& session,
                                const PendingLease& pending,
                                const Tenant* tenant, const SharedWork& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By the id or its shortened form; null when there is none.
  const Session* FindForOperator(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status SessionUnknown(const std::string& id);
  void Describe(const KeptDecision& kept, v1::PlacementDecision* decision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Explain(const PendingLease& pending, const std::string& tenant,
               LinePlaces* places, v1::DeviceExplanation* device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Explain(const Lease& lease, v1::DeviceExplanation* device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The lease is out of credit.
  std::string CreditUnblockedBy(const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds what became of the tenant's lease before, which holds the device as
  // long as it has no other.
  void Explain(const LostLease& lost, const std::string& tenant,
               v1::DeviceExplanation* device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those that have a lease, ask for one, or have lost one, in order.
  std::vector<v1::DeviceExplanation> ExplainDevices(const Session& session,
                                                    LinePlaces* places)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of all tenants, by name.
  std::map<std::string, v1::TenantStanding> Standings()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks the workers on which the session has leases, of one device if one is
  // named. Not OK: `done` is not called.
  absl::Status AskRuns(const std::string& session_id,
                       const std::optional<MemberId>& device,
                       RunInquiries::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Those of leases that are still there; why the first worker is silent if all
  // are.
  absl::StatusOr<v1::ListRunsResponse> GatherRuns(
      const std::string& session_id, const RunInquiries::Answers& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `text`: the name as it was asked.
  absl::StatusOr<v1::RunExplanation> ExplainFound(
      const std::string& session_id, const RunName& name,
      const std::string& text, const RunInquiries::Answers& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Describe(const v1::RunRecord& record, const v1::LeaseRuns& of_lease,
                const Lease& lease, v1::RunInfo* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Grant(Lease* lease, Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Signs the lease anew, as it is now.
  void Issue(Lease* lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The lease counts against its tenant's quota.
  Lease* AddLease(Lease lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether what the pending request needs lies within what a lease may hold,
  // and the tenant's quota has room for one, or would have if others gave back
  // what they borrow. If not, notes why, or refuses when waiting will not help.
  bool MayFitQuota(MemberId device, const Tenant& tenant, Session* session,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What MayFitQuota() would refuse of so much, whatever others have:
  // ResourceExhausted (QUOTA_EXCEEDED).
  static absl::Status LimitObstacle(const Tenant& tenant,
                                    uint64_t needed_bytes);
  // What it would note or refuse besides; OK when there is room.
  absl::Status QuotaObstacle(const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status QuotaExceeded(const Tenant& tenant,
                                    const scheduler::QuotaTree::Breach& breach);
  // Until something of what the tenant's leases hold of its quota is free at
  // the latest: a session whose client stays away times out, or what an earlier
  // process granted is given up. Infinite when nobody knows.
  absl::Duration UntilQuotaIsFree(const std::string& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes back what the tenant needs for the pending request's lease, or, when
  // who has it cannot give it back now, nothing: ResourceExhausted
  // (QUOTA_EXCEEDED).
  absl::Status ReclaimQuota(const Tenant& tenant, PendingLease* pending,
                            Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As scheduler::ChooseVictims(); says for what the request waits if what it
  // wants back is put off.
  std::vector<scheduler::Victim> ChooseVictims(
      absl::FunctionRef<std::vector<scheduler::Victim>(
          const scheduler::ReclaimLosses::Allowance&)>
          choose,
      PendingLease* pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // No worker has room for the pending request, which waits in line. If it lies
  // within its tenant's nominal quota, takes back what others borrow at one
  // worker that it fits on then, and keeps that for it; nothing when there is
  // no such worker, or while room that was taken before is on its way.
  void ReclaimRoom(MemberId device, const Tenant& tenant,
                   const scheduler::Request& request, Session* session,
                   Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker has yet to drop sessions whose room is for the request.
  bool RoomIsOnItsWay(const PendingLease& pending)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What sessions at the worker count more of contents than it holds.
  static uint64_t SharedContents(const Worker& worker);
  // The tenant's.
  std::vector<scheduler::Victim> VictimsOf(const std::string& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::PriorityClass ClassGivingWay(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The device time that it has used, by its worker's reports.
  absl::Duration LostWith(const Lease& lease) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Their leases at their workers end, for the other tenant to have its own.
  void Evict(const std::vector<scheduler::Victim>& victims,
             const Tenant& preemptor, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: no virtual device lost its worker, all were on their way elsewhere.
  // `returns`: those go first of their tenant when they ask for another one.
  bool Evict(const scheduler::Victim& victim, const Tenant& preemptor,
             bool returns, Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ConfigureQuotas() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How fast its quotas let the tenant's leases use up what there is.
  CreditLedger::Rates RatesOf(const std::string& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those of the tenant that pays for the lease; none when nobody does.
  CreditLedger::Rates RatesOfLease(const std::string& lease_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing more will be reported of its leases.
  void SettleWorker(const std::string& worker_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Grants the lease more, as far as credit and rate go.
  bool TopUp(const std::string& lease_id, const Tenant& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdvanceRates(Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DescribeQuota(const Tenant& tenant, v1::TenantInfo* info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OpenAccount(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseAccount(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the lease has used in all.
  void Bill(const std::string& lease_id, const Use& used)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes its account, too; nobody is told.
  void RemoveLease(const std::string& lease_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the session, and removes it. `for_tenant` took back its own.
  void EndLease(Lease* lease, absl::string_view reason, Wakes* wakes,
                absl::string_view for_tenant = "")
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::LeaseGranted GrantOf(const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Drops the session at the worker by name.
  void Drop(const std::string& session_id, Worker* worker, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ApplyTenant(const Tenant& tenant, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveTenant(const std::string& name, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends its leases everywhere.
  void ReleaseSession(Session* session, absl::string_view why, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndSession(Session* session, absl::string_view why, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends what is left of leases at a worker that is lost or restarted.
  void EndLeasesOf(Worker* worker, absl::string_view reason, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // What a report means for leases and drops.
  void Absorb(const v1::WorkerState& report, Worker* worker, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes over a lease that a worker reports and nobody knows, except its
  // limits, which are the configuration's, and tenants that are not in there.
  // Of two of one virtual device the newer one stays. One that has ended the
  // worker is told of. `passed`: sessions that have left the worker, as far as
  // this lease goes.
  void Adopt(const v1::SignedLease& reported, Worker* worker,
             std::set<std::string>* passed, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The session has another lease for the virtual device, which came later.
  bool IsOfThePast(const v1::LeaseClaims& reported, const Session& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An earlier process knew the lease's end.
  bool HadEnded(const v1::LeaseClaims& reported, const Session& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends those that were adopted for its virtual device and came before it.
  void EndOlder(const Lease& newest, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a lease that a worker reports says. Unauthenticated (LEASE_UNKNOWN)
  // when one of our keys should have signed it and did not.
  absl::StatusOr<v1::LeaseClaims> ReportedClaims(
      const v1::SignedLease& lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a report says of leases' use.
  void AbsorbUse(const v1::WorkerState& report, Worker* worker, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BillHeld(const std::string& lease_id, const Worker::Held& held,
                Worker* worker, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds all but what was learnt of work.
  void SaveAllElse(std::map<std::string, std::string>* state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // That, when it is to be encoded anew.
  std::optional<WorkTable::Learnt> LearntToSave()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SettleForgotten() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives back what these hold of quotas.
  void ForgetRestored(absl::FunctionRef<bool(const RestoredLease&)> which)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndReported(const v1::EndedLease& ended, Worker* worker, Wakes* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void ExpirePending(Session* session, absl::Duration now, LinePlaces* places,
                     Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Describe(const Worker& worker, v1::WorkerInfo* info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Describe(const Session& session, v1::SessionInfo* info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By name, in one pass over what there is; none for those that have nothing.
  absl::flat_hash_map<std::string, TenantSums> SumTenants()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Describe(const Tenant& tenant, const TenantSums& sums,
                v1::TenantInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Describe(const Tenant& tenant, v1::TenantCredits* credits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Describe(const Lease& lease, v1::LeaseInfo* info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The priority class of a session that a worker reports.
  std::string ClassOf(const std::string& session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectTenants(Exposition* out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Info, typename Map>
  Page<Info> DescribePage(const Map& map, const PageRange& range)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the lease's worker last said of it; null when it said nothing.
  const Worker::Held* HeldFor(const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Config& config_;
  Tenants* const tenants_;
  Clock* const clock_;
  RandomSource* const random_;
  ClusterMetrics metrics_;
  // Monotonic.
  const absl::Duration begin_;

  // Held for a whole Save(); taken before mu_.
  Mutex saving_mu_;
  // What was learnt of work, as it was encoded last.
  std::map<std::string, std::string> saved_learnt_ ABSL_GUARDED_BY(saving_mu_);

  Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_stream_ ABSL_GUARDED_BY(mu_) = 0;
  WorkerRegistry workers_ ABSL_GUARDED_BY(mu_);
  SessionTable sessions_ ABSL_GUARDED_BY(mu_);
  LeaseTable leases_ ABSL_GUARDED_BY(mu_);
  LeaseKeys keys_ ABSL_GUARDED_BY(mu_);
  CreditLedger ledger_ ABSL_GUARDED_BY(mu_);
  // As configured.
  std::vector<Cohort> cohorts_ ABSL_GUARDED_BY(mu_);
  scheduler::QuotaTree quotas_ ABSL_GUARDED_BY(mu_);
  // With sessions that others' quota was taken back from.
  double lost_device_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  scheduler::ReclaimLosses losses_ ABSL_GUARDED_BY(mu_);
  // In seconds, and in bytes.
  scheduler::RateBudget device_rates_ ABSL_GUARDED_BY(mu_){
      scheduler::RateBudget::kMinSeconds, scheduler::RateBudget::kMaxSeconds};
  scheduler::RateBudget byte_rates_ ABSL_GUARDED_BY(mu_){64 << 10, 1 << 30};
  // How often the state was saved, and the last of these that is kept.
  uint64_t saves_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t kept_saves_ ABSL_GUARDED_BY(mu_) = 0;
  // Nothing is known of an earlier process.
  bool first_process_ ABSL_GUARDED_BY(mu_) = true;
  // Leases of an earlier process, by id, until they are adopted, or their
  // workers or sessions have come or gone without them.
  std::map<std::string, RestoredLease> restored_ ABSL_GUARDED_BY(mu_);
  // Workers that had them, and the phases of their work, bit N for phase N,
  // until they have joined, or nobody will: they may serve on, whatever became
  // of the sessions here. All that are not known go by an empty name.
  std::map<std::string, uint32_t> awaited_ ABSL_GUARDED_BY(mu_);
  // When nobody will tell of those any more; infinite once they are forgotten.
  absl::Duration restored_until_ ABSL_GUARDED_BY(mu_) =
      absl::InfiniteDuration();
  // Pending requests without an offered lease, and the order in which they are
  // tried.
  scheduler::WaitingLine line_ ABSL_GUARDED_BY(mu_);
  std::map<scheduler::WaitingLine::Ticket, std::pair<std::string, MemberId>>
      unplaced_ ABSL_GUARDED_BY(mu_);
  scheduler::Reservation reservation_ ABSL_GUARDED_BY(mu_);
  QueueStops queue_stops_ ABSL_GUARDED_BY(mu_);
  // Something may have become free since they were tried.
  bool untried_ ABSL_GUARDED_BY(mu_) = false;
  // When reports may have them tried again.
  absl::Duration next_retry_ ABSL_GUARDED_BY(mu_);
  // When room may be looked for that others give back.
  absl::Duration next_room_look_ ABSL_GUARDED_BY(mu_);
  // What decisions are made from, but for the workers that have changed since:
  // those of leases that have ended.
  scheduler::Fleet fleet_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> stale_ ABSL_GUARDED_BY(mu_);
  WorkTable works_ ABSL_GUARDED_BY(mu_);
  // When it is encoded again, if it has learnt something.
  absl::Duration next_learnt_ ABSL_GUARDED_BY(mu_);
  scheduler::Randomness draws_ ABSL_GUARDED_BY(mu_);
  scheduler::ArrivalMeter arrivals_ ABSL_GUARDED_BY(mu_);
  JobRecorder jobs_ ABSL_GUARDED_BY(mu_);
  RunInquiries inquiries_ ABSL_GUARDED_BY(mu_);
  // Ids of workers, also of those that are away.
  std::set<std::string> cordoned_ ABSL_GUARDED_BY(mu_);
  // Of these, those whose sessions are to go on elsewhere.
  std::set<std::string> draining_ ABSL_GUARDED_BY(mu_);
  // When better places are looked for next, and the last lease looked at.
  absl::Duration next_rebalance_ ABSL_GUARDED_BY(mu_);
  std::string last_rebalanced_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_H_
