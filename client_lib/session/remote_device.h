// What a virtual device has on one worker: a member of it, mostly the only one
// (spanning_device.h). See virtual_device.h for what its methods promise.
//
// Sources by flow: remote_device.cc (recording), _replay.cc (recordings that
// are carried out again), _close.cc (its end), _uploads.cc, _reads.cc and
// _copies.cc (values), _sender.cc (what is sent when), _encode.cc (messages),
// _connection.cc (lease, streams, resume), _migration.cc (to another worker),
// _replies.cc (what the worker says, and its loss), _profile.cc (what is
// measured), _meter.cc (what was used), _models.cc (what callables keep using).
//
// Threads: recording threads and callbacks share mu_. One thread at a time is
// the sender: it encodes and sends without mu_. Only the device's own thread,
// when it is the sender, opens and destroys streams. Nothing is called with mu_
// held except the device's own parts, none of which calls out.
#ifndef CLIENT_LIB_SESSION_REMOTE_DEVICE_H_
#define CLIENT_LIB_SESSION_REMOTE_DEVICE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/call_sites.h"
#include "client_lib/session/dead_list.h"
#include "client_lib/session/device_profile.h"
#include "client_lib/session/host_values.h"
#include "client_lib/session/message_log.h"
#include "client_lib/session/migration.h"
#include "client_lib/session/peer_links.h"
#include "client_lib/session/read_predictor.h"
#include "client_lib/session/read_table.h"
#include "client_lib/session/recording.h"
#include "client_lib/session/reply_log.h"
#include "client_lib/session/run_encoder.h"
#include "client_lib/session/segment_recorder.h"
#include "client_lib/session/session_context.h"
#include "client_lib/session/session_entry.h"
#include "client_lib/session/structure_history.h"
#include "client_lib/session/structure_table.h"
#include "client_lib/session/unasked_uploads.h"
#include "client_lib/session/upload_progress.h"
#include "client_lib/session/upload_table.h"
#include "client_lib/session/virtual_device.h"
#include "client_lib/session/wait.h"
#include "client_lib/session/work.h"
#include "client_lib/session/worker_features.h"
#include "common/error.h"
#include "common/mutex.h"
#include "djinn/statistics.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// Why a device does not do what one with a single worker would.
inline constexpr char kSpansWorkers[] = "SPANS_WORKERS";

