// One client session on this worker, from the first accepted Hello until it is
// dropped: receives ordered messages, carries them out when its turn comes, and
// answers. Streams come and go meanwhile; without one it goes on with what it
// received.
//
// Messages wait in a bounded queue until the executor calls Step(), which
// carries out one. An Install that needs its bytes parks the session, whether
// the client sends them, proves that it could, or another worker has them, as
// does a run whose plan was evicted: it has no work until they came, or until
// they did not come for too long. Each kind of message has its handler in a
// file of its own.
//
// A session that leaves for another worker offers all that it holds, and stands
// still until it stays after all, or ends. One that enters is parked until all
// of that came, and holds nothing if it does not.
//
// What holds its messages is noted as it changes, by the clock that the
// executor reads anyway, and what became of its last runs is kept for
// operators.
//
// Threading: what a stream brings may come at any time and from several
// threads; Step() is called by one executor thread, Drop() and CheckDeadlines()
// by anybody. Storages and structures belong to whoever set running_: Step(),
// or whoever frees them while nothing runs.
//
// A peer that breaks the protocol makes the session call `fail` once; it then
// ignores everything until it is dropped.
#ifndef GPU_WORKER_SESSION_SESSION_H_
#define GPU_WORKER_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/usage.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/memory/ledger.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/executor.h"
#include "gpu_worker/plan/ongoing_run.h"
#include "gpu_worker/session/inbox.h"
#include "gpu_worker/session/models.h"
#include "gpu_worker/session/offers.h"
#include "gpu_worker/session/outbox.h"
#include "gpu_worker/session/pulls.h"
#include "gpu_worker/session/result_times.h"
#include "gpu_worker/session/root_errors.h"
#include "gpu_worker/session/run_gates.h"
#include "gpu_worker/session/run_records.h"
#include "gpu_worker/session/served_time.h"
#include "gpu_worker/session/session_environment.h"
#include "gpu_worker/session/session_profile.h"
#include "gpu_worker/session/state_arrival.h"
#include "gpu_worker/session/storage_memory.h"
#include "gpu_worker/session/storage_table.h"
#include "gpu_worker/session/structure_table.h"
#include "gpu_worker/session/tenant_account.h"
#include "gpu_worker/session/traffic.h"
#include "gpu_worker/session/uploads.h"
#include "scheduler/fairness/run_times.h"

namespace djinn::worker {

// How a run with a deadline came out.
enum class RunInTime {
  // It was done by then.
  kAttained,
  // It was not, or its turn came later than that.
  kMissed,
  // It would not have been, and was not begun.
  kRefused,
};

class Session {
 public:
  struct RunOver {
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
    absl::StatusCode code = absl::StatusCode::kOk;
    // Since it arrived.
    absl::Duration took;
  };
  struct Callbacks {
    // There may be work again. May outlive the session.
    std::function<void()> runnable;
    // The client broke the protocol: close its stream with this status.
    std::function<void(absl::Status)> fail;
    // Work was done for the session outside its steps.
    std::function<void(absl::Duration)> charge;
    // What the device has done for its lease so far.
    std::function<absl::Duration()> device_time;
    // Its runs are of another phase from this one on.
    std::function<void(v1::Phase)> phase;
    // A run with a deadline is over.
    std::function<void(RunInTime)> in_time;
    // A run is over, one that was not begun, too.
    std::function<void(const RunOver&)> run_over;
    // A program that generates reads a result.
    std::function<void(const ResultTimes::Result&)> result;
  };

  // `environment` outlives the session. What moves is counted in `traffic`.
  Session(const SessionEnvironment* environment, std::string session_id,
          std::string tenant, std::shared_ptr<TenantAccount> account,
          std::shared_ptr<Traffic> traffic, v1::SessionLimits limits,
          Callbacks callbacks);
  ~Session();

  // --- Streams.
  // InvalidArgument (PROTOCOL_VIOLATION) when the client cannot be where it
  // says it is.
  absl::Status CheckResume(const v1::Resume& resume) const;
  // Answers over `stream` from now on: first with `hello`, completed by what
  // was received, then with the replies that were not acknowledged. Streams are
  // numbered in the order of their Hellos; a late call for an older one is
  // without effect.
  void Attach(WorkerStream* stream, uint64_t number, v1::WorkerHello hello,
              uint64_t acknowledged_reply, StreamWay way = StreamWay::kLocal);
  // The stream is not used any more when it returns.
  void Detach(const WorkerStream* stream, uint64_t number);
  void OnRoom() { outbox_.OnRoom(); }
  void OnBulkRoom() { outbox_.OnBulkRoom(); }

