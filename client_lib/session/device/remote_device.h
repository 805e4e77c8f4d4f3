// A member of a virtual device: all that the device has on one worker, mostly
// the only one (device_router.h). See virtual_device.h for what its methods
// promise.
//
// It is made of the recorder (what the program's threads do), the queue between
// these and the sender, the encoder (what the sender makes of work), and the
// connection, whose state mu_ guards: lease, streams, resume, migration, and
// what waits for answers.
//
// Sources by flow: remote_device.cc (recording), _close.cc (its end),
// _uploads.cc, _reads.cc and _copies.cc (values), _sender.cc (what is sent
// when), _connection.cc (lease, streams, resume), _migration.cc (to another
// worker), _replies.cc (what the worker says, and its loss), _profile.cc (what
// is measured), _meter.cc (what was used), _models.cc (what callables keep
// using).
//
// Threads: one thread at a time is the sender; it encodes and sends without
// mu_. Only the device's own thread, when it is the sender, opens and destroys
// streams. The recorder's lock comes before mu_, and mu_ before the queue's;
// nothing else is called with mu_ held except the device's own parts, none of
// which calls out.
#ifndef CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_
#define CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/answer_table.h"
#include "client_lib/session/device/call_recorder.h"
#include "client_lib/session/device/device_state.h"
#include "client_lib/session/device/migration.h"
#include "client_lib/session/device/request_profiler.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/device/work_encoder.h"
#include "client_lib/session/device/work_queue.h"
#include "client_lib/session/model/thread_factory.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/stream/dead_list.h"
#include "client_lib/session/stream/message_log.h"
#include "client_lib/session/stream/reply_log.h"
#include "client_lib/session/stream/session_entry.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "client_lib/session/transfer/eager_uploads.h"
#include "client_lib/session/transfer/peer_links.h"
#include "client_lib/session/transfer/upload_progress.h"
#include "client_lib/session/transfer/upload_table.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "djinn/statistics.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

