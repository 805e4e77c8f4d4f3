// The state of a replica: all that a virtual device has on one worker. It
// consists of parts, and each field belongs to exactly one:
//
// - the recorder (call_recorder.h), which the program's threads use, and the
//   queue (work_queue.h) between them and the sender. Each has its own lock;
// - the sender. One thread at a time has its turn, and owns the fields that are
//   not thread-safe by themselves;
// - the connection. Its lock guards lease, streams, resume, migration, and the
//   end of the device;
// - the answers (answers.h), with the reads and uploads that threads wait for.
//   They have their own lock;
// - the receiver (answer_receiver.h), which has the stream, under its own lock.
//
// Lock order: the sender's turn, recorder, connection, answers, and then one of
// queue, receiver, forgotten models, Wakeup, SessionContext::mu or root errors.
// The dead list has no lock. No part calls the program or the link, or sends,
// under a lock; the recorder calls functions of replica.h under its own
// (call_recorder.h). These functions work on the state.
//
// Whatever the session has on the worker is a function of its ordered messages
// and of the contents' bytes. The connection's log keeps messages until the
// worker has executed them; its lineage keeps them as long as they matter.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_REPLICA_STATE_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_REPLICA_STATE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/answers/answer_receiver.h"
#include "client_lib/session/device/answers/answers.h"
#include "client_lib/session/device/answers/uploader.h"
#include "client_lib/session/device/answers/value_reader.h"
#include "client_lib/session/device/outgoing/call_recorder.h"
#include "client_lib/session/device/outgoing/replica_role.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/outgoing/work_encoder.h"
#include "client_lib/session/device/outgoing/work_queue.h"
#include "client_lib/session/device/replica/checkpoint.h"
#include "client_lib/session/device/replica/device_state.h"
#include "client_lib/session/device/replica/migration.h"
#include "client_lib/session/device/replica/recovery.h"
#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/model/thread_factory.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/stream/dead_list.h"
#include "client_lib/session/stream/message_log.h"
#include "client_lib/session/stream/reply_log.h"
#include "client_lib/session/transfer/kept_copy.h"
#include "client_lib/session/transfer/peer_links.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "djinn/v1/session.pb.h"

namespace djinn::replica {

// The connection to the worker. `mu` guards all fields but `moves`.
//
// One lock guards them because the loss of a worker, a message of the worker
// and a step of the sender each change several of them together. A thread that
// sees the new stream must also see the lease, the log, the lineage and the
// recovery that belong to it.
struct ConnectionState {
  mutable Mutex mu;
  DeviceEnd end ABSL_GUARDED_BY(mu);

  v1::Lease lease ABSL_GUARDED_BY(mu);
  bool lease_given_back ABSL_GUARDED_BY(mu) = false;
  // Leases that ended since the device requested one, and why, because the end
  // may arrive before the grant. Null unless the device looks for a worker.
  std::optional<absl::flat_hash_map<std::string, std::string>> ended_leases
      ABSL_GUARDED_BY(mu);
  DevicePlacement placement ABSL_GUARDED_BY(mu);
  v1::SessionLimits limits ABSL_GUARDED_BY(mu);
  WorkerDescription facts ABSL_GUARDED_BY(mu);
  PeerLinks links ABSL_GUARDED_BY(mu);
  // The worker has answered a hello at least once.
  bool welcomed ABSL_GUARDED_BY(mu) = false;
  // The device gave up its attempts to reach the worker.
  bool unreached ABSL_GUARDED_BY(mu) = false;
  StreamState stream ABSL_GUARDED_BY(mu);
  MigrationState migration ABSL_GUARDED_BY(mu);
  // Null if the device does not recover.
  std::unique_ptr<Lineage> lineage ABSL_GUARDED_BY(mu);
  RecoveryState recovery ABSL_GUARDED_BY(mu);
  CheckpointState checkpoint ABSL_GUARDED_BY(mu);

  MessageLog log ABSL_GUARDED_BY(mu);
  ReplyLog replies ABSL_GUARDED_BY(mu);
  // Graphs that the worker asked for on this stream.
  std::deque<uint64_t> needed ABSL_GUARDED_BY(mu);
  uint64_t works_done ABSL_GUARDED_BY(mu) = 0;