  // --- What a stream brings.
  void Receive(v1::ControlRequest message);
  void ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                   absl::Span<const absl::string_view> pieces);

  // --- Executor.
  bool HasWork() const;
  // Carries out one message, or what remains of one, from `now` on. No work:
  // does nothing. Whether it was a run.
  bool Step(absl::Duration now);

  // Carries out Reads and Frees as long as nothing else is next, `most` at
  // most.
  void StepReadsAndFrees(int most);

  // If what is next, but for a Free, is a run that cannot be done by its
  // deadline with so much to be done before it: refuses it, and says so.
  void StepRefusal(absl::Duration ahead);

  // Whether what is next, but for Frees, is a run in fast mode. An atomic: any
  // thread.
  bool fast_run_next() const {
    return fast_run_next_.load(std::memory_order_relaxed);
  }
  // Begins that run for the caller to carry out, if `suits` says so of its
  // products; EndRun() is to follow when it is done. Null, and nothing happened
  // but Frees before it, when it does not suit, or something other than
  // carrying it out is to be done first: in another session's turn, which would
  // pay for it, also having a plan made.
  OngoingRun* BeginRun(
      absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
      bool own_turn);
  // It is carried out from `now` on.
  void NoteBegun(absl::Duration now);
  // So many of its products were shared with runs of these.
  void NoteCompany(uint64_t products,
                   absl::Span<const std::shared_ptr<const RunPeer>> with);
  // The device was busy with it for so long.
  void EndRun(absl::Duration used);

  // The run that is carried out stood still for `away`, for `first` at least.
  // `reason` lives for ever.
  void NoteGaveWay(const RunPeer& first, absl::string_view reason,
                   absl::Duration away);
  // A turn is over. HasWork().
  bool EndTurn(absl::Duration now);
  // It is not served for want of credit; it has credit again.
  void NoteOutOfCredit(absl::Duration now);
  void NoteCredit(absl::Duration now);

  // Of the last run that it carried out, which what it does since then counts
  // with; unspecified before the first one. Any thread.
  v1::Phase phase() const { return phase_.load(std::memory_order_relaxed); }

  // Of the run that is next, but for a Free, as of its structure's last run;
  // unspecified where it is another message or its structure is not known.
  // Likewise under any lock.
  v1::Phase next_phase() const {
    return next_phase_.load(std::memory_order_relaxed);
  }

  // By when what it does next should be done; infinite when nothing says so. An
  // atomic: any thread, under any lock.
  absl::Duration deadline() const {
    const int64_t deadline = deadline_.load(std::memory_order_relaxed);
    return deadline == kNever ? absl::InfiniteDuration()
                              : absl::Nanoseconds(deadline);
  }

  // What that will take at least, if it is a run with a deadline; 0 when that
  // is not known. Likewise.
  absl::Duration expected() const {
    return absl::Nanoseconds(expected_.load(std::memory_order_relaxed));
  }

  // --- Life.
  // Gives up a transfer, a pull, or a structure that does not come; and a
  // client that lets all stand still that is kept for it.
  void CheckDeadlines();
  // Frees everything, at once or when the current node is done.
  void Drop();
  // No further node begins; Drop() is to follow.
  void Stop() { stopped_ = true; }

  // What its storages may take from now on, whatever the Hello said. Any
  // thread.
  void SetMemoryLimits(MemoryLimits limits) { quota_.SetLimits(limits); }
  // How long runs that come from now on may wait until they begin, or fail.
  void SetRunDeadline(absl::Duration deadline) {
    run_deadline_ = absl::ToInt64Nanoseconds(deadline);
  }

  // --- Numbers.
  const std::string& session_id() const { return session_id_; }
  const std::string& tenant() const { return tenant_; }
  const v1::SessionLimits& limits() const { return limits_; }
  uint64_t storage_count() const { return storage_count_; }
  uint64_t storage_bytes() const { return quota_.used(); }
  // Of these, in storages that are known to be caches.
  uint64_t cache_bytes() const {
    return quota_.used(StorageClass::kCache).bytes;
  }
  uint32_t queued_runs() const { return queued_runs_; }
  // Whether messages wait or one is being carried out.
  bool busy() const;
  // Whether an ordered message came.
  bool received_any() const;
  // The client gave up what is not carried out.
  bool cancelled() const { return cancelled_; }
  // As others' records name it.
  const std::shared_ptr<const RunPeer>& peer() const { return peer_; }
  // What its tenant has had of the device.
  ServedTime::Tenant* served() const { return account_->served(); }
  // For operators; the numbers need not be of one moment.
  v1::SessionUse use() const;
  // Likewise: what became of its runs, and what holds those that wait.
  void DescribeRuns(v1::LeaseRuns* runs);
  // What its next message waits for; TURN where it is ready, of which the
  // caller knows the rest. Nothing when there is none, or one is being carried
  // out, or the client takes no replies.
  std::optional<v1::MessageWait> wait() const;

