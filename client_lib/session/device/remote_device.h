// Implements a replica of a virtual device: all that the device has on one
// worker, which is usually its only one (device_router.h). See virtual_device.h
// for the contracts of its methods.
//
// It consists of the recorder (what the program's threads do), the queue
// between those threads and the sender, the encoder (which turns work into
// messages), the answers that threads wait for, and the connection. mu_ guards
// the connection's state: lease, streams, resume, and migration.
//
// Sources by flow: remote_device.cc (recording), _close.cc (shutdown),
// _copies.cc (copies between workers), _sender.cc (what is sent when),
// _connection.cc (lease, streams, resume), _migration.cc (migration to another
// worker), _replies.cc (the worker's messages, and its loss), _profile.cc
// (measurements), _accounts.cc (use, and resident models). ValueReader and
// Uploader move values.
//
// Threads: one thread at a time is the sender; it encodes and sends without
// mu_. Only the device's own thread, while it is the sender, opens and destroys
// streams. Lock order: the recorder's lock, then mu_, then that of the answers,
// then those of the queue and the receiver. Under them the device calls only
// its own parts, none of which calls out.
#ifndef CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_
#define CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/session/device/answer_receiver.h"
#include "client_lib/session/device/answers.h"
#include "client_lib/session/device/call_recorder.h"
#include "client_lib/session/device/device_state.h"
#include "client_lib/session/device/migration.h"
#include "client_lib/session/device/replica_role.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/device/uploader.h"
#include "client_lib/session/device/value_reader.h"
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
#include "client_lib/session/transfer/peer_links.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "djinn/statistics.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

