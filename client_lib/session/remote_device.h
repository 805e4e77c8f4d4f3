// The virtual device of a session: see virtual_device.h for what it promises.
//
// Sources by flow: remote_device.cc (recording, life), _transfers.cc (uploads
// and reads), _sender.cc (the sender thread: lease, messages, frees),
// _replies.cc (what the worker says, and its loss).
//
// Threads: recording threads and callbacks share mu_; the sender thread encodes
// and sends without it. Nothing is called with mu_ held except the device's own
// parts, none of which calls out.
#ifndef CLIENT_LIB_SESSION_REMOTE_DEVICE_H_
#define CLIENT_LIB_SESSION_REMOTE_DEVICE_H_

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/dead_list.h"
#include "client_lib/session/run_encoder.h"
#include "client_lib/session/segment_recorder.h"
#include "client_lib/session/session_context.h"
#include "client_lib/session/structure_table.h"
#include "client_lib/session/virtual_device.h"
#include "client_lib/session/wait.h"
#include "client_lib/session/work.h"
#include "common/error.h"
#include "common/mutex.h"
#include "djinn/statistics.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

class RemoteDevice final : public VirtualDevice, private ClientStreamReceiver {
 public:
  // Sources up to here are copied before the worker's limits are known; a
  // worker that takes less inline is refused.
  static constexpr uint64_t kAlwaysInlineBytes = 4096;

  // Starts the sender thread.
  RemoteDevice(int index, std::shared_ptr<SessionContext> context);
  ~RemoteDevice() override;

