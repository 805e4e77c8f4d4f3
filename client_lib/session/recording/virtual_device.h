// Defines one virtual device of an open session: the lanes that record calls
// for it, their segments, the order of messages to its worker, and the waits
// for replies.
//
// Issuing threads append calls to their lane's open segment in one short
// critical section, which stamps versions and seals conflicting segments. A
// sender thread turns sealed segments into numbered messages, in the order in
// which they were sealed. The device requests its lease when the first message
// is due. docs/design/architecture.md has the rules.
//
// Thread-safe. Any method may return the device's failure: once the worker or
// the lease is lost, every call fails with the same root error and every
// waiting thread wakes. Callers hold no lock of the device, and the device runs
// callbacks without its lock.
#ifndef CLIENT_LIB_SESSION_RECORDING_VIRTUAL_DEVICE_H_
#define CLIENT_LIB_SESSION_RECORDING_VIRTUAL_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/recording.h"
#include "common/srg/graph.h"
#include "common/transport/shared_bytes.h"

namespace djinn {

// Actual metadata of a result whose shape the client could not know.
struct ResultMetadata {
  srg::TensorView view;  // slot not set
  uint64_t storage_bytes = 0;
};

// Describes where a virtual device runs, and why.
struct DevicePlacement {
  std::string worker_id;
  std::string reason;
  // Bytes that the session may hold on the worker.
  uint64_t memory_bytes = 0;
  // The transport's name, as ClientStream::transport() returns it.
  std::string transport;
  // Bytes of a generator's state on the worker; 0 means as many as on a CPU.
  uint64_t generator_bytes = 0;
};

// A read in progress. Destroying it cancels the read and returns the
// destination to the caller. Thread-safe.
class PendingRead {
 public:
  virtual ~PendingRead() = default;

  // Returns whether Wait() would return at once, because the value or an error
  // has arrived.
  virtual bool Ready() const = 0;

  // Waits until the value is in its destination. Returns the root error if the
  // value is poisoned. Returns DeadlineExceeded (VALUE_PENDING) if the value
  // did not arrive within `timeout`; the caller may then call Wait() once more.
  virtual absl::Status Wait(absl::Duration timeout) = 0;

  // Calls `callback` once when the read is ready: at once if it is ready now,
  // otherwise on a thread that receives other replies, or on the one that
  // closes the session. The callback must return soon and use no device.
  virtual void OnReady(std::function<void()> callback) = 0;
};

// All bytes of a small storage.
using HostBytes = std::shared_ptr<const std::string>;

// The contents of a small storage at one version, which this process can
// compute: see host_values.h. Thread-safe.
class HostValue {
 public:
  virtual ~HostValue() = default;
  // Returns all bytes, or null on failure. It may compute them when it is
  // called. Called without locks.
  virtual HostBytes Bytes() const = 0;
};
using HostValuePtr = std::shared_ptr<const HostValue>;

struct StorageAt {
  const RemoteStorage* storage = nullptr;
  uint64_t version = 0;
};

// Captures graphs of one virtual device and executes them. Thread-safe.
class DeviceGraphs {
 public:
  virtual ~DeviceGraphs() = default;

  // Starts to capture the calls that the lane records; they are still sent.
  // Returns FailedPrecondition (ALREADY_RECORDING) if the lane is being
  // captured already.
  virtual absl::Status Start(uint32_t lane) = 0;
  // Ends the capture and returns the graph. `given` lists the inputs, each
  // once; at each execution, other storages replace them. `outputs` lists
  // storages created since Start(), each once; the program may await the first
  // `awaited` of them. Errors are those of Recorder::Finish(), and
  // FailedPrecondition (NOT_RECORDING).
  virtual absl::StatusOr<std::shared_ptr<const CapturedGraph>> Finish(
      uint32_t lane, absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited) = 0;
  // Returns the refusal that Finish() is going to report, if the lane did
  // something that cannot be executed a second time. Returns OK if it did not,
  // or if there is no capture.
  virtual absl::Status Refusal(uint32_t lane) = 0;
  // Ends the capture, if there is one, without a result.
  virtual void Drop(uint32_t lane) = 0;
  // Executes the captured graph's calls as if the lane made them now. `given`
  // has as many inputs as the capture had. Each appears once, is at least as
  // large as the calls' views need, and is not a storage that the graph
  // captured. Returns the new outputs. Returns FailedPrecondition
  // (STALE_RECORDING) if the graph belongs to another device or the program
  // dropped a storage that it captured. Blocks as VirtualDevice::Record() does.
  // `numbers` replace those of the capture, unless it is null.
  virtual absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
      absl::Span<RemoteStorage* const> given,
      std::shared_ptr<const CapturedNumbers> numbers) = 0;
};

class VirtualDevice : public std::enable_shared_from_this<VirtualDevice> {
 public:
  // Limit on the size of a storage whose value may be kept in the process.
  static constexpr uint64_t kMaxHostValueBytes = 16384;