class RemoteDevice final : public std::enable_shared_from_this<RemoteDevice>,
                           private ClientStreamReceiver,
                           private WindowWaiter,
                           private SenderSignal {
 public:
  // Starts the sender thread.
  RemoteDevice(ReplicaRole role, std::shared_ptr<SessionContext> context);
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
  // Starts a read that FinishRead() waits for. Returns null if the process knew
  // the value, which is then in `destination`.
  absl::StatusOr<std::shared_ptr<ReadWait>> BeginRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) {
    return reader_.Begin(lane, storage, view, destination, bytes);
  }
  absl::Status FinishRead(ReadWait* wait, void* destination) {
    return reader_.Finish(wait, destination);
  }
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes);
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) {
    return reader_.Start(shared_from_this(), lane, storage, view, destination,
                         bytes);
  }
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
  // Executes a share of a captured graph. The caller has checked that the
  // storages fit.
  absl::Status ReplayShare(uint32_t lane, const ShareOfRecording& share,
                           const ShareBinding& binding);
  absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                             absl::string_view name,
                             std::vector<StoragePtr> storages);
  void ForgetModel(uint64_t model_id);
  absl::StatusOr<DevicePlacement> Placement();

  // Offer() and Pull(), called on two replicas, copy a value from worker to
  // worker. Offer() keeps the storage's current value on this worker and
  // returns how another worker fetches it. It waits for this worker if the
  // device has none yet, and for nothing else. Pull() replaces the storage's
  // contents by the value.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage,
                                 OfferRank rank = {});
  absl::Status Pull(uint32_t lane, RemoteStorage* storage, PullWork pull);
  // Counts a call recorded here that rematerializes another worker's result.
  // The next run reports it to the worker.
  void CountRecomputed() { encoder_.CountRecomputed(); }
  // Drops the storage's contents on this worker. A later write fills it again.
  absl::Status Discard(uint32_t lane, RemoteStorage* storage);
  // Returns an empty description before the worker was reached.
  WorkerDescription Facts() const;
  // Returns how fast values recently came here from the other worker, in bytes
  // per second, or 0 if that is unknown or outdated.
  double LinkFrom(const std::string& worker_id) const;
  // Sends what the lane has recorded, because it is idle for now.
  void Ship(uint32_t lane);
  // Waits for the storage's contents and returns the root error if they are
  // poisoned. Does not count as a read.
  absl::Status CheckSound(uint32_t lane, RemoteStorage* storage) {
    return reader_.CheckSound(lane, storage);
  }
  // Waits until the worker has executed all that was recorded, successfully or
  // not.
  absl::Status CatchUp();
  // Returns whether the coordinator has granted a lease, whether or not the
  // worker was reached.
  bool HasLease() const;
  // Returns the lease; the caller makes no more calls here. Does nothing
  // without a lease or the second time.
  void GiveLeaseBack(bool unreachable);
  // Returns whether a recorded call or message created the storage.
  bool IsBorn(const RemoteStorage& storage) const;
  uint64_t memory_bytes() const { return uploader_.memory_bytes(); }
  // Declines migrations from now on, because the virtual device has several
  // workers.
  void StayAtWorker();
  // Fails this replica because another one, and with it the virtual device,
  // failed.
  void FailWith(const absl::Status& failure);
  // Returns the reason why no call is taken any more, or OK.
  absl::Status failure() const;

  // Ends a profile that began here, if there is one. When it returns, the
  // recorder has the worker's measurements.
  absl::Status FinishProfile();
  // Asks for the use, as Session::AskCost() does. AwaitMeter() waits for the
  // answer.
  absl::StatusOr<std::shared_ptr<MeterWait>> AskMeter(uint32_t lane);
  absl::StatusOr<v1::MeteredUse> AwaitMeter(MeterWait* wait);
  void AddStatistics(Statistics* sum) const;
  void OnLeaseEnded(const std::string& lease_id, const std::string& reason);
  // Returns false if the request is about another device's lease.
  bool OnMigrationRequested(const v1::MigrationRequest& request);

  // The session closes a device with the following steps. BeginClose() stops
  // intake and seals everything.
  void BeginClose();
  // Waits until everything is executed. Returns false if the deadline passed
  // first and the device has not failed.
  bool Flush(const Deadline& deadline);
  // Cancel() gives up unfinished work and tells the worker; AwaitCancelled()
  // waits for its answer.
  void Cancel();
  void AwaitCancelled(const Deadline& deadline);
  // Describes the work that an unfinished device loses; empty if there is none.
  std::string DescribeLoss();
  // Returns the device's failure if that lost work.
  absl::Status Failure() const;
  // Ends the stream. Every wait wakes and the sender thread stops.
  void Stop();
  // Waits for the end of the sender thread, once lease requests are cancelled,
  // and until the deadline for the end of the stream.
  void Join(const Deadline& deadline);
  // Destroys the stream. OnLeaseEnded() must not be called any more.
  void Disconnect();

 private:
  absl::Status AwaitWindow() override ABSL_LOCKS_EXCLUDED(mu_);
  // Queues work for the current worker. Waits until there is one and no
  // migration is under way. `queue` makes the recorder queue the work, and may
  // be called repeatedly. `fill` is called when the work is queued.
  absl::Status QueueHere(
      absl::FunctionRef<absl::Status(CallRecorder::Admit)> queue,
      absl::FunctionRef<void()> fill) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for what a message of the worker changes under mu_
  // (AnswerReceiver::WaitOrReceive), or for the device's failure.
  void WaitOrReceive(CondVar* changed, absl::FunctionRef<bool()> done,
                     const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes the threads that wait under mu_.
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Notify(const ReadTable::Callbacks& callbacks);

  // Copies.
  absl::Status AwaitWelcome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until it is decided which worker gets the work that is recorded now.
  absl::Status AwaitMigration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;

  // Sending. The sender calls these methods, unless a comment says otherwise.
  enum class Next {
    kNothing,
    kOpen,    // a stream, or the lease first
    kSupply,  // a graph the worker asked for
    kCancel,
    kProof,
    kMessage,  // the log's next one
    kAcknowledge,
    kWork,
    kMigrate,
    kDrop,
    kStop,
  };
  void SenderLoop();
  // Lets a thread that waits for the outcome anyway be the sender if no other
  // thread is, which saves two thread switches. Wakes the device's own thread
  // for the rest.
  void SendNow() override;
  void Wake() override { wakeup_.Set(); }
  // Does everything that is due. Only the device's own thread opens streams and
  // works without a limit on steps. Returns false when the device stops.
  bool Advance(bool own_thread);
  // The sender's next step, and the work that it handles.
  struct Step {
    Next next = Next::kNothing;
    std::optional<Work> work;
  };
  Step TakeStep();
  // Sends frees and ends a flush when nothing else is due. Returns true if
  // there is more to send now.
  bool FinishRound(bool free_now);
  // Returns whether no queued work needs a lease, or no work is queued.
  bool NothingDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether queued work should be encoded first, so that its messages
  // leave together with those that wait.
  bool Gathers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  void SendMessages();
  void SendAcknowledgement();
  void SendSupply();
  void SendProof();
  void SendCancel();
  using Message = std::shared_ptr<const v1::ControlRequest>;
  void Send(Message message);
  void SendAll(ClientStream* stream, absl::Span<const Message> messages);
  // Gives up a worker that makes no progress. Returns when to check again.
  Deadline CheckProgress();
  void DropEverything();

  // Encodes the work and appends its messages.
  void Process(Work work);
  // Appends the encoder's messages to the log.
  void Append(EncodedMessages messages);
  // Gives the message its number and registers the thread that waits for its
  // answer.
  void Register(EncodedMessage* message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  void EncodeForgottenModels(EncodedMessages* messages);

  // Profiles.
  absl::Duration Now() const;
  // Begins the profile on the worker. Called by the sender.
  void ProfileSender(EncodedMessages* messages);

  // Connection. The device's own thread calls these methods.
  void Open();
  absl::Status RequestLease();
  // Opens streams until the worker answers on one, or gives it up after
  // `timeout`.
  void Reach(absl::Duration timeout);
  absl::Status TryOpen(absl::Duration timeout);
  // Returns false when the stream cannot be destroyed.
  bool DropStream(
      const absl::Status& why = absl::CancelledError("another takes over"));
  // Returns whether further work must wait, because the sender took all work
  // that was queued before the migration was requested.
  bool HoldsWorkBack() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether the migration's next step is due, because nothing is on its
  // way.
  bool MigrationDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  void Migrate();
  // Leaves the worker. An error means that the device must stay.
  absl::Status Leave() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ApplyLeft(v1::Left* left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Opens the session on the other worker and waits until that has the whole
  // state.
  absl::Status EnterOther(std::unique_ptr<SessionEntry>* entry);
  // Continues on the other worker. An error means that the device has failed.
  absl::Status GoOver(const SessionEntry::Entered& entered);
  void Stay();
  void EndMigration(absl::Status status, const v1::Entered& entered);

  // Replies.
  void OnMessage(v1::ControlResponse response) override;
  void OnClosed(absl::Status status) override;
  absl::Status Complete(uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  // Take() and Apply() return OK or a breach of the protocol.
  // `arrived` is the message's arrival time, if the message has measurements.
  absl::Status Take(v1::ControlResponse* response, absl::Duration arrived)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  absl::Status Apply(v1::ControlResponse* response, absl::Duration arrived)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  absl::Status ApplyHello(const v1::ControlResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  // Starts to encode for the worker that was reached. Called by the sender.
  void BeginEncoding(uint64_t next_sequence);
  absl::Status ResumeFrom(const v1::WorkerHello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_, answers_.mu);
  absl::Status WorkerLost(const absl::Status& cause) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return LossOf(lease_, welcomed_, cause);
  }
  // Fails the device. The first failure counts, and every wait wakes with it.
  void Fail(absl::Status failure, bool by_itself = true);
  // Does the same within a callback of the stream. The thread that destroys the
  // stream waits for the callback to return. If the callback counted as a user
  // of the stream, that thread would leak the stream and continue without its
  // device.
  void FailInCallback(absl::Status failure, bool by_itself = true);

  const ReplicaRole role_;
  const int index_;
  const std::shared_ptr<SessionContext> context_;
  DeadList dead_;
  Wakeup wakeup_;  // wakes the sender
  // many released storages wait, or forgotten models
  std::atomic<bool> free_due_{false};
  // Counts completed messages and moved chunks.
  std::atomic<uint64_t> progress_{0};
  WorkQueue queue_;
  CallRecorder recorder_;
  WorkEncoder encoder_;  // used by the sender only
  // Has the stream. Whether it is connected changes under mu_.
  AnswerReceiver receiver_;
  Answers answers_;
  ValueReader reader_;
  Uploader uploader_;

  mutable Mutex mu_;
  bool sending_ ABSL_GUARDED_BY(mu_) = false;  // a thread is the sender
  CondVar sending_changed_;
  MessageLog log_ ABSL_GUARDED_BY(mu_);
  ReplyLog replies_ ABSL_GUARDED_BY(mu_);
  // Graphs that the worker asked for on this stream.
  std::deque<uint64_t> needed_ ABSL_GUARDED_BY(mu_);
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
  WorkerDescription facts_ ABSL_GUARDED_BY(mu_);
  PeerLinks links_ ABSL_GUARDED_BY(mu_);
  // The worker has answered a hello at least once.
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  // The device gave up its attempts to reach the worker.
  bool unreached_ ABSL_GUARDED_BY(mu_) = false;
  bool lease_given_back_ ABSL_GUARDED_BY(mu_) = false;
  StreamState link_ ABSL_GUARDED_BY(mu_);
  CondVar connection_changed_;

  // Null while no migration is requested.
  std::unique_ptr<Migration> migration_ ABSL_GUARDED_BY(mu_);
  // The device ends the stream of the worker that it left and ignores its last
  // messages.
  bool going_over_ ABSL_GUARDED_BY(mu_) = false;
  // The device entered the other worker, and no stream there has resumed yet.
  bool gone_over_ ABSL_GUARDED_BY(mu_) = false;

  // Registered models whose end must be sent to the worker.
  std::vector<uint64_t> forgotten_models_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> forgets_models_{false};  // some are to be sent

  // The sender's own fields.
  std::vector<uint64_t> admitted_now_;  // graphs
  // end of its patience while there is no room
  std::optional<Deadline> stalled_;
  uint64_t stalled_progress_ = 0;

  std::unique_ptr<ThreadFactory::Thread> sender_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_