 private:
  // A structure whose plan the run at the head of the inbox waits for.
  struct Need {
    uint64_t structure_id = 0;
    absl::Duration since;
    // The client's answer, until Step() takes it.
    std::optional<v1::DefineStructure> supply;
  };
  // An Install whose bytes, or what may take their place, are on their way; the
  // session is parked.
  struct Upload {
    uint64_t sequence = 0;
    uint64_t storage = 0;
    bool birth = false;
    uint64_t transfer_id = 0;
    uint64_t size_bytes = 0;
    // The bytes come: nothing took their place.
    bool receives = false;
  };
  // A run that the executor's caller carries out.
  struct Begun {
    Inbox::Item item;
    std::shared_ptr<const Plan> plan;
    RunContext context;
    std::unique_ptr<OngoingRun> run;
  };
  // What another worker sends, for an Install or of a session that enters; the
  // session is parked.
  struct Fetch {
    uint64_t sequence = 0;
    uint64_t storage = 0;
  };

  // One that nothing follows. True: there is something new to carry out.
  bool ReceiveOne(v1::ControlRequest message);
  bool ReceiveOrdered(v1::Ordered message);
  void Supply(v1::DefineStructure supply);
  void Cancel();

  // Nothing that comes matters any more.
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return failed_ || dropped_ || cancelling_;
  }
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // They came, so they are paid for.
  void ForgetInbox() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps deadline() true when what is next has changed.
  void NoteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the contents that the run being carried out is bound to.
  uint64_t BoundContentBytes() const;
  // Not OK when the run of the structure comes too late, or would be done too
  // late.
  absl::Status CheckDeadline(uint64_t structure) const;
  // The run took so long. Counts and remembers it where it has a deadline.
  void NoteRunTime(uint64_t structure, absl::Duration took);
  void NoteRefusal(const absl::Status& why) const;
  void NoteRunOver(const v1::RunMetadata& metadata, absl::Duration arrived,
                   absl::Duration now);
  // It begins, was taken in vain, or is over.
  void NoteRunBegins(const Inbox::Item& item, v1::Phase phase,
                     absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteRunEnds(RunRecords::End end, absl::Duration now);
  static RunRecords::Waiting WaitingOf(const Inbox::Item& item);
  // All that wait are given up.
  void AbandonRuns(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What holds the next message; `full`: the outbox has no room.
  v1::RunGate GateLocked(bool full) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For what may be settled outside the session, at any time.
  std::function<void()> SettledCallback();
  // Step(); nothing: when is not worth a look at the clock, as for a Read or a
  // Free.
  bool StepAt(std::optional<absl::Duration> now);
  // A value is on its way to the client.
  void NoteResult();
  // Carries out `item`, with the structure it waited for, if any. Puts it back
  // when it has to wait.
  absl::Status StepItem(Inbox::Item item,
                        std::optional<v1::DefineStructure> supply);
  // Parks the session until the structure was supplied.
  void AskFor(uint64_t structure_id, Inbox::Item item);
  bool MayBeginRunLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Binds and checks the run in `begun` without any effect. False when it is
  // not to be begun.
  bool Suits(
      absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
      bool own_turn, Begun* begun);
  // Whether there is room now for the run, which is bound, or none holds any
  // back that goes on afterwards: then it begins in any case.
  bool HasRoom(const Plan& plan);
  // The message waits again, as if it had not been taken.
  void PutBack(Inbox::Item item);
  // The message waits for room.
  void NoteNoRoom(uint64_t sequence);
  RunContext ContextOf(uint64_t sequence);
  // The plan of the structure is of this phase.
  void NotePhaseOf(uint64_t id, v1::Phase phase,
                   StructureTable::Structure* structure);
  // A run of this phase is about to begin.
  void NotePhase(v1::Phase phase) {
    if (phase_.exchange(phase, std::memory_order_relaxed) == phase) return;
    callbacks_.phase(phase);
  }
  // Ends what began with running_ = true.
  void EndStep();

  // Handlers. An error is a violation of the protocol.
  absl::Status Handle(const v1::Ordered& message);
  absl::Status HandleDefine(uint64_t sequence,
                            const v1::DefineStructure& define);
  absl::Status HandleRun(uint64_t sequence, const v1::Run& run);
  absl::Status HandleInstall(uint64_t sequence, const v1::Install& install);
  absl::Status HandleCreate(uint64_t sequence, const v1::CreateStorage& create);
  absl::Status HandleRead(uint64_t sequence, const v1::Read& read);
  absl::Status HandleFree(const v1::Free& free);
  absl::Status HandleOffer(uint64_t sequence, const v1::Offer& offer);
  absl::Status HandleProfile(uint64_t sequence, const v1::Profile& profile);
  void HandleMeter(uint64_t sequence);
  absl::Status HandleModel(uint64_t sequence, const v1::RegisterModel& model);
  absl::Status HandleMigrate(uint64_t sequence, const v1::Migrate& migrate);
  absl::Status HandleLeave(uint64_t sequence, const v1::Leave& leave);
  absl::Status HandleStay();
  v1::MeteredUse UseSoFar() const;
  absl::Status HandleEnter(uint64_t sequence, const v1::Enter& enter);

  // Fetches what is next of what enters, or answers; what has come is dropped
  // when not all did.
  void GoOnEntering(uint64_t sequence, const StateArrival::Next& next);
  StateArrival::Next TakeFetched();

  absl::Status InstallContent(const std::string& bytes, Storage* storage);
  // Of a generator's state that does not come inline.
  absl::Status NoGenerator(uint64_t bytes) const;
  // As ControlResponse.content_room.
  uint64_t RoomForContents() const;
  // In a response that says how far the session has come, if it has changed.
  void SayRoom(v1::ControlResponse* response);
  // Whether its storage may have the bytes: nobody has work done for what the
  // session may not have.
  bool MayHave(const Upload& upload) const;
  // What was awaited is settled.
  void StepUpload(const Upload& upload);
  void TakeFound(const Upload& upload, Uploads::Found found);
  // False when nobody waits any more.
  bool Park(const Upload& upload);
  // Shares `held`, or has the client send the bytes where it is null.
  void DecideUpload(Upload upload, std::shared_ptr<Buffer> held);
  absl::Status ReceiveUpload(const Upload& upload, Storage* storage);
  void FinishUpload(const Upload& upload);
  static void TakeUploaded(std::shared_ptr<Buffer> buffer, Storage* storage);
  // Until it is fetched; unless the session is dropped or cancelled by now.
  void Park(const Fetch& fetch);
  // Not OK when there is no room.
  absl::Status InstallPull(uint64_t sequence, const v1::Install& install,
                           Storage* storage);
  void FinishPull(const Fetch& fetch);
  // What was fetched; tells the client how fast it came, if that could be
  // measured.
  Pulls::Pulled TakePulled();
  // DEADLINE_EXCEEDED (ACKNOWLEDGE_TIMEOUT).
  absl::Status CheckAcknowledged(absl::Duration now) const;
  absl::StatusOr<SharedBytes> ReadValue(const v1::Read& read, Storage* storage);

  // Finds the storage that a message with this base version acts on, or gives
  // birth to it; moves its version on by one.
  absl::StatusOr<Storage*> NextVersion(uint64_t id, uint64_t base_version);

  // A profile will start: Reads that come from here on are part of it.
  void ExpectProfile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It does, when its turn has come; ends.
  void StartProfile();
  void EndProfile();
  // In the callback that brings a message of a profiled session.
  std::optional<SessionProfile::Mark> MarkArrival();
  // What is being done now, if that is measured.
  void Enter(SessionProfile::Stage stage) {
    if (ABSL_PREDICT_FALSE(profile_ != nullptr)) profile_->Enter(stage);
  }
  // To the reply to a Read, when nothing but sending it is left.
  void AddTiming(v1::ControlResponse* response) const;
  // How long the device was busy with it.
  absl::Duration Execute(uint64_t sequence, uint64_t structure,
                         const Plan& plan, const Lifetimes& lifetimes,
                         v1::ExecutionMode mode, v1::RunMetadata* metadata);

  // Answers when the message being carried out is done.
  void Reply(v1::ControlResponse message) {
    replies_.push_back(std::move(message));
  }
  void CompleteUnlessParked(uint64_t sequence);
  // Sends new root errors and replies; `sequence` is carried out.
  void Complete(uint64_t sequence);
  void FreeState();
  // Tells the account; ends the session when the tenant has too many.
  void CountStorages();
  void Fail(absl::Status status);
  void FailUnlessOk(absl::Status status) {
    if (!status.ok()) Fail(std::move(status));
  }

  const SessionEnvironment& environment_;
  const std::string session_id_;
  const std::string tenant_;
  const v1::SessionLimits limits_;
  const Callbacks callbacks_;
  const std::shared_ptr<TenantAccount> account_;
  const std::shared_ptr<const RunPeer> peer_;

  mutable Mutex mu_;
  RunGates gates_ ABSL_GUARDED_BY(mu_);
  RunRecords runs_ ABSL_GUARDED_BY(mu_);
  // Of runs with a deadline.
  scheduler::RunTimes run_times_ ABSL_GUARDED_BY(mu_);
  // Of structures of a known phase, by id.
  absl::flat_hash_map<uint64_t, v1::Phase> phases_ ABSL_GUARDED_BY(mu_);
  Inbox inbox_ ABSL_GUARDED_BY(mu_);
  // Completed, with every reply in the outbox.
  uint64_t announced_ ABSL_GUARDED_BY(mu_) = 0;
  // Number of the newest stream, and whether it is still there.
  uint64_t stream_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Need> need_ ABSL_GUARDED_BY(mu_);
  // Structure of the last answer to a Need. It may come once more: a resumed
  // stream repeats the Need.
  uint64_t supplied_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Upload> upload_ ABSL_GUARDED_BY(mu_);
  std::optional<Fetch> fetch_ ABSL_GUARDED_BY(mu_);
  // The message that was last put back for want of room, and since when it
  // waits for it.
  uint64_t no_room_for_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration no_room_since_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
  // The profile that will start next, or the one that has, for the threads that
  // receive; and whether there is one.
  std::shared_ptr<SessionProfile> receiving_profile_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> profiled_{false};

  // Touched only by who set running_: the executor, or who drops the session.
  SessionQuota quota_;  // Before the storages that return their shares.
  StorageTable storages_;
  StorageMemory storage_memory_;
  Offers offers_;
  Pulls pulls_;      // Thread-safe, in part.
  Uploads uploads_;  // Thread-safe.
  Models models_;
  // All is offered to another worker: nothing may change.
  bool leaving_ = false;
  // Null unless something is on its way from another worker.
  std::unique_ptr<StateArrival> entering_;
  StructureTable structures_;
  BoundRun run_;  // the one being carried out
  UsedIds transfer_ids_;
  // Null unless one is being carried out so.
  std::unique_ptr<Begun> begun_;
  // The structure that the run being carried out has to wait for, or 0.
  uint64_t missing_structure_ = 0;
  // It waits for room.
  bool put_off_ = false;
  // Of the last run that was to be begun beside others. While it is next, they
  // are the same.
  struct LookedAt {
    uint64_t sequence = 0;
    std::vector<OngoingRun::Product> products;
  };
  LookedAt looked_at_;
  RootErrors errors_;
  std::vector<v1::ControlResponse> replies_;
  // What the client was told: completed sequence, window, and room.
  uint64_t reported_ = 0;
  v1::Window reported_window_;
  std::atomic<uint64_t> reported_room_{0};
  // Of the message being carried out: 0 when they are paid for, or wait again.
  uint64_t message_bytes_ = 0;
  bool message_counts_ = false;
  uint64_t runs_done_ = 0;
  ResultTimes result_times_;
  std::atomic<v1::Phase> phase_{v1::PHASE_UNSPECIFIED};
  absl::Duration message_deadline_ = absl::InfiniteDuration();
  absl::Duration message_arrived_;
  // What is done before its run, if that is only to be refused.
  absl::Duration ahead_;
  std::optional<SessionProfile::Mark> message_mark_;
  // Null while nobody profiles the session.
  std::shared_ptr<SessionProfile> profile_;
  SessionProfile::RunStages run_stages_;  // of the one being carried out

  // The remaining nodes of a run are left out.
  std::atomic<bool> stopped_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> storage_count_{0};
  std::atomic<uint32_t> queued_runs_{0};
  std::atomic<uint32_t> structure_count_{0};
  // In nanoseconds; the largest stands for infinite.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> run_deadline_{kNever};
  std::atomic<int64_t> deadline_{kNever};
  std::atomic<bool> fast_run_next_{false};
  std::atomic<v1::Phase> next_phase_{v1::PHASE_UNSPECIFIED};
  // Nanoseconds.
  std::atomic<int64_t> expected_{0};

  const std::shared_ptr<Traffic> traffic_;
  Outbox outbox_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_SESSION_H_
