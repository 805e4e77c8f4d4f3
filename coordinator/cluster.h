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
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/cluster_limits.h"
#include "coordinator/page.h"
#include "coordinator/stream_id.h"

// Declared only: who calls a method includes what it takes and returns.
namespace djinn {
class Clock;
class Exposition;
class RandomSource;
}  // namespace djinn

namespace djinn::scheduler {
class Work;
}  // namespace djinn::scheduler

namespace djinn::v1 {
class DesiredState;
class ExplainRunRequest;
class GraphInfo;
class LeaseInfo;
class LeaseRequest;
class LeaseReturn;
class ListRunsResponse;
class MigrateSessionRequest;
class MigrateSessionResponse;
class MigrationOutcome;
class OpenSession;
class QueueInfo;
class RecordedJob;
class ReloadConfigResponse;
class RunExplanation;
class SessionExplanation;
class SessionInfo;
class SessionResponse;
class StageAnswer;
class StagePlan;
class TenantExplanation;
class TenantInfo;
class TryPlacementRequest;
class TryPlacementResponse;
class TryQuotaRequest;
class TryQuotaResponse;
class Urgency;
class WorkerInfo;
class WorkerState;
}  // namespace djinn::v1

namespace djinn::coordinator {

struct ClusterDemand;
struct ClusterState;
struct Cohort;
struct Config;
struct StageMembers;
struct Tenant;
class Tenants;
class Waker;

class Cluster {
 public:
  // All must outlive the cluster.
  Cluster(const Config* config, Tenants* tenants, Clock* clock,
          RandomSource* random);
  ~Cluster();

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
                     std::shared_ptr<const scheduler::Work> work = nullptr,
                     std::shared_ptr<const scheduler::Work> shown = nullptr);
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
                                      std::vector<Cohort> cohorts);
  // The same without cohorts.
  v1::ReloadConfigResponse SetTenants(std::vector<Tenant> tenants);

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

  // As in cluster_limits.h.
  static constexpr uint32_t kMaxVirtualDevices =
      coordinator::kMaxVirtualDevices;
  static constexpr uint32_t kMaxMembers = coordinator::kMaxMembers;
  static constexpr int kMaxContentHints = coordinator::kMaxContentHints;

 private:
  // The rules are in functions over it (cluster.cc).
  const std::unique_ptr<ClusterState> state_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_H_
