// A worker without its network: leases, client streams, sessions, the queue for
// the device and the caches behind one thread-safe front.
//
// Story: the coordinator's DesiredState grants leases through Apply(). A
// transport hands each client connection to Attach(); its first message must be
// a Hello that presents a lease, and from then on it feeds a Session. One
// executor thread gives runnable sessions their turns.
//
// A stream that breaks without a reason leaves its session behind: it goes on
// with what it received and waits for a Hello with `resume`, for resume_timeout
// at most. Any other end of its stream, and the end of its lease, end the
// session: its storages are freed at once, the tenant's contents stay.
//
// A housekeeping thread closes and destroys streams, expires leases and notices
// transfers that stand still; it looks at the given clock, so a fake clock
// moves everything. Nothing calls out while holding a lock.
#ifndef GPU_WORKER_CORE_WORKER_CORE_H_
#define GPU_WORKER_CORE_WORKER_CORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/lease/lease_verifier.h"
#include "common/metrics/exposition.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/transport/stream.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/cache/content_cache.h"
#include "gpu_worker/cache/content_proofs.h"
#include "gpu_worker/cache/content_store.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/leases/lease_table.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/core/processor_watch.h"
#include "gpu_worker/executor/work_watch.h"
#include "gpu_worker/core/worker_metrics.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/memory/device_memory.h"
#include "gpu_worker/memory/spare_memory.h"
#include "gpu_worker/plan/lockstep.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gpu_worker/pull/send_order.h"
#include "gpu_worker/session/served_time.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/tenant_account.h"
#include "gpu_worker/session/upload_rate.h"
#include "scheduler/batching/company_forecast.h"
#include "scheduler/fairness/deadline_rule.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::worker {

struct WorkerCoreOptions {
  std::string worker_id;
  GraphCache::Options graph_cache;
  size_t max_contents = 16384;
  // Where contents are kept on disk; null: nowhere. Not started.
  std::shared_ptr<ContentStore> store;
  // Runs carried out side by side; 1: none.
  size_t max_batch_runs = 16;
  // Whether runs that make a token go first of those that read a prompt, or
  // train, of their own priority class.
  bool tokens_first = true;
  // Of tenants that share contents, not settled.
  size_t max_challenges = 256;
  absl::Duration transfer_idle_timeout = absl::Seconds(30);
  // How long what one worker offers to another waits to be fetched.
  absl::Duration offer_timeout = absl::Minutes(10);
  // A connection that has not said Hello by then is closed.
  absl::Duration hello_timeout = absl::Seconds(10);
  size_t max_connections = 16384;
  // Ended leases that wait to be settled.
  size_t max_ended_leases = 65536;
  // How long a session is kept whose stream broke.
  absl::Duration resume_timeout = absl::Seconds(15);
  // How often deadlines are looked at.
  absl::Duration housekeeping_interval = absl::Milliseconds(100);
  // As in WorkerHello.
  v1::DeviceSpeed speed;
  std::string numerics;
  // Called once, by housekeeping, when the device can serve nobody any more.
  std::function<void(const absl::Status&)> device_broken;
};

class WorkerCore {
 public:
  // All pointers outlive the core.
  WorkerCore(WorkerCoreOptions options, Device* device, Clock* clock,
             RandomSource* random);
  // As Shutdown().
  ~WorkerCore();

  // Serves a client connection, not started yet.
  void Attach(std::unique_ptr<WorkerStream> stream,
              StreamWay way = StreamWay::kLocal);

  // The id of the lease that a Bulk call presents. Unauthenticated
  // (LEASE_UNKNOWN) when there is none.
  absl::StatusOr<std::string> LeaseOf(const v1::BulkHello& hello) const;

  // Another worker asks for an offer. The claimant hears what the session's
  // offers say (offer_table.h), or Execution.Pull's errors.
  void Pull(const v1::PullRequest& request,
            std::shared_ptr<OfferClaimant> claimant);
  // By its lease; that of nobody in particular when it has none here.
  SendUrgency UrgencyOf(const std::string& session_id) const;
  void AbandonPull(const OfferClaimant* claimant) { offers_.Abandon(claimant); }
  // Before the first Apply(); outlives the core's threads.
  void SetPeers(PeerConnector* connector) { pulls_.SetConnector(connector); }

  // Ends every session (UNAVAILABLE, DRAINING) and the threads; later
  // connections are refused. Returns when all streams are destroyed. Once.
  void Shutdown();

  // What the coordinator should know; complete except for address and
  // applied_revision.
  v1::WorkerState Snapshot() const;
  // Grants, renews and drops. Takes effect before it returns.
  void Apply(const v1::DesiredState& desired);
  // Called, from any thread and without locks, when Snapshot() changed in a way
  // that the coordinator should hear soon.
  void SetChangeListener(std::function<void()> listener);

