// Records what the program's threads do on one replica of a virtual device. It
// admits calls, and decides what is prefetched and which values this process
// keeps; SegmentQueue orders and stamps the work. Each method holds the lock
// only for a moment. Under the lock it calls nothing but the queue and the
// callbacks that the method names.
//
// Every method that returns a status blocks, before it has any effect, while
// the worker's window is full. After Close() it returns the reason why the
// recorder takes nothing more.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_CALL_RECORDER_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_CALL_RECORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/host_values.h"
#include "client_lib/session/device/outgoing/segment_queue.h"
#include "client_lib/session/device/outgoing/work_queue.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/read_predictor.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/mutex.h"
#include "djinn/statistics.h"

namespace djinn {

// Waits for room in the worker's window. Called without locks.
class WindowWaiter {
 public:
  virtual ~WindowWaiter() = default;
  // Returns OK once there is room or the recorder was closed, or
  // DeadlineExceeded (WINDOW_FULL).
  virtual absl::Status AwaitWindow() = 0;
};

class CallRecorder {
 public:
  // Tells the caller what to do after a method that recorded something.
  enum class Due {
    kNothing,
    kWake,  // the sender has work
    kSend,  // the caller waits for the outcome, or soon will
  };
  // `owner` is the device of all storages. It must live as long as calls are
  // made.
  CallRecorder(VirtualDevice* owner, WorkQueue* queue, WindowWaiter* window,
               uint64_t first_storage_id);

  absl::StatusOr<Due> Record(uint32_t lane, Call* call);
  // Records the call, ends its segment, and delivers its metadata to `wait`.
  absl::Status RecordAndWait(uint32_t lane, Call* call,
                             std::shared_ptr<MetadataWait> wait);
  // Queues an action that replaces the storage's contents, and sets the
  // action's base_version.
  template <typename Action>
  absl::Status Write(uint32_t lane, RemoteStorage* storage, Action action,
                     bool needs_lease) {
    return WriteWith(lane, storage, &action.base_version, needs_lease,
                     [&] { return Work::Action(std::move(action)); });
  }
  // Changes the storage's size. A storage that does not exist on the worker yet
  // is created with its new size.
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes);
  // Queues an upload. Sets `quiet` if the upload can wait until something uses
  // it.
  absl::Status Install(uint32_t lane, RemoteStorage* storage,
                       InstallWork install, bool* quiet);
  // Requests the view's elements. Replaces `wait` by that of a prefetched read,
  // if there is one. Calls `prepare` with the wait before it is queued.
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view,
                    std::shared_ptr<ReadWait>* wait,
                    absl::FunctionRef<void(ReadWait*)> prepare);
  // Requests a value for the device's own use. Does not affect where segments
  // are cut.
  absl::Status ReadQuietly(uint32_t lane, RemoteStorage* storage,
                           const srg::TensorView& view,
                           const std::shared_ptr<ReadWait>& wait);
  // Returns a value that this process knows and that may answer a read of one
  // element, or null.
  HostValuePtr FindReadable(const RemoteStorage& storage);
  // Notes that such a value answered a read.
  absl::Status NoteAnswered(uint32_t lane);

  // Decides whether work is queued. It calls `push` once, while what the work
  // depends on cannot change, or not at all.
  using Admit = absl::FunctionRef<void(absl::FunctionRef<void()> push)>;
  // Queues the work behind everything that writes the storages.
  absl::Status QueueBehind(absl::Span<const StoragePtr> storages, Work work,
                           Admit admit);
  // Queues the work behind everything that was recorded.
  absl::Status QueueBehindAll(Work work, Admit admit);
  // Queues an offer of the storage's value, and before it, unless `kept` is
  // null, a copy of the value to that new storage, which is then offered.
  // The callback completes the offer before it queues it.
  absl::Status Offer(uint32_t lane, RemoteStorage* storage, RemoteStorage* kept,
                     const CopyNeeded& needed, const OfferWork* offer,
                     Admit admit);
  // Queues an offer of a storage that Offer() made, ahead of all other work: a
  // device that waits for it may have to come first. Does not wait for room in
  // the window.
  absl::Status OfferAgain(RemoteStorage* kept, const OfferWork* offer,
                          Admit admit);

  // Executes a captured graph as if the lane made its calls now. Fills
  // `outputs`.
  absl::Status Replay(
      uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
      absl::Span<RemoteStorage* const> given,
      const std::shared_ptr<const CapturedNumbers>& numbers,
      std::vector<StoragePtr>* outputs);
  // A graph that replaces the single part of a captured graph, at this size.
  struct Share {
    std::shared_ptr<const CapturedGraph> captured_graph;
    std::shared_ptr<const SizedGraph> graph;
    int64_t size = 0;
    // Number of the program's calls that are counted here.
    size_t calls = 0;
  };
  // The storages of a share, including the new ones of its outputs.
  struct ShareBinding {
    absl::Span<RemoteStorage* const> given;
    absl::Span<RemoteStorage* const> kept;
    absl::Span<const StoragePtr> outputs;
  };
  absl::Status ReplayShare(uint32_t lane, const Share& share,
                           const ShareBinding& binding);

  // Seals the lane's segment. Returns false if there was nothing to seal.
  bool Seal(uint32_t lane);
  // Seals every segment, even after Close().
  void SealAll();
  bool HasOpenSegments() const;
  // Stops the recorder for this reason. The first reason counts, but a failure
  // replaces an ordinary end.
  void Close(absl::Status reason);
  void Fail(absl::Status reason);
  // Returns whether a call has returned the reason.
  bool refused() const { return refused_.load(std::memory_order_acquire); }
  // Clears the calls that were not queued. Allowed after Close().
  void DropOpenSegments();

  bool IsCreated(const RemoteStorage& storage) const;
  uint64_t VersionOf(const RemoteStorage& storage) const;
  // See VirtualDevice.
  HostValuePtr FindHostValue(const StorageAt& storage);
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable);
  // Drops values that were computed in this process, because their operands may
  // derive from a failure at the worker.
  void ForgetHostValues();

  void AddStatistics(Statistics* sum) const;

 private:
  // Returns OK if a call is taken now, otherwise the reason.
  absl::Status Enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EnterSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteWith(uint32_t lane, RemoteStorage* storage,
                         uint64_t* base_version, bool needs_lease,
                         absl::FunctionRef<Work::Action()> action);
  // Returns the offer of the storage's present version, about to be queued.
  static OfferWork CompleteOffer(RemoteStorage* storage, OfferWork offer);
  // Prefetches the value, if the storage is large enough for the view.
  void Prefetch(uint32_t lane, RemoteStorage* storage,
                const ReadPredictor::Prediction& prediction)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  VirtualDevice* const owner_;
  WorkQueue* const queue_;
  WindowWaiter* const window_;

  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> refused_{false};
  SegmentQueue work_ ABSL_GUARDED_BY(mu_);
  ReadPredictor predictor_ ABSL_GUARDED_BY(mu_);
  PrefetchedReads prefetched_ ABSL_GUARDED_BY(mu_);
  HostValues host_values_ ABSL_GUARDED_BY(mu_);
  // Counts calls and reads.
  Statistics statistics_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_CALL_RECORDER_H_
