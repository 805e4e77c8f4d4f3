// One virtual device of an open session: the lanes that record calls for it,
// their segments, the order in which everything is sent to the one worker that
// backs it, and the waits for what comes back.
//
// Recording threads append calls to their lane's open segment under one short
// critical section (stamping versions and sealing whatever conflicts); a sender
// thread turns sealed segments into messages, in the order they were sealed,
// and numbers them. The lease on a worker is asked for when the first message
// is due. See docs/architecture.md for the rules.
//
// Thread-safe. Any method may return the device's failure: once the worker or
// the lease is lost every call fails with the same root error, and every
// waiting thread wakes. No method is called, and no callback made, with the
// lock held.
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

// Real metadata of a result whose shape the client could not know.
struct ResultMetadata {
  srg::TensorView view;  // slot not set
  uint64_t storage_bytes = 0;
};

// Where a virtual device runs.
struct DevicePlacement {
  std::string worker_id;
  std::string reason;
  // What the worker lets the session hold.
  uint64_t memory_bytes = 0;
  // As ClientStream::transport().
  std::string transport;
  // Of a generator's state there; 0: as many as on a CPU.
  uint64_t generator_bytes = 0;
};

// A value on its way. To drop it is to give it up: its destination is the
// caller's again then. Thread-safe.
class PendingRead {
 public:
  virtual ~PendingRead() = default;

  // Whether Wait() returns at once: the value or an error is here.
  virtual bool Ready() const = 0;

  // Waits until the value is in its destination. The root error if it is
  // poisoned. DeadlineExceeded (VALUE_PENDING) when it is not here after
  // `timeout`: it may be waited for again.
  virtual absl::Status Wait(absl::Duration timeout) = 0;

  // Calls `callback` once when it is ready: at once if it is, otherwise on a
  // thread that other replies wait for. It must return soon, and use no device.
  virtual void OnReady(std::function<void()> callback) = 0;
};

// All bytes of a small storage.
using HostBytes = std::shared_ptr<const std::string>;

// What a small storage held at one version, which this process can tell, too:
// see host_values.h. Thread-safe.
class HostValue {
 public:
  virtual ~HostValue() = default;
  // All of its bytes, computed now, perhaps; null where that fails. Called
  // without locks.
  virtual HostBytes Bytes() const = 0;
};
using HostValuePtr = std::shared_ptr<const HostValue>;

struct StorageAt {
  const RemoteStorage* storage = nullptr;
  uint64_t version = 0;
};

class VirtualDevice : public std::enable_shared_from_this<VirtualDevice> {
 public:
  // Of a storage whose value may be kept here.
  static constexpr uint64_t kMaxHostValueBytes = 16384;

  virtual ~VirtualDevice() = default;

  virtual int index() const = 0;

  // A storage that does not exist on the worker until something names it; then
  // it is zero-filled, unless it is born as a result or by an upload. Sends
  // nothing and never fails: a lost device says so at the first use.
  virtual StoragePtr NewStorage(uint64_t size_bytes) = 0;

  // The program dropped its last handle. Callable from any thread, also at exit
  // and in deleters: takes no lock that a recording thread holds while calling
  // out, and never blocks.
  virtual void MarkDead(RemoteStorage* storage) = 0;

  // Appends the call to the lane's open segment. Blocks, before it has any
  // effect, while the window of unfinished work is full; DeadlineExceeded
  // (WINDOW_FULL) after the operation time-out. Moves the call's touches.
  virtual absl::Status Record(uint32_t lane, Call* call) = 0;