  virtual ~VirtualDevice() = default;

  virtual int index() const = 0;

  // Returns a storage that does not exist on the worker until a message names
  // it. That message zero-fills the storage, unless it creates it as a result
  // or an upload. NewStorage() sends nothing and never fails: a lost device
  // reports its failure at the first use.
  virtual StoragePtr NewStorage(uint64_t size_bytes) = 0;

  // Notes that the program dropped its last handle. Any thread may call this,
  // even at exit and in deleters. It never blocks, and does not take a lock
  // that an issuing thread holds while it calls other components.
  virtual void MarkDead(RemoteStorage* storage) = 0;

  // Appends the call to the lane's open segment and moves the call's touches.
  // While the window of unfinished runs is full, blocks before it has any
  // effect. Returns DeadlineExceeded (WINDOW_FULL) after the operation timeout.
  virtual absl::Status Record(uint32_t lane, Call* call) = 0;

  // Records a call with unknown results, sends it and waits. Returns the
  // metadata of each unknown result in order, or the call's own error. The
  // result storages take the sizes that the worker reports.
  virtual absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call) = 0;

  // Replaces the storage's whole contents. `source.bytes` must be exactly its
  // size. Small sources and eager uploads (eager_uploads.h) are copied. For
  // other sources, Upload() returns when the worker already had the bytes, or
  // when no reference to them is left, so that the caller may change them
  // afterwards. Returns ResourceExhausted if the worker has no room; if the
  // source was copied, this error poisons the storage instead.
  virtual absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                              SharedBytes source) = 0;

  // Replaces the storage's whole contents by the current contents of `source`,
  // a storage of another device of this session. Both have the same size, which
  // is not 0. The bytes move from worker to worker. Waits only if the source's
  // device has no worker yet. A later failure poisons `storage`.
  virtual absl::Status CopyFrom(uint32_t lane, RemoteStorage* storage,
                                RemoteStorage* source) = 0;

  // Seeds a generator's storage, which may have any size and holds no bytes in
  // the client.
  virtual absl::Status Seed(uint32_t lane, RemoteStorage* generator,
                            uint64_t seed) = 0;

  // Changes the storage's size. Keeps the prefix and zero-fills the rest.
  virtual absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                              uint64_t size_bytes) = 0;

  // Waits for the view's elements and writes them to `destination`, contiguous
  // in the view's order. `bytes` is the size of all elements. Returns the root
  // error if the value is poisoned.
  virtual absl::Status Read(uint32_t lane, RemoteStorage* storage,
                            const srg::TensorView& view, void* destination,
                            uint64_t bytes) = 0;

  // Starts a read like Read(), without waiting. The value is what the storage
  // holds now, even if later calls write to it.
  virtual absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) = 0;

  // Returns the number of writes to the storage so far. Zero-filling counts as
  // a write if the first message that writes the storage neither uploads nor
  // creates it.
  virtual uint64_t VersionOf(const RemoteStorage& storage) = 0;
  // Returns the value that KeepHostValue() stored for this storage and version,
  // if it is still kept, or null. A multi-worker device always returns null.
  virtual HostValuePtr FindHostValue(const StorageAt& storage) = 0;
  // Stores the value that the caller's call or upload wrote. `value` is the
  // storage's whole contents at the given version, and depends on the operands'
  // contents at their given versions. If `readable`, the value answers reads of
  // one element. Does nothing if one of these storages has another version by
  // now, because another thread wrote to it.
  virtual void KeepHostValue(const StorageAt& written,
                             absl::Span<const StorageAt> operands,
                             HostValuePtr value, bool readable) = 0;

  // Returns what captures the device's graphs. It lives as long as the device.
  virtual DeviceGraphs& graphs() = 0;

  // Registers the storages that a registered callable captures with the worker,
  // in place of earlier ones of the same model. `model_id` is unique among the
  // callables of the process. Skips storages that are released. Waits for the
  // answer. Returns ResourceExhausted (MODEL_BYTES, MAX_MODELS) if the tenant's
  // budget has no room; the earlier registration then stays. Returns OK for a
  // multi-worker device, which does not count resident models.
  virtual absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                                     absl::string_view name,
                                     std::vector<StoragePtr> storages) = 0;
  // Ends the registration of the model. May be called wherever MarkDead() may.
  // Does nothing if the registration was refused.
  virtual void ForgetModel(uint64_t model_id) = 0;

  // Seals every lane and waits until the worker has executed everything.
  // Returns a failure of the device, but none of a value.
  virtual absl::Status CatchUp() = 0;
  // Does the same, and returns the first root error that no call has reported
  // yet, if there is one.
  virtual absl::Status Synchronize() = 0;

  // Returns where the device runs. Requests the lease if there is none yet.
  virtual absl::StatusOr<DevicePlacement> Placement() = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_VIRTUAL_DEVICE_H_