  // Adds what the worker knows and has counted to a scrape.
  void Collect(Exposition* out) const;

  uint64_t incarnation() const { return incarnation_; }
  // Sessions whose stream broke, and that wait for another one.
  size_t detached_sessions() const;
  const ExecutionCounters& counters() const { return counters_; }
  const GraphCache& graphs() const { return graphs_; }
  const ContentCache& contents() const { return contents_; }
  const Ledger& ledger() const { return ledger_; }
  const OfferTable& offers() const { return offers_; }
  Device* device() const { return device_; }
  absl::Duration transfer_idle_timeout() const {
    return options_.transfer_idle_timeout;
  }

 private:
  class Connection;

  static absl::Status Draining();

  // A session by its lease; its key in the queue stays the same over streams.
  struct Held {
    std::shared_ptr<Session> session;
    uint64_t queue_key = 0;
    // The connection that serves it; 0 while there is none.
    uint64_t connection = 0;
    absl::Duration detached_since;
  };

  // A lease that ended.
  struct EndedLease {
    std::string lease_id;
    v1::SignedLease issue;
    std::shared_ptr<LeaseMeter> meter;

    // Whether anybody is left who may add to what it used.
    bool measuring() const;
  };
  // Whom the executor charged last.
  struct Charged {
    std::shared_ptr<LeaseMeter> meter;
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
  };

  // A session as the queue knows it.
  struct Queued {
    std::shared_ptr<Session> session;
    std::shared_ptr<LeaseMeter> meter;
    // That serves it, or served it last.
    std::weak_ptr<Connection> connection;
    // As the lease says; unspecified when nobody declared one.
    v1::PriorityClass declared = v1::PRIORITY_CLASS_UNSPECIFIED;
    // Since when it waits for its turn; infinite when it does not.
    absl::Duration waits_since = absl::InfiniteDuration();
    // When it was then expected to have it, where that is known.
    std::optional<absl::Duration> expected_start;
  };