class RemoteDevice final : public std::enable_shared_from_this<RemoteDevice>,
                           private ClientStreamReceiver {
 public:
  // Sources up to here are copied before the worker's limits are known; a
  // worker that takes less inline is refused. A generator's state is smaller.
  static constexpr uint64_t kAlwaysInlineBytes = 8192;

  // Who calls: a thread that found the virtual device on one worker, or the
  // virtual device, which has put the call in order with those on its other
  // members. Once there are such, only the latter is heard: the others get
  // BeganToSpan(), without an effect.
  enum class Caller : uint8_t { kDirect, kOrdered };
  static constexpr char kBeganToSpan[] = "BEGAN_TO_SPAN";
  static absl::Status BeganToSpan();
  static bool IsBeganToSpan(const absl::Status& status);

  struct RepeatedStructure {
    v1::Structure structure;
    v1::StructureNotes notes;
    // What its slots are bound to in this run.
    std::vector<uint64_t> storages;
    // With this run.
    uint64_t uses = 0;
  };

  struct Role {
    // Of the virtual device, and among its members.
    int index = 0;
    int member = 0;
    // Whose storages calls name. Lives as long as calls are made.
    VirtualDevice* owner = nullptr;
    // Room to ask for on the worker.
    uint64_t needed_bytes = 0;
    // What the owner's live storages take there. Of the owner.
    const std::atomic<int64_t>* used_bytes = nullptr;
    // Called without locks when it fails by itself: before anybody sees that,
    // and once more then, for members that came in between.
    std::function<void(const absl::Status& failure)> on_failure;
    // If set, called on the sender thread with a structure that is used again:
    // the second time, and less and less often afterwards.
    std::function<void(RepeatedStructure repeated)> on_repeat;
  };

  // Starts the sender thread.
  RemoteDevice(Role role, std::shared_ptr<SessionContext> context);
  ~RemoteDevice() override;

  int index() const { return index_; }
  void MarkDead(RemoteStorage* storage);
  absl::Status Record(uint32_t lane, Call* call,
                      Caller caller = Caller::kDirect);
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call, Caller caller = Caller::kDirect);
  absl::Status Upload(uint32_t lane, RemoteStorage* storage, SharedBytes source,
                      Caller caller = Caller::kDirect);
  absl::Status Seed(uint32_t lane, RemoteStorage* generator, uint64_t seed,
                    Caller caller = Caller::kDirect);
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes, Caller caller = Caller::kDirect);
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes, Caller caller = Caller::kDirect);
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes, Caller caller = Caller::kDirect);
  uint64_t VersionOf(const RemoteStorage& storage);
  HostValuePtr FindHostValue(const StorageAt& storage);
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable);
  absl::Status StartRecording(uint32_t lane);
  absl::StatusOr<std::shared_ptr<const Recording>> FinishRecording(
      uint32_t lane, absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited);
  absl::Status RecordingRefusal(uint32_t lane);
  void DropRecording(uint32_t lane);
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      absl::Span<RemoteStorage* const> given);
  // Some of a recording of one run: this structure, at this size, in the place
  // of its own. `calls`: of the program, that count as carried out here.
  struct ShareOfRecording {
    std::shared_ptr<const Recording> recording;
    std::shared_ptr<const SizedStructure> structure;
    int64_t size = 0;
    size_t calls = 0;
  };
  // What that is carried out on: what it is given and keeps, and fresh storages
  // for its outputs.
  struct ShareBinding {
    absl::Span<RemoteStorage* const> given;
    absl::Span<RemoteStorage* const> kept;
    absl::Span<const StoragePtr> outputs;
  };
  // Like Replay(); for the virtual device, which has checked that the storages
  // are such.
  absl::Status ReplayShare(uint32_t lane, const ShareOfRecording& share,
                           const ShareBinding& binding);
  absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                             absl::string_view name,
                             std::vector<StoragePtr> storages);
  void ForgetModel(uint64_t model_id);
  absl::StatusOr<DevicePlacement> Placement();

  // A copy from another worker, whose halves are of two members. Offer() keeps
  // what the storage holds here, and says how another worker gets it; waits for
  // this one, if there is none yet, and for nothing else. Pull() replaces the
  // storage's contents by it.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage,
                                 Caller caller = Caller::kDirect,
                                 OfferRank rank = {});
  absl::Status Pull(uint32_t lane, RemoteStorage* storage, PullWork pull,
                    Caller caller = Caller::kDirect);
  // A call that was recorded here makes again what another worker has made; the
  // worker is told with the next run.
  void CountRecomputed() {
    recomputed_.fetch_add(1, std::memory_order_relaxed);
  }
  // The storage holds nothing here from now on; it may again.
  absl::Status Discard(uint32_t lane, RemoteStorage* storage);
  // What its worker says of itself; empty before it was reached.
  struct WorkerFacts {
    std::string worker_id;
    std::string numerics;
    v1::DeviceSpeed speed;
    uint64_t generator_bytes = 0;
  };
  WorkerFacts Facts() const;
  // How fast values came here from the other worker lately, in bytes a second;
  // 0: not known, or not any more.
  double LinkFrom(const std::string& worker_id) const;
  // Has what the lane has recorded carried out: nothing follows for now.
  void Ship(uint32_t lane);
  // Waits for the storage's contents: the root error if they are poisoned.
  // Nothing counts it as a read.
  absl::Status CheckSound(uint32_t lane, RemoteStorage* storage);
  // Waits until all that was recorded is carried out, whatever came of it.
  absl::Status CatchUp();
  // The coordinator has given it a worker, reached or not.
  bool HasLease() const;
  // Nothing will be called here any more. Does nothing without a lease, and the
  // second time.
  void GiveLeaseBack(bool unreachable);
  // Something was called that names it.
  bool IsBorn(const RemoteStorage& storage) const;
  // What the worker lets the session hold; no limit as long as it is not known.
  uint64_t memory_bytes() const {
    return memory_bytes_.load(std::memory_order_relaxed);
  }
  // Others take part in what the lanes do from now on: no recording that is
  // being made will do, and it does not go to another worker.
  void BeginToSpan();
  // Another member has failed, and the virtual device with it.
  void FailWith(const absl::Status& failure);
  // Why no call is taken any more; OK if they are.
  absl::Status failure() const;

  // Ends what a profile began here, if it did: the worker's part is with the
  // recorder then. Unimplemented (PROFILE_UNSUPPORTED).
  absl::Status FinishProfile();
  // As Session::AskCost(), and what comes of it.
  absl::StatusOr<std::shared_ptr<MeterWait>> AskMeter(uint32_t lane);
  absl::StatusOr<v1::MeteredUse> AwaitMeter(MeterWait* wait);
  void AddStatistics(Statistics* sum) const;
  void OnLeaseEnded(const std::string& lease_id, const std::string& reason);
  // False when it is about another device's lease.
  bool OnMigrationRequested(const v1::MigrationRequest& request);

  // The session closes a device in these steps. BeginClose() stops intake and
  // seals everything.
  void BeginClose();
  // Waits until everything is carried out; false when it is not by then, and
  // the device has not failed.
  bool Flush(const Deadline& deadline);
  // Gives up what is unfinished: tells the worker, then waits for its answer.
  void Cancel();
  void AwaitCancelled(const Deadline& deadline);
  // Says what an unfinished device loses; empty when it is nothing.
  std::string DescribeLoss() const;
  // The device's failure, if work was lost by it.
  absl::Status Failure() const;
  // Ends the stream; every wait wakes, the sender is on its way out.
  void Stop();
  // Waits for the sender's end, once lease requests are cancelled, and until
  // the deadline for the stream's.
  void Join(const Deadline& deadline);
  // Destroys the stream. Nobody may report the end of a lease any more.
  void Disconnect();

 private:
  // Recording.
  absl::Status Enter(Caller caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EnterSlow(Caller caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Unusable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status SessionClosed();
  bool WindowFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Queue(Work work, bool needs_lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `metadata` waits for the last of them.
  void QueueSegments(const SealedSegments& sealed,
                     std::shared_ptr<MetadataWait> metadata = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until `done`, the device's failure or the operation time-out, which
  // begins anew when it finds that something `moved`.
  template <typename Done, typename Moved>
  absl::Status Await(Waiter* waiter, Done done, Moved moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Done>
  absl::Status Await(Waiter* waiter, Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Await(waiter, std::move(done), [] { return false; });
  }
  // Until something may have changed; nobody else signals `changed` but for
  // what `done` says. Receives in this thread, if that can be.
  void WaitOrReceive(CondVar* changed, absl::FunctionRef<bool()> done,
                     const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the stream's own thread receive: somebody waits who does not.
  void RecallReceiver() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status NoAnswer() const;
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Recordings. The lane did what cannot be carried out again.
  void RefuseRecording(uint32_t lane, absl::string_view reason,
                       absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckReplay(const Recording& recording,
                           absl::Span<RemoteStorage* const> given) const;
  // Stamps a part, and that it may be carried out `fast`; `made` has a version
  // for each storage that was made so far.
  ReplayWork StampReplay(const std::shared_ptr<const Recording>& recording,
                         size_t part, bool fast,
                         absl::Span<RemoteStorage* const> given,
                         absl::FunctionRef<RemoteStorage*(uint32_t)> kept,
                         uint64_t first_made,
                         absl::Span<const StoragePtr> outputs,
                         std::vector<uint64_t>* made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Reads.
  class ReadHandle;
  static void Notify(const ReadTable::Callbacks& callbacks);
  // Whether it is a read of one element that this process can tell: then it is
  // in `destination`.
  absl::StatusOr<bool> AnswerFromHost(uint32_t lane,
                                      const RemoteStorage& storage,
                                      const srg::TensorView& view,
                                      void* destination, uint64_t bytes,
                                      Caller caller);
  // Replaces `wait` by that of a prefetched read if there is one.
  absl::Status IssueRead(uint32_t lane, RemoteStorage* storage,
                         const srg::TensorView& view,
                         std::shared_ptr<ReadWait>* wait, Caller caller);
  static StorageVersion VersionAt(const RemoteStorage& storage) {
    return {storage.id(), storage.version_, storage.size_bytes()};
  }
  void QueueRead(uint32_t lane, RemoteStorage* storage,
                 const srg::TensorView& view,
                 const std::shared_ptr<ReadWait>& wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks in advance for the value, if the storage can hold it.
  void QueueForeseen(uint32_t lane, RemoteStorage* storage,
                     const ReadPredictor::Prediction& prediction)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks in advance for what the segment's last call wrote.
  void Foresee(const Segment& segment,
               const ReadPredictor::Prediction& prediction,
               SealedSegments* sealed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // DeadlineExceeded (VALUE_PENDING) when the value is not here by then.
  absl::Status AwaitRead(ReadWait* wait, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until the destination is the caller's again.
  void Abandon(ReadWait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishRead(ReadWait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Copies.
  absl::Status AwaitWelcome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until it is known which worker will have what is recorded now.
  absl::Status AwaitMigration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Transfers.
  absl::Status QueueInstall(uint32_t lane, RemoteStorage* storage,
                            InstallWork install, Caller caller);
  // As UnaskedUploads::Take().
  bool GoesUnasked(uint64_t size, uint64_t sample, Caller caller);
  // Whether an upload is announced with its hash; otherwise it is hashed while
  // it is sent, or when the worker asks.
  bool HashesFirst(uint64_t size) const;
  absl::Status UploadLarge(uint32_t lane, RemoteStorage* storage,
                           InstallWork install, Caller caller);
  void SealEverything();
  // Waits for the decision and sends what the worker asks for.
  absl::Status FinishUpload(UploadWait* wait, SharedBytes source);
  // Says the hash, if the worker asks for it, and waits for what it says then.
  absl::Status SayHash(UploadWait* wait, absl::string_view bytes);
  void QueueHash(UploadWait* wait, const ContentHash& hash);
  // Proves to have the bytes, if the worker asks for that, and waits for what
  // it says then.
  absl::Status Prove(UploadWait* wait, absl::string_view bytes);
  absl::Status SendTransfer(UploadWait* wait, SharedBytes source,
                            UploadProgress* progress);
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;

  // Sending. By the sender, unless said otherwise.
  enum class Next {
    kNothing,
    kOpen,    // a stream, or the lease first
    kSupply,  // a structure the worker asked for
    kCancel,
    kProof,
    kHash,     // of an upload
    kMessage,  // the next of the log
    kAcknowledge,
    kWork,
    kMigrate,
    kDrop,
    kStop,
  };
  void SenderLoop();
  // For a thread that waits for the outcome anyway: does what is due itself if
  // nobody is the sender, which saves two changes of threads; wakes the
  // device's own thread for the rest.
  void SendNow();
  // Does everything that is due. Only the device's own thread opens streams and
  // goes on for long. False when the device stops.
  bool Advance(bool own_thread);
  Next TakeNext(Work* work);
  // With nothing else to do: frees, and the end of a flush. True if there is
  // more to send now.
  bool FinishRound(bool free_now);
  // No queued work, or only such as asks for no lease.
  bool NothingDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether queued work is worth encoding first, so that its messages leave
  // with those that wait.
  bool Gathers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendMessages();
  void SendAcknowledgement();
  void SendSupply();
  void SendProof();
  void SendHash();
  void SendCancel();
  using Message = std::shared_ptr<const v1::ControlRequest>;
  void Send(Message message) { SendAll({&message, 1}); }
  void SendAll(absl::Span<const Message> messages);
  // Gives up a worker that stands still. When to look again.
  Deadline CheckProgress();
  void DropEverything();

  // Encoding.
  void Process(Work work);
  void ProcessNow(Work work);
  void Encode(const Work& work, RunWork& run, v1::ControlRequest* request);
  void Encode(const Work& work, ReplayWork& replay,
              v1::ControlRequest* request);
  // What both have in common. `segment` may be null.
  void FinishRun(const Work& work, RunEncoder::Encoded encoded,
                 std::vector<uint32_t> sites, Segment* segment,
                 v1::ControlRequest* request);
  void Encode(const Work& work, InstallWork& install,
              v1::ControlRequest* request);
  void Encode(const Work& work, SeedWork& seed, v1::ControlRequest* request);
  void Encode(const Work& work, CreateWork& create,
              v1::ControlRequest* request);
  void Encode(const Work& work, ReadWork& read, v1::ControlRequest* request);
  void Encode(const Work& work, OfferWork& offer, v1::ControlRequest* request);
  void Encode(const Work& work, PullWork& pull, v1::ControlRequest* request);
  // Numbers the message and hands it to the log.
  void Append(uint32_t lane, std::shared_ptr<v1::ControlRequest> request,
              bool ends_work);
  void AppendFrees();
  void AppendForgottenModels();

  // Profiles. Null while there is none.
  DeviceProfile* Profiled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Duration Now() const;
  // A read on its way: asked for, handed to the transport, answered, and here.
  void MarkAsked(ReadWait* wait, absl::Duration began, absl::Duration asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkHanded(uint64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status MarkAnswered(const v1::ControlResponse& response,
                            absl::Duration arrived)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishRequest(ReadWait* wait) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ApplyProfile(const v1::ProfileReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By the sender: begins the profile on the worker, counts what it will have
  // to report, and asks for that before it is too much.
  void ProfileSender();
  void CountProfiled(size_t nodes);
  void AskForReport();
  void AppendProfile(v1::ProfileAction action);
  void Encode(const Work& work, ProfileWork& profile,
              v1::ControlRequest* request);
  void Encode(const Work& work, MeterWork& meter, v1::ControlRequest* request);
  void Encode(const Work& work, ModelWork& model, v1::ControlRequest* request);
  // False when nobody asked.
  bool ApplyMetered(const v1::Metered& metered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ApplyModel(const v1::ModelRegistered& registered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Connection. By the device's own thread.
  void Open();
  absl::Status RequestLease();
  v1::ClientHello HelloFor(const v1::Lease& lease) const;
  // What a lease's worker must say of itself.
  static absl::Status CheckHello(const v1::WorkerHello& hello,
                                 const v1::Lease& lease);
  // Until the worker has answered on a new stream, or is given up.
  void Reach(absl::Duration timeout);
  absl::Status TryOpen(absl::Duration timeout);
  // False when the stream cannot be destroyed.
  bool DropStream(
      const absl::Status& why = absl::CancelledError("another takes over"));
  // Nobody gave up meanwhile.
  bool Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // What was queued before it was asked to go was handed to the worker.
  bool HoldsWorkBack() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next step is due: nothing is on its way.
  bool MigrationDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Migrate();
  // Not OK: it is not to leave.
  absl::Status Leave() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ApplyLeft(v1::Left* left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Opens the session on the other worker, and waits until all is there.
  absl::Status EnterOther(std::unique_ptr<SessionEntry>* entry);
  // Goes on at the other worker. Not OK: the device has failed.
  absl::Status GoOver(const SessionEntry::Entered& entered);
  void Stay();
  void EndMigration(absl::Status status, const v1::Entered& entered);

  // Replies.
  void OnMessage(v1::ControlResponse response) override;
  void OnClosed(absl::Status status) override;
  absl::Status Complete(uint64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A breach of the protocol, or OK.
  absl::Status Take(v1::ControlResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Apply(v1::ControlResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyHello(const v1::ControlResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // From what the worker says.
  void SetSenderLimits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ResumeFrom(const v1::WorkerHello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyMetadata(const v1::RunMetadata& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyAdmitted(const v1::Admitted& admitted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyRead(uint64_t number, v1::ReadReply* reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WorkerLost(const absl::Status& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first failure counts; every wait wakes with it.
  void Fail(absl::Status failure, bool by_itself = true);
  // The same in one of the stream's callbacks. Whoever destroys the stream
  // waits for these to return; one that counted as using the stream would have
  // it given up instead, and go on without its device.
  void FailInCallback(absl::Status failure, bool by_itself = true);
  // Keeps the stream, which may be null, until LeaveStream().
  ClientStream* EnterStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Role role_;
  const int index_;
  const std::shared_ptr<SessionContext> context_;
  DeadList dead_;
  Wakeup wakeup_;                      // of the sender
  std::atomic<bool> free_due_{false};  // many dead storages wait, or models
  // What a message may carry, as far as known.
  std::atomic<uint64_t> inline_bytes_{kAlwaysInlineBytes};
  std::atomic<uint64_t> memory_bytes_{UINT64_MAX};
  std::atomic<uint32_t> recomputed_{0};  // and not told

  mutable Mutex mu_;
  SegmentRecorder recorder_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, std::unique_ptr<Recorder>> recordings_
      ABSL_GUARDED_BY(mu_);  // by lane
  // Work in the order of the program; bounded by the window.
  std::deque<Work> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool processing_ ABSL_GUARDED_BY(mu_) = false;  // the sender holds one
  bool sending_ ABSL_GUARDED_BY(mu_) = false;     // somebody is the sender
  CondVar sending_changed_;
  MessageLog log_ ABSL_GUARDED_BY(mu_);
  ReplyLog replies_ ABSL_GUARDED_BY(mu_);
  // Structures that the worker asked for on this stream.
  std::deque<uint64_t> needed_ ABSL_GUARDED_BY(mu_);
  // Counts messages completed and chunks moved.
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t works_queued_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t works_done_ ABSL_GUARDED_BY(mu_) = 0;
  int window_waiters_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar window_changed_;    // room for recording threads
  CondVar progress_changed_;  // works_done_, drained_, cancelled_, processing_

  bool spans_ ABSL_GUARDED_BY(mu_) = false;  // with other members
  // Whether calls are taken: no failure, not closing.
  bool usable_ ABSL_GUARDED_BY(mu_) = true;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool lost_work_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool drained_ ABSL_GUARDED_BY(mu_) = false;  // the sender has nothing left
  bool cancelling_ ABSL_GUARDED_BY(mu_) = false;
  bool cancel_sent_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;  // the worker said so
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  bool lease_due_ ABSL_GUARDED_BY(mu_) = false;
  v1::Lease lease_ ABSL_GUARDED_BY(mu_);
  DevicePlacement placement_ ABSL_GUARDED_BY(mu_);
  v1::SessionLimits limits_ ABSL_GUARDED_BY(mu_);
  WorkerFacts facts_ ABSL_GUARDED_BY(mu_);
  WorkerFeatures features_ ABSL_GUARDED_BY(mu_);
  PeerLinks links_ ABSL_GUARDED_BY(mu_);
  // The worker has answered once.
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  // Trying to reach the worker was given up.
  bool unreached_ ABSL_GUARDED_BY(mu_) = false;
  bool lease_given_back_ ABSL_GUARDED_BY(mu_) = false;
  // It has on this stream, which has not ended.
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t connection_ ABSL_GUARDED_BY(mu_) = 0;  // counts these
  bool near_ ABSL_GUARDED_BY(mu_) = false;        // the last stream's peer is
  // The stream ended by itself: another may go on.
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status break_cause_ ABSL_GUARDED_BY(mu_);
  bool hello_received_ ABSL_GUARDED_BY(mu_) = false;  // on this stream
  bool closed_ ABSL_GUARDED_BY(mu_) = false;          // the stream ended
  CondVar connection_changed_;

  absl::flat_hash_set<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<MetadataWait>> metadata_
      ABSL_GUARDED_BY(mu_);  // by sequence
  // Structures that the worker took, for the sender.
  std::vector<uint64_t> admitted_ ABSL_GUARDED_BY(mu_);
  // Fingerprints of the structures defined and not yet answered, by id.
  absl::flat_hash_map<uint64_t, std::string> defining_ ABSL_GUARDED_BY(mu_);
  // Whoever makes callbacks due calls them, without the lock.
  ReadTable reads_ ABSL_GUARDED_BY(mu_);
  UploadTable uploads_ ABSL_GUARDED_BY(mu_);
  UnaskedUploads unasked_ ABSL_GUARDED_BY(mu_);
  // Threads that receive by themselves while they wait, or are about to, and
  // those that cannot.
  int attending_ ABSL_GUARDED_BY(mu_) = 0;
  int plain_waiters_ ABSL_GUARDED_BY(mu_) = 0;
  // Threads that use the stream without being the sender.
  int streaming_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar streaming_changed_;
  ReadPredictor predictor_ ABSL_GUARDED_BY(mu_);
  HostValues host_values_ ABSL_GUARDED_BY(mu_);
  CallSiteLog call_sites_ ABSL_GUARDED_BY(mu_);
  // root_errors counts apart.
  Statistics statistics_ ABSL_GUARDED_BY(mu_);

  // Null: nobody asked it to go.
  std::unique_ptr<Migration> migration_ ABSL_GUARDED_BY(mu_);
  // It ends the stream of the worker that it left: what still comes is ignored.
  bool going_over_ ABSL_GUARDED_BY(mu_) = false;
  // No stream has taken up yet what it did on the one where it entered.
  bool gone_over_ ABSL_GUARDED_BY(mu_) = false;

  std::shared_ptr<DeviceProfile> profile_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<ProfileWait> last_report_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<MeterWait>> meters_
      ABSL_GUARDED_BY(mu_);  // by sequence
  // On workers that it left.
  v1::MeteredUse used_elsewhere_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<ModelWait>> models_
      ABSL_GUARDED_BY(mu_);  // by sequence
  // To be told; none that is not registered.
  std::vector<uint64_t> forgotten_models_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> forgets_models_{false};  // there are such
  // When the message being taken came, if it says what it met.
  absl::Duration arrived_ ABSL_GUARDED_BY(mu_);

  // The sender's own.
  uint64_t next_transfer_id_;
  // profile_, once the worker takes part.
  std::shared_ptr<DeviceProfile> sender_profile_;
  v1::SessionLimits sender_limits_;
  size_t sender_max_runs_ = 1;  // of one structure, to be remembered
  std::unique_ptr<StructureTable> structures_;
  std::unique_ptr<RunEncoder> encoder_;
  // Of the run that is appended next: see MessageLog::Entry.
  std::vector<uint64_t> written_;
  StructureHistory history_;
  std::vector<uint64_t> pending_free_;
  std::optional<Deadline> stalled_;  // while there is no room: its patience
  uint64_t stalled_progress_ = 0;

  // Replaced and destroyed by the device's own thread, or by Disconnect().
  std::unique_ptr<ClientStream> stream_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<std::thread> sender_;
};

void AddUse(const v1::MeteredUse& use, v1::MeteredUse* sum);

template <typename Done, typename Moved>
absl::Status RemoteDevice::Await(Waiter* waiter, Done done, Moved moved) {
  const SessionOptions& options = context_->options;
  Deadline deadline(options.operation_timeout, options.clock);
  waiters_.insert(waiter);
  absl::Status status;
  while (!done()) {
    if (!failure_.ok()) {
      status = failure_;
      break;
    }
    if (deadline.passed()) {
      if (moved()) {
        deadline = Deadline(options.operation_timeout, options.clock);
        continue;
      }
      status = NoAnswer();
      break;
    }
    WaitOrReceive(&waiter->changed, done, deadline);
  }
  waiters_.erase(waiter);
  return status;
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_REMOTE_DEVICE_H_