  // Records a call with unknown results, sends it and waits: the metadata of
  // each unknown result in order, or the call's own error. Result storages take
  // the sizes the worker reports.
  virtual absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call) = 0;

  // Replaces the storage's whole contents. `source.bytes` must be exactly its
  // size. Small sources and eager ones (eager_uploads.h) are copied; for others
  // the call returns when the worker holds the bytes already or every reference
  // to them is dropped, so the caller may change them afterwards.
  // ResourceExhausted when the worker has no room; a copied source makes that
  // an error of the storage instead.
  virtual absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                              SharedBytes source) = 0;

  // Replaces the storage's whole contents by what `source` holds now; it has
  // the same size, more than 0, and is another device's of this session. The
  // bytes go from worker to worker. Waits for the source's worker if there is
  // none yet, and for nothing else. What fails later poisons `storage`.
  virtual absl::Status CopyFrom(uint32_t lane, RemoteStorage* storage,
                                RemoteStorage* source) = 0;

  // Seeds a generator's storage (of any size; it holds no bytes here).
  virtual absl::Status Seed(uint32_t lane, RemoteStorage* generator,
                            uint64_t seed) = 0;

  // Changes the storage's size, keeping the prefix, zero-filling the rest.
  virtual absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                              uint64_t size_bytes) = 0;

  // Waits for the view's elements and writes them to `destination`, contiguous
  // in the view's order; `bytes` is their size. The root error if the value is
  // poisoned.
  virtual absl::Status Read(uint32_t lane, RemoteStorage* storage,
                            const srg::TensorView& view, void* destination,
                            uint64_t bytes) = 0;

  // Likewise, without waiting: the value is what the storage holds now,
  // whatever is written to it afterwards.
  virtual absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) = 0;

  // How often the storage was written to, as far as that was recorded. What
  // writes to one that was never written to, and is neither an upload nor the
  // call that makes it, fills it with zeros first, which counts.
  virtual uint64_t VersionOf(const RemoteStorage& storage) = 0;
  // What it holds; null where KeepHostValue() was not told lately. A device
  // that spans workers knows nothing.
  virtual HostValuePtr FindHostValue(const StorageAt& storage) = 0;
  // Says what the caller's call or upload wrote: `value` is all that the
  // storage holds at that version, and follows from what the operands hold at
  // theirs. A read of one element is answered from there if it is `readable`.
  // Without effect where one of them has another version by now, since another
  // thread wrote to it.
  virtual void KeepHostValue(const StorageAt& written,
                             absl::Span<const StorageAt> operands,
                             HostValuePtr value, bool readable) = 0;

  // Keeps what the lane records from here on, too. FailedPrecondition
  // (ALREADY_RECORDING) if that is so already.
  virtual absl::Status StartRecording(uint32_t lane) = 0;
  // Ends it. `given`: the storages, each once, in whose place others will
  // stand; `outputs`: those made since StartRecording() that it is about, each
  // once, of which the first `awaited` may be waited for. As
  // Recorder::Finish(). FailedPrecondition (NOT_RECORDING).
  virtual absl::StatusOr<std::shared_ptr<const Recording>> FinishRecording(
      uint32_t lane, absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited) = 0;
  // What was done meanwhile that cannot be executed again, as
  // FinishRecording() is going to say it. OK if there is no recording.
  virtual absl::Status RecordingRefusal(uint32_t lane) = 0;
  // Ends it without a result, if there is one.
  virtual void DropRecording(uint32_t lane) = 0;
  // Carries out the recording's calls as if the lane made them now. `given` are
  // as many storages as before, each once and none that the recording keeps,
  // of at least the sizes that the calls' views need. Returns the new outputs.
  // FailedPrecondition (STALE_RECORDING) when it is another device's, or the
  // program has dropped a storage that it keeps. Blocks as Record() does.
  virtual absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      absl::Span<RemoteStorage* const> given) = 0;

  // Makes known to the worker what a registered callable keeps using, under an
  // id that no other callable of the process has, or makes it known anew; those
  // of `storages` that are gone are left out. Waits for the answer:
  // ResourceExhausted (MODEL_BYTES, MAX_MODELS) when the tenant's budget has no
  // room for it, and it stays what it was. OK for a device that spans workers,
  // where models are not counted.
  virtual absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                                     absl::string_view name,
                                     std::vector<StoragePtr> storages) = 0;
  // It is gone. Callable as MarkDead() is; without effect when it was refused.
  virtual void ForgetModel(uint64_t model_id) = 0;

  // Seals every lane and waits until the worker has carried everything out.
  // The first root error not yet reported by any call, if there is one.
  virtual absl::Status Synchronize() = 0;

  // Asks for the lease if there is none yet.
  virtual absl::StatusOr<DevicePlacement> Placement() = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_VIRTUAL_DEVICE_H_