  // Callbacks of connections and sessions.
  void OnHello(uint64_t key, v1::ControlRequest message);
  void OnClosed(uint64_t key, const absl::Status& status);
  void RequestClose(uint64_t key, absl::Status status);
  // Ends the lease's session, if it is still the one with this queue key, and
  // its stream.
  void EndSession(const std::string& lease_id, uint64_t queue_key,
                  const absl::Status& status);
  // Where there are too many connections: has the one closed that has said
  // nothing for the longest time, if there is such a one.
  bool MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TooManyConnections() const;
  // Has housekeeping close the connection. The first status counts.
  void RequestCloseLocked(uint64_t key, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes it out of the table; the caller drops it without the lock.
  std::shared_ptr<Session> TakeSessionLocked(const std::string& lease_id,
                                             const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeRunnable(uint64_t queue_key);
  // The session's runs are of this phase from now on.
  void NotePhase(uint64_t queue_key, v1::Phase phase);

  // Makes the connection serve the session that the Hello asks for, a new one
  // or one that is here. Errors as Execution.Control.
  absl::Status Admit(uint64_t key, const v1::ClientHello& hello);
  absl::StatusOr<std::shared_ptr<Session>> FindOrMakeSession(
      uint64_t key, const v1::ClientHello& hello, const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Session> MakeSession(const Lease& lease, uint64_t queue_key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<TenantAccount> AccountOf(const v1::LeaseClaims& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LeaseTime Now() const { return {clock_->Monotonic(), clock_->Now()}; }
  void Learn(const v1::DesiredState& desired);
  // What the lease says, checked now or when it came. Unauthenticated
  // (LEASE_UNKNOWN).
  absl::StatusOr<v1::LeaseClaims> ClaimsOf(const v1::SignedLease& issue) const;
  // The lease is in force, as just listed. The queue key of its session if that
  // waited for credit and has some now, else 0.
  uint64_t ApplyLease(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the session of a lease that ended, if there is one; the caller drops
  // it without the lock.
  std::shared_ptr<Session> EndLeaseLocked(Lease lease, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of all sessions' storages that are known to be caches.
  uint64_t CacheBytes() const;
  void ReportLeases(v1::WorkerState* state) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What keeps the session's next message from being carried out, if anything.
  std::optional<v1::MessageWait> WaitOf(const Held& held,
                                        absl::Duration now) const;
  // What operators ask of sessions' runs.
  void AnswerRuns(v1::WorkerState* state) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Who goes first of the session's run at this moment, if anybody does.
  std::optional<v1::RunPreemption> GoesFirstOf(uint64_t queue_key,
                                               absl::Duration now) const;
  // Somebody should know that the session's lease is out of credit, or no more.
  void NoteWaiting(const Session& session, bool waits);
  OfferTable::Activity ActivityOf(const std::string& session_id) const;
  // How long the executor was at work.
  absl::Duration ExecutorTime() const ABSL_LOCKS_EXCLUDED(queue_mu_);
  void CollectMemory(Exposition* out) const;
  void CollectDisk(Exposition* out) const;
  void CollectWaiting(Exposition* out) const;
  void NotifyChange();
  // A session's turn on the device.
  struct Turn {
    uint64_t key = 0;
    std::shared_ptr<Session> session;
    std::shared_ptr<LeaseMeter> meter;
    // Since when it waited for it; infinite when that is not known any more.
    absl::Duration waits_since = absl::InfiniteDuration();
    // Only to refuse its run, which has so much before it.
    std::optional<absl::Duration> refused_behind;
    // When it was given to it; unset for one that shares another's.
    std::optional<absl::Duration> given;
  };
  // One that goes first of the turn before it, or of who is in service.
  struct GoingFirst {
    uint64_t key = 0;
    absl::Duration since;
    // Lives for ever.
    const char* reason = "";
  };
  // One that may become part of another session's, as
  // FairQueue::Company::Member.
  struct Candidate {
    Turn turn;
    bool ahead = false;
  };

  void RunExecutor();
  // The executor waits until it is on another processor.
  void Move(ProcessorThread* thread) ABSL_LOCKS_EXCLUDED(queue_mu_);
  // Takes whoever is next, perhaps not before others have come who share the
  // turn. Nothing when the executor is to stop.
  std::optional<Turn> TakeTurn();
  // While all who wait may share a turn with others that are about to come, and
  // that is worth it.
  void AwaitCompany() ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // By when those will have come; `now` or earlier: nobody is waited for. The
  // device might have gone on at `since`.
  absl::Duration CompanyUntil(absl::Duration since, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // Whether sessions of the two tenants may share products; and whether one of
  // this tenant may find anybody.
  bool MayShare(const std::string& a, const std::string& b) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  bool MayHaveCompany(const std::string& tenant) ABSL_LOCKS_EXCLUDED(queue_mu_);
  // What is done before it, at least, if the session waits with a run that
  // cannot be done by its deadline any more.
  std::optional<absl::Duration> LateBehind(uint64_t key,
                                           absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // Who is in service, if anybody is.
  std::optional<scheduler::InService> InService() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // The session has begun to wait. Notes it if that is so.
  void NoteWaitingRun(uint64_t key, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // Takes one of those.
  std::optional<Turn> TakeRefusal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // A session's work, for the queue.
  scheduler::FairQueue::Work WorkOf(const Session& session) const {
    return {session.deadline(), session.expected(),
            PaceOf(session.next_phase())};
  }
  // How long runs of this phase are beside others.
  scheduler::FairQueue::Pace PaceOf(v1::Phase phase) const;
  // A run with a deadline is over.
  void CountInTime(uint64_t queue_key, const std::string& tenant,
                   RunInTime result);
  // Of a session that was just taken.
  Turn TurnOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // The device is its tenant's until EndTurn(), or EndService().
  Turn Give(Turn turn, absl::Duration now);
  void EndService(const Turn& turn, absl::Duration now);
  void Serve(Turn turn);
  // The session's next messages, until the turn has been long enough.
  void ServeAlone(const Turn& turn, const Preemption::Step& step,
                  absl::Duration now);
  // As FairQueue::MayPreempt(), and takes whoever goes first. Then serves that
  // turn; returns whose it was.
  scheduler::FairQueue::Preemption TakePreempting(const Preemption::Step& step,
                                                  absl::Duration used,
                                                  absl::Duration end);
  Preemptor ServePreempting();
  // The session used so much of the device for work of this phase.
  void Charge(const Turn& turn, v1::Phase phase, absl::Duration used);
  // Whom it charged last used so much, or nobody did.
  void ChargeLast(absl::Duration used);
  // What the executor has done since the last turn was settled is nobody's.
  void KeepHouse();
  // The executor goes to work at `now`, and waits from `now` on. What it did
  // since the last turn was settled belongs to that turn.
  void BeginWork(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  void EndWork(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  // What it used in its turn, which is over, is charged.
  void EndTurn(const Turn& turn, absl::Duration used);
  // Sessions that wait with runs that may go on beside the leader's.
  // `contested` as FairQueue::Company says.
  std::vector<Candidate> FindCompany(const Turn& leader, bool* contested);
  // Carries the leader's run out beside others', if there are any. False, and
  // nothing happened but Frees, when it could not have company.
  bool ServeTogether(const Turn& leader, Preemption::Step* step);
  // Runs that have begun, one of each turn, the first one's at `place`.
  void CarryOut(absl::Span<const Turn> turns,
                absl::Span<LockstepMember> members,
                scheduler::CompanyForecast::Place place);
  // Until somebody is runnable, or the executor is to stop. Where one session
  // alone has been at work its stream is received from meanwhile.
  void AwaitRunnable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_);
  void RunHousekeeping();
  // One round; returns false when nothing was there to do.
  bool CloseAndReap();
  void ExpireAndCheck();
  void CheckDevice();
  void TidyDevice();

  const WorkerCoreOptions options_;
  Device* const device_;
  Clock* const clock_;
  RandomSource* const random_;
  const uint64_t incarnation_;

  Ledger ledger_;
  DeviceMemory memory_;
  LedgerSpareMemory spare_memory_;
  GraphCache graphs_;
  ContentCache contents_;
  ContentProofs proofs_;
  ExecutionCounters counters_;
  mutable WorkerMetrics metrics_;
  OfferTable offers_;
  PeerPulls pulls_;
  LinkRates links_;
  UploadRate uploads_;
  ServedTime served_;
  SessionEnvironment environment_;
  Mutex listener_mu_;
  std::function<void()> change_listener_ ABSL_GUARDED_BY(listener_mu_);

  LeaseVerifier verifier_;
  mutable Mutex mu_;
  CondVar housekeeping_;
  LeaseTable leases_ ABSL_GUARDED_BY(mu_);
  // Until the coordinator has settled them.
  std::deque<EndedLease> ended_leases_ ABSL_GUARDED_BY(mu_);
  // Of these, those that were too many: nobody bills what they used.
  uint64_t unbilled_leases_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mu_);
  // Of these, those that have not said Hello, the oldest first.
  std::set<uint64_t> silent_ ABSL_GUARDED_BY(mu_);
  uint64_t next_key_ ABSL_GUARDED_BY(mu_) = 1;
  // By lease id.
  absl::flat_hash_map<std::string, Held> sessions_ ABSL_GUARDED_BY(mu_);
  // By name; those that no session uses are forgotten.
  absl::flat_hash_map<std::string, std::weak_ptr<TenantAccount>> accounts_
      ABSL_GUARDED_BY(mu_);
  // Counts the Hellos that were accepted.
  uint64_t last_stream_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::pair<uint64_t, absl::Status>> to_close_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> to_reap_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // As the coordinator last listed them.
  std::vector<v1::RunsQuestion> runs_questions_ ABSL_GUARDED_BY(mu_);

  mutable Mutex queue_mu_;
  CondVar runnable_;
  scheduler::FairQueue queue_ ABSL_GUARDED_BY(queue_mu_);
  absl::flat_hash_map<uint64_t, Queued> queued_ ABSL_GUARDED_BY(queue_mu_);
  bool executor_stopping_ ABSL_GUARDED_BY(queue_mu_) = false;
  // Whose stream the idle executor receives from; null while it does not.
  std::shared_ptr<Connection> attended_ ABSL_GUARDED_BY(queue_mu_);
  // Whose turn was last, and how many it had in succession.
  uint64_t last_turn_ ABSL_GUARDED_BY(queue_mu_) = 0;
  uint64_t turns_ ABSL_GUARDED_BY(queue_mu_) = 0;
  // Who is in service, and by when it is expected to be done.
  uint64_t serving_ ABSL_GUARDED_BY(queue_mu_) = 0;
  absl::Duration served_by_ ABSL_GUARDED_BY(queue_mu_);
  // Those whose turns go before it now, the innermost last.
  std::vector<GoingFirst> going_first_ ABSL_GUARDED_BY(queue_mu_);
  // Since when those who wait do so for company.
  std::optional<absl::Duration> awaits_company_since_
      ABSL_GUARDED_BY(queue_mu_);
  // Those that began to wait so since the last turn was taken.
  std::deque<uint64_t> refusals_ ABSL_GUARDED_BY(queue_mu_);
  // The executor's.
  WorkWatch work_ ABSL_GUARDED_BY(queue_mu_);
  // By the same keys.
  scheduler::CompanyForecast forecast_ ABSL_GUARDED_BY(queue_mu_);
  // Those whose runs may share products with one another's.
  absl::flat_hash_set<std::string> batching_tenants_ ABSL_GUARDED_BY(queue_mu_);

  Preemption preemption_;
  // The executor's.
  Turn preempting_;
  // Nobody before the first since it went to work.
  Charged charged_;
  // The coordinator should hear that somebody's credit is half gone.
  bool low_credit_ = false;
  // Housekeeping's: it was said that the device is broken.
  bool told_broken_ = false;
  // When it tidies the device next.
  absl::Duration next_tidying_;

  std::thread executor_;
  std::thread housekeeper_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_WORKER_CORE_H_
