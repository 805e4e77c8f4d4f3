// Implements the virtual device that a program holds. It passes each call to
// the only worker (remote_device.h) while one worker suffices, and afterwards
// to the multi-worker device. It captures graphs (graph_router.h) independently
// of which worker takes their calls.
//
// Thread-safe. A call to the only worker holds a pass of the gate while it is
// captured, so that the device gets further workers only between calls.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_DEVICE_ROUTER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_DEVICE_ROUTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/multi_worker/graph_router.h"
#include "client_lib/session/multi_worker/multi_worker_device.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"
#include "djinn/statistics.h"

namespace djinn {

class DeviceRouter final : public VirtualDevice {
 public:
  // Returns a device with one worker. `incarnation` is as in ReplicaRole.
  static std::shared_ptr<DeviceRouter> Make(
      int index, uint64_t incarnation, std::shared_ptr<SessionContext> context);

  int index() const override { return workers_.index(); }
  StoragePtr NewStorage(uint64_t size_bytes) override;
  void MarkDead(RemoteStorage* storage) override;
  absl::Status Record(uint32_t lane, Call* call) override;
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call) override;
  absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                      SharedBytes source) override;
  absl::Status CopyFrom(uint32_t lane, RemoteStorage* storage,
                        RemoteStorage* source) override;
  absl::Status Seed(uint32_t lane, RemoteStorage* generator,
                    uint64_t seed) override;
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes) override;
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) override;
  uint64_t VersionOf(const RemoteStorage& storage) override;
  HostValuePtr FindHostValue(const StorageAt& storage) override;
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable) override;
  DeviceGraphs& graphs() override { return graphs_; }
  absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                             absl::string_view name,
                             std::vector<StoragePtr> storages) override;
  void ForgetModel(uint64_t model_id) override;
  absl::Status CatchUp() override;
  absl::Status Synchronize() override;
  absl::StatusOr<DevicePlacement> Placement() override;

  // Adds the counts that replicas do not have.
  void AddStatistics(Statistics* sum) const { several_.AddStatistics(sum); }
  // Takes the coordinator's answer to a question about stages or rows.
  void OnStages(const v1::StageAnswer& answer) { several_.OnStages(answer); }
  // Notes that the program asks for what the replicas have used.
  void OnMeter(uint32_t lane);
  uint64_t incarnation() const { return workers_.incarnation(); }
  // Returns whether the device has failed, and a call of the program has
  // returned the failure. Every further call returns it.
  bool FailureIsKnown() const;
  // Returns the replicas so far. None is added after BeginClose().
  std::vector<std::shared_ptr<RemoteDevice>> Members() const {
    return workers_.all();
  }
  void BeginClose() { workers_.BeginClose(); }

 private:
  DeviceRouter(int index, uint64_t incarnation,
               std::shared_ptr<SessionContext> context);

  RemoteDevice& first() const { return workers_.first(); }
  // Adds the call to the lane's captured graph, if the lane is being captured,
  // and records it on the only worker.
  absl::Status RecordOnFirst(uint32_t lane, Call* call);
  // Returns the error of a call that was not taken. If the call names a storage
  // of another device that has failed, this is the failure of that device,
  // which may have had the same index.
  absl::Status Explain(absl::Status error, const Call& call) const;
  // Returns how another worker fetches the storage's value.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage);

  const std::shared_ptr<SessionContext> context_;
  GraphCaptures captures_;
  WorkerSet workers_;
  MultiWorkerDevice several_;
  GraphRouter graphs_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_DEVICE_ROUTER_H_