  int index() const override { return index_; }
  StoragePtr NewStorage(uint64_t size_bytes) override;
  void MarkDead(RemoteStorage* storage) override;
  absl::Status Record(uint32_t lane, Call* call) override;
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call) override;
  absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                      SharedBytes source) override;
  absl::Status Seed(uint32_t lane, RemoteStorage* generator,
                    uint64_t seed) override;
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes) override;
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes) override;
  absl::Status Synchronize() override;
  absl::StatusOr<DevicePlacement> Placement() override;

  void AddStatistics(Statistics* sum) const;
  void OnLeaseEnded(const std::string& lease_id, const std::string& reason);

  // The session closes a device in these steps. BeginClose() stops intake and
  // seals everything.
  void BeginClose();
  // Waits until everything is carried out; DeadlineExceeded when it is not. The
  // device's failure if work was lost by it.
  absl::Status Flush(const Deadline& deadline);
  // Ends the stream; every wait wakes, the sender is on its way out.
  void Stop();
  // Waits for the sender's end, once lease requests are cancelled.
  void Join();
  // Destroys the stream. Nobody may report the end of a lease any more.
  void Disconnect();

 private:
  // An ordered message that the worker has not completed.
  struct Sent {
    uint64_t sequence;
    uint64_t bytes;
    bool ends_work;  // the last message of a piece of work
  };

  // Recording.
  absl::Status Enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EnterSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Unusable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool WindowFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Queue(Work work, bool needs_lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `metadata` waits for the last of them.
  void QueueSegments(const SealedSegments& sealed,
                     std::shared_ptr<MetadataWait> metadata = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until `done`, the device's failure or the operation time-out.
  template <typename Done>
  absl::Status Await(Waiter* waiter, Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Transfers.
  absl::Status QueueInstall(uint32_t lane, RemoteStorage* storage,
                            InstallWork install);
  absl::Status UploadLarge(uint32_t lane, RemoteStorage* storage,
                           SharedBytes source, const ContentHash& hash);
  // False when there was nothing to seal.
  bool SealEverything();
  absl::Status FinishUpload(UploadWait* wait, SharedBytes source);
  absl::Status SendTransfer(uint64_t transfer_id, SharedBytes source);
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;

  // Sender thread.
  enum class Next { kNothing, kConnect, kWork, kDrop, kStop };
  void SenderLoop();
  Next TakeNext(Work* work);
  // No queued work, or only such as asks for no lease.
  bool NothingDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Connect();
  absl::Status TryConnect();
  absl::Status WaitForHello();
  void Process(Work work);
  bool Encode(const Work& work, RunWork& run, v1::ControlRequest* request);
  bool Encode(const Work& work, InstallWork& install,
              v1::ControlRequest* request);
  bool Encode(const Work& work, SeedWork& seed, v1::ControlRequest* request);
  bool Encode(const Work& work, CreateWork& create,
              v1::ControlRequest* request);
  bool Encode(const Work& work, ReadWork& read, v1::ControlRequest* request);
  // False when the device failed or stops.
  bool SendOrdered(uint32_t lane, v1::ControlRequest request, bool ends_work);
  // Until the window has room, the device failed or stops. An error when the
  // worker stands still.
  absl::Status AwaitRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendFrees();
  void DropEverything();

  // Replies.
  void OnMessage(v1::ControlResponse response) override;
  void OnClosed(absl::Status status) override;
  absl::Status Complete(uint64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A breach of the protocol, or OK.
  absl::Status Apply(v1::ControlResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyMetadata(const v1::RunMetadata& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyAdmitted(const v1::Admitted& admitted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyRead(v1::ReadReply* reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ApplyTransfer(const v1::TransferDecision& decision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WorkerLost(const absl::Status& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first failure counts; every wait wakes with it.
  void Fail(absl::Status failure);

  const int index_;
  const std::shared_ptr<SessionContext> context_;
  DeadList dead_;
  Wakeup wakeup_;                      // of the sender
  std::atomic<bool> free_due_{false};  // many dead storages wait
  // What a message may carry, as far as known.
  std::atomic<uint64_t> inline_bytes_{kAlwaysInlineBytes};

  mutable Mutex mu_;
  SegmentRecorder recorder_ ABSL_GUARDED_BY(mu_);
  // Work in the order of the program; bounded by the window.
  std::deque<Work> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool processing_ ABSL_GUARDED_BY(mu_) = false;  // the sender holds one
  std::deque<Sent> sent_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t completed_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  // Counts messages completed and chunks moved.
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t works_queued_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t works_done_ ABSL_GUARDED_BY(mu_) = 0;
  int window_waiters_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar window_changed_;    // room for recording threads
  CondVar sent_changed_;      // room for the sender
  CondVar progress_changed_;  // works_done_, drained_

  // Whether calls are taken: no failure, not closing.
  bool usable_ ABSL_GUARDED_BY(mu_) = true;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool lost_work_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool drained_ ABSL_GUARDED_BY(mu_) = false;  // the sender has nothing left
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  bool lease_due_ ABSL_GUARDED_BY(mu_) = false;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;  // the stream ended
  CondVar connection_changed_;
  v1::SessionLimits limits_ ABSL_GUARDED_BY(mu_);
  v1::Lease lease_ ABSL_GUARDED_BY(mu_);
  DevicePlacement placement_ ABSL_GUARDED_BY(mu_);
  bool hello_received_ ABSL_GUARDED_BY(mu_) = false;
  v1::WorkerHello hello_ ABSL_GUARDED_BY(mu_);

  absl::flat_hash_set<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<MetadataWait>> metadata_
      ABSL_GUARDED_BY(mu_);  // by sequence
  // Fingerprints of the structures defined and not yet answered, by id; an id
  // may be defined anew meanwhile.
  absl::flat_hash_map<uint64_t, std::deque<std::string>> defining_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<ReadWait>> reads_
      ABSL_GUARDED_BY(mu_);  // by sequence
  absl::flat_hash_map<uint64_t, std::shared_ptr<ReadWait>> bulk_reads_
      ABSL_GUARDED_BY(mu_);  // by transfer id
  absl::flat_hash_map<uint64_t, std::shared_ptr<UploadWait>> uploads_
      ABSL_GUARDED_BY(mu_);  // by transfer id
  // Threads inside the stream's SendBulk().
  int streaming_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar streaming_changed_;
  // root_errors counts apart.
  Statistics statistics_ ABSL_GUARDED_BY(mu_);

  // The sender's own.
  uint64_t next_transfer_id_;
  v1::SessionLimits sender_limits_;
  std::unique_ptr<StructureTable> structures_;
  std::unique_ptr<RunEncoder> encoder_;
  std::vector<uint64_t> pending_free_;

  // Set once, by the sender; destroyed by Disconnect().
  std::unique_ptr<ClientStream> stream_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<std::thread> sender_;
};

template <typename Done>
absl::Status RemoteDevice::Await(Waiter* waiter, Done done) {
  const Deadline deadline(context_->options.operation_timeout);
  waiters_.insert(waiter);
  absl::Status status;
  while (!done()) {
    if (!failure_.ok()) {
      status = failure_;
      break;
    }
    if (deadline.passed()) {
      status = MakeError(
          absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
          absl::StrCat(
              "the worker did not answer within ",
              absl::FormatDuration(context_->options.operation_timeout)));
      break;
    }
    WaitUntil(&waiter->changed, &mu_, deadline);
  }
  waiters_.erase(waiter);
  return status;
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_REMOTE_DEVICE_H_
