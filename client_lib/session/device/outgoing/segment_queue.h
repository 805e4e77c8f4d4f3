// Orders the work of one replica of a virtual device. It owns the lanes' open
// segments, stamps versions on storages, and queues for the sender: what
// conflicts with open segments is queued behind them.
//
// Not thread-safe: the recorder's lock guards it and the fields of its
// storages.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_SEGMENT_QUEUE_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_SEGMENT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/work_queue.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/segment_recorder.h"
#include "client_lib/session/transfer/work.h"

namespace djinn {

class SegmentQueue {
 public:
  SegmentQueue(WorkQueue* queue, uint64_t first_storage_id) : queue_(queue) {
    segments_.NumberStoragesFrom(first_storage_id);
  }

  SegmentRecorder& segments() { return segments_; }
  const SegmentRecorder& segments() const { return segments_; }

  // Queues the segments. `metadata` waits for the last of them.
  void Queue(const SealedSegments& sealed,
             std::shared_ptr<MetadataWait> metadata = nullptr);
  // Seals and queues the lane's segment. Returns false if there is none.
  bool SealLane(uint32_t lane);
  // Seals and queues the segments that name the storage, or only those that
  // write it. Returns false if there are none.
  bool SealUsers(RemoteStorage* storage, bool writers_only);
  void SealAll();
  // Makes the worker create the storage if it does not exist yet.
  void Create(uint32_t lane, RemoteStorage* storage, bool needs_lease);
  // Requests the view's elements. The caller seals the segments that write
  // them.
  void Read(uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
            const std::shared_ptr<ReadWait>& wait);
  // Stamps a part of a captured graph and its execution mode. `made` has a
  // version for each intermediate that was created so far.
  ReplayWork StampReplay(
      const std::shared_ptr<const CapturedGraph>& captured_graph, size_t part,
      RunMode mode, absl::Span<RemoteStorage* const> given,
      absl::FunctionRef<RemoteStorage*(uint32_t)> kept, uint64_t first_made,
      absl::Span<const StoragePtr> outputs, std::vector<uint64_t>* made);

  static StorageVersion VersionAt(const RemoteStorage& storage) {
    return {storage.id(), storage.version_, storage.size_bytes()};
  }

 private:
  WorkQueue* const queue_;
  SegmentRecorder segments_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_SEGMENT_QUEUE_H_
