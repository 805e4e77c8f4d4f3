// Implements a replica of a virtual device: all that the device has on one
// worker, which is usually its only one (device_router.h). See virtual_device.h
// for the contracts of its methods.
//
// This class is the program's view of the replica. The parts of its state, and
// who owns each, are in replica_state.h; what the sender, the connection and
// the worker's messages do is in replica.h.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_
#define CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/call_recorder.h"
#include "client_lib/session/device/outgoing/replica_role.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/work.h"
#include "common/srg/graph.h"
#include "common/transport/shared_bytes.h"

namespace djinn {

class RemoteDevice final : public std::enable_shared_from_this<RemoteDevice> {
 public:
  // Starts the sender thread.
  RemoteDevice(ReplicaRole role, std::shared_ptr<SessionContext> context);
  ~RemoteDevice();

  // The state, for what the session does with its replicas (replica.h): it
  // closes them, and passes the coordinator's events on.
  replica::State& state() { return state_; }
  int index() const { return state_.index; }
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
    return state_.reader.Begin(lane, storage, view, destination, bytes);
  }
  absl::Status FinishRead(ReadWait* wait, void* destination) {
    return state_.reader.Finish(wait, destination);
  }
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes);
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) {
    return state_.reader.Start(shared_from_this(), lane, storage, view,
                               destination, bytes);
  }
  uint64_t VersionOf(const RemoteStorage& storage);
  HostValuePtr FindHostValue(const StorageAt& storage);
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable);
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
      absl::Span<RemoteStorage* const> given,
      std::shared_ptr<const CapturedNumbers> numbers);
  using GraphShare = CallRecorder::Share;
  using ShareBinding = CallRecorder::ShareBinding;
  // Executes a share of a captured graph. The caller has checked that the
  // storages fit.
  absl::Status ReplayShare(uint32_t lane, const GraphShare& share,
                           const ShareBinding& binding);
  absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                             absl::string_view name,
                             std::vector<StoragePtr> storages);
  void ForgetModel(uint64_t model_id);
  absl::StatusOr<DevicePlacement> Placement();

  // Offer() and Pull(), called on two replicas, copy a value from worker to
  // worker. Offer() keeps the storage's current value on this worker, also for
  // a later loss of the other one (client_lib/session/transfer/kept_copy.h),
  // and returns how another worker fetches it. It waits for this worker if the
  // device has none yet, and for nothing else. Pull() replaces the storage's
  // contents by the value.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage,
                                 OfferRank rank = {});
  absl::Status Pull(uint32_t lane, RemoteStorage* storage, PullWork pull);
  // Counts a call recorded here that rematerializes another worker's result.
  // The next run reports it to the worker.
  void CountRecomputed() { state_.sender.encoder.CountRecomputed(); }
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
    return state_.reader.CheckSound(lane, storage);
  }
  // Waits until the worker has executed all that was recorded, successfully or
  // not.
  absl::Status CatchUp();
  // Returns whether a recorded call or message created the storage.
  bool IsCreated(const RemoteStorage& storage) const {
    return state_.recorder.IsCreated(storage);
  }
  uint64_t memory_bytes() const { return state_.uploader.memory_bytes(); }
  // Declines migrations from now on, because the virtual device has several
  // workers. It still recovers from a lost worker.
  void StayAtWorker();
  // Fails this replica because another one, and with it the virtual device,
  // failed.
  void FailWith(const absl::Status& failure);
  // Returns the reason why no call is taken any more, or OK.
  absl::Status failure() const;

 private:
  replica::State state_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REMOTE_DEVICE_H_