  CondVar window_changed;      // room for issuing threads
  CondVar progress_changed;    // works_done, log.empty(), end.drained,
                               // end.cancelled, end.failure, queue.held(),
                               // receiver.connected()
  CondVar connection_changed;  // everything else

  // Counts completed messages and moved chunks.
  std::atomic<uint64_t> moves{0};
};

// Decides which thread is the sender. Thread-safe: it has its own lock.
class SenderTurn {
 public:
  // Takes the turn unless another thread has it.
  bool TryTake() {
    MutexLock lock(&mu_);
    return !std::exchange(taken_, true);
  }
  // Waits for the turn. Only the device's own thread may call it. The wait
  // needs no deadline: the thread that has the turn does a few steps, which
  // wait for nothing but room in the stream or the stream's end.
  void Take() {
    MutexLock lock(&mu_);
    while (taken_) given_.Wait(&mu_);
    taken_ = true;
  }
  void Give() {
    MutexLock lock(&mu_);
    taken_ = false;
    given_.Signal();
  }

 private:
  Mutex mu_;
  bool taken_ ABSL_GUARDED_BY(mu_) = false;
  CondVar given_;
};

// Registered models whose end must be sent to the worker. Thread-safe: it has
// its own lock.
class ForgottenModels {
 public:
  void Add(uint64_t model_id) {
    MutexLock lock(&mu_);
    ids_.push_back(model_id);
    any_.store(true, std::memory_order_relaxed);
  }
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Removes and returns all of them.
  std::vector<uint64_t> TakeAll() {
    MutexLock lock(&mu_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(ids_, {});
  }

 private:
  Mutex mu_;
  std::vector<uint64_t> ids_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> any_{false};
};

// The sender. The thread that has the turn owns `encoder` and the fields after
// it; the others are thread-safe.
struct SenderState {
  SenderState(int index, std::shared_ptr<SessionContext> context,
              WorkQueue* queue, WorkEncoder::OnRepeat on_repeat,
              uint64_t first_transfer_id)
      : encoder(index, std::move(context), queue, &dead, std::move(on_repeat),
                first_transfer_id) {}

  Wakeup wakeup;  // wakes the device's own thread
  SenderTurn turn;
  // Many released storages wait, or forgotten models.
  std::atomic<bool> free_due{false};
  DeadList dead;
  ForgottenModels forgotten;

  WorkEncoder encoder;
  std::vector<uint64_t> admitted_now;  // graphs
  // The news of other devices that this one has followed (SourceLosses).
  uint64_t news = 0;
  // The end of the sender's patience while the worker makes no progress.
  std::optional<Deadline> stalled;
  uint64_t stalled_moves = 0;

  // The device's own thread. Set by the constructor of the device, and reset by
  // the thread that ends it.
  std::unique_ptr<ThreadFactory::Thread> thread;
};

// Joins the parts of a replica. The stream, the recorder, the reader and the
// uploader call back here.
struct State final : public CopySource,
                     private ClientStreamReceiver,
                     private WindowWaiter,
                     private SenderSignal {
  State(ReplicaRole role_of_replica,
        std::shared_ptr<SessionContext> context_of_session);
  ~State() override;

  const ReplicaRole role;
  const int index;
  const std::shared_ptr<SessionContext> context;
  WorkQueue queue;
  CallRecorder recorder;
  AnswerReceiver receiver;
  Answers answers;
  ConnectionState connection;
  SenderState sender;
  ValueReader reader;
  Uploader uploader;

  ClientStreamReceiver* stream_receiver() { return this; }

  void Release(RemoteStorage* storage) override;
  View Look(const RemoteStorage& storage) override;
  absl::StatusOr<std::optional<OfferedCopy>> OfferAgain(RemoteStorage* storage,
                                                        bool recovers) override;

 private:
  // These call the functions of replica.h.
  absl::Status AwaitWindow() override;
  void SendNow() override;
  void Wake() override { sender.wakeup.Set(); }
  void OnMessage(v1::ControlResponse response) override;
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;
  void OnClosed(absl::Status status) override;
};

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_REPLICA_STATE_H_
