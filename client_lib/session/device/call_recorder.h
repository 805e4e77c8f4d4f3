// Records what a program's threads do on one worker's member of a virtual
// device: appends calls to their lane's open segment, stamps versions, and
// queues sealed segments for the sender. The lock is held for a moment. Nothing
// is called with it held but the queue and the callbacks that a method names.
//
// Every method that returns a status blocks, before it has any effect, while
// the worker's window is full, and returns why nothing is taken any more once
// Close() was called.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_DEVICE_CALL_RECORDER_H_
#define CLIENT_LIB_SESSION_DEVICE_CALL_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/host_values.h"
#include "client_lib/session/device/work_queue.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/read_predictor.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/segment_recorder.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/mutex.h"
#include "djinn/statistics.h"

namespace djinn {

// Waits for the worker's window, without locks.
class WindowWaiter {
 public:
  virtual ~WindowWaiter() = default;
  // OK once there is room or the recorder was closed; DeadlineExceeded
  // (WINDOW_FULL).
  virtual absl::Status AwaitWindow() = 0;
};

class CallRecorder {
 public:
  // Says what is due after a method that recorded something.
  enum class Due {
    kNothing,
    kWake,  // the sender has work
    kSend,  // the caller waits for the outcome, or soon will
  };
  // `owner` is the device of all storages; it lives as long as calls are made.
  CallRecorder(VirtualDevice* owner, WorkQueue* queue, WindowWaiter* window,
               uint64_t first_storage_id);

  absl::StatusOr<Due> Record(uint32_t lane, Call* call);
  // Seals the call, whose metadata `wait` gets.
  absl::Status RecordAndWait(uint32_t lane, Call* call,
                             std::shared_ptr<MetadataWait> wait);
  // Queues an action that replaces the storage's contents; sets its
  // base_version.
  template <typename Action>
  absl::Status Write(uint32_t lane, RemoteStorage* storage, Action action,
                     bool needs_lease) {
    return WriteWith(lane, storage, &action.base_version, needs_lease,
                     [&] { return Work::Action(std::move(action)); });
  }
  // A storage that is not born comes into being with its new size.
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes);
  // An upload; `quiet`: set if it can wait for what uses it.
  absl::Status Install(uint32_t lane, RemoteStorage* storage,
                       InstallWork install, bool* quiet);
  // Asks for the view's elements. Replaces `wait` by that of a prefetched read,
  // if there is one. `prepare` is called with the wait before it is queued.
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view,
                    std::shared_ptr<ReadWait>* wait,
                    absl::FunctionRef<void(ReadWait*)> prepare);
  // Asks for a value for the device's own sake; the program is cut as before.
  absl::Status ReadQuietly(uint32_t lane, RemoteStorage* storage,
                           const srg::TensorView& view,
                           const std::shared_ptr<ReadWait>& wait);
  // Answers a read of one element from what this process can tell. Null where
  // it cannot.
  HostValuePtr FindReadable(const RemoteStorage& storage);
  // Such a read took place.
  absl::Status NoteAnswered(uint32_t lane);

  // Decides whether work is queued: calls `push` once, while what the work
  // depends on cannot change, or not at all.
  using Admit = absl::FunctionRef<void(absl::FunctionRef<void()> push)>;
  // Queues the work behind what writes the storages.
  absl::Status QueueBehind(absl::Span<const StoragePtr> storages, Work work,
                           Admit admit);
  // Queues the work behind all that was recorded.
  absl::Status QueueBehindAll(Work work, Admit admit);
  // Queues an offer of what the storage holds.
  absl::Status Offer(uint32_t lane, RemoteStorage* storage, OfferWork offer,
                     Admit admit);

  // Executes a captured graph as if the lane made its calls now. `outputs` gets
  // its outputs.
  absl::Status Replay(uint32_t lane,
                      const std::shared_ptr<const Recording>& recording,
                      absl::Span<RemoteStorage* const> given,
                      std::vector<StoragePtr>* outputs);
  // A graph of one run: this graph, at this size, in the place of its own.
  struct Share {
    std::shared_ptr<const Recording> recording;
    std::shared_ptr<const SizedGraph> graph;
    int64_t size = 0;
    // Calls of the program that count as made here.
    size_t calls = 0;
  };
  // The storages of a share, the fresh ones of its outputs included.
  struct ShareBinding {
    absl::Span<RemoteStorage* const> given;
    absl::Span<RemoteStorage* const> kept;
    absl::Span<const StoragePtr> outputs;
  };
  absl::Status ReplayShare(uint32_t lane, const Share& share,
                           const ShareBinding& binding);

  // Seals the lane's segment. False if nothing was sealed.
  bool Seal(uint32_t lane);
  // Seals every segment, also after Close().
  void SealAll();
  bool HasOpenSegments() const;
  // Nothing is taken any more, for this reason. The first one counts, but a
  // failure takes the place of an ordinary end.
  void Close(absl::Status reason);
  void Fail(absl::Status reason);
  // OK while calls are taken.
  absl::Status closed() const;
  // Clears what was not queued. After Close().
  void DropOpenSegments();

  bool IsBorn(const RemoteStorage& storage) const;
  uint64_t VersionOf(const RemoteStorage& storage) const;
  // As in VirtualDevice.
  HostValuePtr FindHostValue(const StorageAt& storage);
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable);
  // Values that were computed here may derive from a failure at the worker.
  void ForgetHostValues();

  void AddStatistics(Statistics* sum) const;

 private:
  // Whether a call is taken now.
  absl::Status Enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EnterSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteWith(uint32_t lane, RemoteStorage* storage,
                         uint64_t* base_version, bool needs_lease,
                         absl::FunctionRef<Work::Action()> action);
  // `metadata` waits for the last of them.
  void QueueSegments(const SealedSegments& sealed,
                     std::shared_ptr<MetadataWait> metadata = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool SealLane(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SealUsers(RemoteStorage* storage, bool writers_only)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the worker create the storage if it is not born.
  void QueueBirth(uint32_t lane, RemoteStorage* storage, bool needs_lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueRead(uint32_t lane, RemoteStorage* storage,
                 const srg::TensorView& view,
                 const std::shared_ptr<ReadWait>& wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks in advance for the value, if the storage can hold it.
  void Prefetch(uint32_t lane, RemoteStorage* storage,
                const ReadPredictor::Prediction& prediction)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static StorageVersion VersionAt(const RemoteStorage& storage) {
    return {storage.id(), storage.version_, storage.size_bytes()};
  }
  absl::Status CheckReplay(const Recording& recording,
                           absl::Span<RemoteStorage* const> given) const;
  // Stamps a part, and that it may be executed `fast`; `made` has a version for
  // each storage that was made so far.
  ReplayWork StampReplay(const std::shared_ptr<const Recording>& recording,
                         size_t part, bool fast,
                         absl::Span<RemoteStorage* const> given,
                         absl::FunctionRef<RemoteStorage*(uint32_t)> kept,
                         uint64_t first_made,
                         absl::Span<const StoragePtr> outputs,
                         std::vector<uint64_t>* made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  VirtualDevice* const owner_;
  WorkQueue* const queue_;
  WindowWaiter* const window_;

  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  SegmentRecorder segments_ ABSL_GUARDED_BY(mu_);
  ReadPredictor predictor_ ABSL_GUARDED_BY(mu_);
  PrefetchedReads prefetched_ ABSL_GUARDED_BY(mu_);
  HostValues host_values_ ABSL_GUARDED_BY(mu_);
  // The calls and the reads.
  Statistics statistics_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_CALL_RECORDER_H_