class RemoteDevice final : public std::enable_shared_from_this<RemoteDevice>,
                           private ClientStreamReceiver,
                           private WindowWaiter {
 public:
  struct Role {
    // The virtual device's index, and the member's.
    int index = 0;
    int member = 0;
    // The device of all storages. Lives as long as calls are made.
    VirtualDevice* owner = nullptr;
    // Room to ask for on the worker.
    uint64_t needed_bytes = 0;
    // The bytes of the owner's live storages there. The owner has it.
    const std::atomic<int64_t>* used_bytes = nullptr;
    // Called without locks when it fails by itself: before anybody sees that,
    // and once more then, for members that came in between.
    std::function<void(const absl::Status& failure)> on_failure;
    // Called by the sender. May be null.
    WorkEncoder::OnRepeat on_repeat;
  };

  // Starts the sender thread.
  RemoteDevice(Role role, std::shared_ptr<SessionContext> context);
  ~RemoteDevice() override;

  int index() const { return index_; }
  void MarkDead(RemoteStorage* storage);
  absl::Status Record(uint32_t lane, Call* call);
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(uint32_t lane,
                                                            Call* call);
  absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                      SharedBytes source);
  absl::Status Seed(uint32_t lane, RemoteStorage* generator, uint64_t seed);
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes);
  // Asks for the value, which FinishRead() waits for. Null: it was known here,
  // and is in `destination`.
  absl::StatusOr<std::shared_ptr<ReadWait>> BeginRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes);
  absl::Status FinishRead(ReadWait* wait, void* destination);
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes);
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes);
  uint64_t VersionOf(const RemoteStorage& storage);
  HostValuePtr FindHostValue(const StorageAt& storage);
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable);
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      absl::Span<RemoteStorage* const> given);
  using ShareOfRecording = CallRecorder::Share;
  using ShareBinding = CallRecorder::ShareBinding;
  // Like Replay(); the caller has checked that the storages are such.
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
                                 OfferRank rank = {});
  absl::Status Pull(uint32_t lane, RemoteStorage* storage, PullWork pull);
  // A call that was recorded here makes again what another worker has made; the
  // worker is told with the next run.
  void CountRecomputed() { encoder_.CountRecomputed(); }
  // The storage holds nothing here from now on; it may again.
  absl::Status Discard(uint32_t lane, RemoteStorage* storage);
  // The worker's description of itself; empty before it was reached.
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
  // Sends what the lane has recorded: nothing follows for now.
  void Ship(uint32_t lane);
  // Waits for the storage's contents: the root error if they are poisoned.
  // Nothing counts it as a read.
  absl::Status CheckSound(uint32_t lane, RemoteStorage* storage);
  // Waits until the worker has executed all that was recorded, failed or not.
  absl::Status CatchUp();
  // The coordinator has given it a worker, reached or not.
  bool HasLease() const;
  // Nothing will be called here any more. Does nothing without a lease, and the
  // second time.
  void GiveLeaseBack(bool unreachable);
  // Something was called that names it.
  bool IsBorn(const RemoteStorage& storage) const;
  // The memory limit of the session there; no limit as long as it is not known.
  uint64_t memory_bytes() const {
    return memory_bytes_.load(std::memory_order_relaxed);
  }
  // Declines migrations from now on: the virtual device has several workers.
  void StayAtWorker();
  // Another member has failed, and the virtual device with it.
  void FailWith(const absl::Status& failure);
  // Why no call is taken any more; OK if they are.
  absl::Status failure() const;

  // Ends what a profile began here, if it did: the worker's part is with the
  // recorder then.
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
  // Waits until everything is executed; false when it is not by then, and the
  // device has not failed.
  bool Flush(const Deadline& deadline);
  // Gives up what is unfinished: tells the worker, then waits for its answer.
  void Cancel();
  void AwaitCancelled(const Deadline& deadline);
  // Says what an unfinished device loses; empty when it is nothing.
  std::string DescribeLoss();
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
  absl::Status AwaitWindow() override ABSL_LOCKS_EXCLUDED(mu_);
  // Queues work for the worker that there is: waits until there is one, and
  // none to go to. `queue` has the recorder queue it, and may be called again.
  // `fill` is called when it is.
  absl::Status QueueHere(
      absl::FunctionRef<absl::Status(CallRecorder::Admit)> queue,
      absl::FunctionRef<void()> fill) ABSL_LOCKS_EXCLUDED(mu_);
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

  // Reads.
  class ReadHandle;
  static void Notify(const ReadTable::Callbacks& callbacks);
  // Whether it is a read of one element that this process can tell: then it is
  // in `destination`.
  absl::StatusOr<bool> AnswerFromHost(uint32_t lane,
                                      const RemoteStorage& storage,
                                      const srg::TensorView& view,
                                      void* destination, uint64_t bytes);
  // Replaces `wait` by that of a prefetched read if there is one.
  absl::Status IssueRead(uint32_t lane, RemoteStorage* storage,
                         const srg::TensorView& view,
                         std::shared_ptr<ReadWait>* wait);
  // DeadlineExceeded (VALUE_PENDING) when the value is not here by then.
  absl::Status AwaitRead(ReadWait* wait, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until the destination is the caller's again.
  void Abandon(ReadWait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Copies.
  absl::Status AwaitWelcome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until it is known which worker will have what is recorded now.
  absl::Status AwaitMigration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Transfers.
  absl::Status QueueInstall(uint32_t lane, RemoteStorage* storage,
                            InstallWork install);
  // Whether the upload is eager; then it counts as under way. Notes in
  // `install` whether the content was uploaded before.
  bool GoesEagerly(uint64_t size, InstallWork* install);
  absl::Status UploadLarge(uint32_t lane, RemoteStorage* storage,
                           InstallWork install);
  // Waits for the decision and sends what the worker asks for.
  absl::Status FinishUpload(UploadWait* wait, SharedBytes source);
  // Proves to the worker that this process has the bytes.
  void Prove(UploadWait* wait, absl::string_view bytes);
  absl::Status SendTransfer(UploadWait* wait, SharedBytes source,
                            UploadProgress* progress);
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;

  // Sending. By the sender, unless said otherwise.
  enum class Next {
    kNothing,
    kOpen,    // a stream, or the lease first
    kSupply,  // a graph the worker asked for
    kCancel,
    kProof,
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
  // The sender's next step, and the work for it.
  struct Step {
    Next next = Next::kNothing;
    std::optional<Work> work;
  };
  Step TakeStep();
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
  void SendCancel();
  using Message = std::shared_ptr<const v1::ControlRequest>;
  void Send(Message message);
  void SendAll(ClientStream* stream, absl::Span<const Message> messages);
  // Gives up a worker that stands still. When to look again.
  Deadline CheckProgress();
  void DropEverything();

  // Encodes the work and appends its messages.
  void Process(Work work);
  // Appends what the encoder made.
  void Append(EncodedMessages messages);
  // Notes who waits for what comes of the message, which gets its number.
  void Register(EncodedMessage* message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EncodeForgottenModels(EncodedMessages* messages);

  // Profiles.
  absl::Duration Now() const;
  void FinishRequest(ReadWait* wait) ABSL_LOCKS_EXCLUDED(mu_);
  // By the sender: begins the profile on the worker.
  void ProfileSender(EncodedMessages* messages);

  // Connection. By the device's own thread.
  void Open();
  absl::Status RequestLease();
  // Until the worker has answered on a new stream, or is given up.
  void Reach(absl::Duration timeout);
  absl::Status TryOpen(absl::Duration timeout);
  // False when the stream cannot be destroyed.
  bool DropStream(
      const absl::Status& why = absl::CancelledError("another takes over"));
  // The worker has what was queued before the migration was asked for.
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
  // By the sender: encodes for the worker that was reached from now on.
  void BeginEncoding(uint64_t next_sequence);
  absl::Status ResumeFrom(const v1::WorkerHello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WorkerLost(const absl::Status& cause) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return LossOf(lease_, welcomed_, cause);
  }
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
  // The limits of messages and of memory, as far as known.
  std::atomic<uint64_t> inline_bytes_{kLeastInlineBytes};
  std::atomic<uint64_t> memory_bytes_{UINT64_MAX};
  WorkQueue queue_;
  CallRecorder recorder_;
  WorkEncoder encoder_;  // the sender's

  mutable Mutex mu_;
  bool sending_ ABSL_GUARDED_BY(mu_) = false;  // a thread is the sender
  CondVar sending_changed_;
  MessageLog log_ ABSL_GUARDED_BY(mu_);
  ReplyLog replies_ ABSL_GUARDED_BY(mu_);
  // Graphs that the worker asked for on this stream.
  std::deque<uint64_t> needed_ ABSL_GUARDED_BY(mu_);
  // Counts messages completed and chunks moved.
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t works_done_ ABSL_GUARDED_BY(mu_) = 0;
  int window_waiters_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar window_changed_;    // room for recording threads
  CondVar progress_changed_;  // works_done_, end_.drained, end_.cancelled,
                              // queue_.held()

  bool stays_ ABSL_GUARDED_BY(mu_) = false;  // does not migrate
  DeviceEnd end_ ABSL_GUARDED_BY(mu_);

  v1::Lease lease_ ABSL_GUARDED_BY(mu_);
  DevicePlacement placement_ ABSL_GUARDED_BY(mu_);
  v1::SessionLimits limits_ ABSL_GUARDED_BY(mu_);
  WorkerFacts facts_ ABSL_GUARDED_BY(mu_);
  PeerLinks links_ ABSL_GUARDED_BY(mu_);
  // The worker has answered once.
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  // Trying to reach the worker was given up.
  bool unreached_ ABSL_GUARDED_BY(mu_) = false;
  bool lease_given_back_ ABSL_GUARDED_BY(mu_) = false;
  StreamState link_ ABSL_GUARDED_BY(mu_);
  CondVar connection_changed_;

  absl::flat_hash_set<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  AnswerTable answers_ ABSL_GUARDED_BY(mu_);
  UploadTable uploads_ ABSL_GUARDED_BY(mu_);
  EagerUploads eager_ ABSL_GUARDED_BY(mu_);
  CondVar streaming_changed_;
  // root_errors counts apart.
  Statistics statistics_ ABSL_GUARDED_BY(mu_);

  // Null: no migration is asked for.
  std::unique_ptr<Migration> migration_ ABSL_GUARDED_BY(mu_);
  // It ends the stream of the worker that it left: what still comes is ignored.
  bool going_over_ ABSL_GUARDED_BY(mu_) = false;
  // No stream has taken up yet what it did on the one where it entered.
  bool gone_over_ ABSL_GUARDED_BY(mu_) = false;

  RequestProfiler profiler_ ABSL_GUARDED_BY(mu_);
  // To be told; none that is not registered.
  std::vector<uint64_t> forgotten_models_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> forgets_models_{false};  // there are such
  // When the message being taken came, if it says what it met.
  absl::Duration arrived_ ABSL_GUARDED_BY(mu_);

  // The sender's own.
  std::vector<uint64_t> admitted_now_;  // graphs
  std::optional<Deadline> stalled_;     // while there is no room: its patience
  uint64_t stalled_progress_ = 0;

  std::unique_ptr<ThreadFactory::Thread> sender_;
};

template <typename Done, typename Moved>
absl::Status RemoteDevice::Await(Waiter* waiter, Done done, Moved moved) {
  const SessionOptions& options = context_->options;
  Deadline deadline(options.operation_timeout, options.clock);
  waiters_.insert(waiter);
  absl::Status status;
  while (!done()) {
    if (!end_.failure.ok()) {
      status = end_.failure;
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

#endif  // CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_
