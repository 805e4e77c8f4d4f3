// The bookkeeping of recording: the lanes' open segments, the versions stamped
// on storages, and the seal rule that keeps the order of sealing a topological
// order of the program.
//
// A call that conflicts with a call in another lane's open segment (one of the
// two changes a storage that both name) seals that segment first. A segment is
// also sealed when it reaches its cap and when it repeats its own start; never
// by time or by what is queued, so that repeats are cut alike.
//
// What a lane records after a read begins with a short segment: the worker
// starts while the program still issues, and a program that reads in every
// iteration is cut alike in every one. A segment also ends where another thread
// goes on in the lane, as an autograd thread can: the forward pass is carried
// out while the backward pass is recorded. And where the execution mode
// changes.
//
// Not thread-safe: the device's lock guards it and the fields of its storages.
// Nothing here waits or calls out.
#ifndef CLIENT_LIB_SESSION_RECORDING_SEGMENT_RECORDER_H_
#define CLIENT_LIB_SESSION_RECORDING_SEGMENT_RECORDER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/segment.h"

namespace djinn {

// Segments in the order in which they must be sent.
using SealedSegments = std::vector<Segment*>;

class SegmentRecorder {
 public:
  // The id of the next storage to be born.
  void NumberStoragesFrom(uint64_t id) { next_storage_id_ = id; }
  // The first of so many ids, for storages that are not born by calls.
  uint64_t TakeStorageIds(uint64_t count) {
    return std::exchange(next_storage_id_, next_storage_id_ + count);
  }

  // Lanes with an open segment; beyond that the oldest is sealed.
  static constexpr size_t kMaxOpenSegments = 256;
  // The calls of the segment that begins a stretch; the others of the stretch
  // have Segment::kMaxCalls.
  static constexpr size_t kFirstCalls = 32;
  // Bytes of call templates after which a segment is sealed.
  static constexpr size_t kMaxSegmentBytes = 1 << 20;

  // Refuses what would make the rest of the session undefined: storages of
  // another device, a second birth, a draw from a generator never seeded.
  absl::Status Check(Call* call, const VirtualDevice* device) const;

  // Stamps the call's touches and appends it to the lane's segment. Appends the
  // segments sealed on the way to `sealed`. `thread` tells the threads apart
  // that issue into one lane. Returns the segment whose last call it is, sealed
  // perhaps.
  const Segment* Record(uint32_t lane, Call* call, SealedSegments* sealed,
                        uint64_t thread = 0);

  void SealLane(uint32_t lane, SealedSegments* sealed);
  // Every open segment that names the storage, or only those that write it.
  void SealUsers(RemoteStorage* storage, bool writers_only,
                 SealedSegments* sealed);
  // Those that write the storage, in the middle of the lane's stretch.
  void SealWriters(uint32_t lane, RemoteStorage* storage,
                   SealedSegments* sealed) {
    SealUsers(storage, /*writers_only=*/true, sealed);
    Continue(lane);
  }
  void SealAll(SealedSegments* sealed);
  bool HasOpenSegments() const { return !open_.empty(); }

  // For a message of its own (upload, seed, resize), after SealUsers(): the
  // version before it; the storage is born and has the next version afterwards.
  uint64_t StampWrite(RemoteStorage* storage);

  // Takes back a sealed segment, cleared.
  void Recycle(Segment* segment) { free_.push_back(segment); }

 private:
  Segment* OpenSegment(uint32_t lane, SealedSegments* sealed);
  void Seal(Segment* segment, SealedSegments* sealed);
  // The lane's next segment belongs to the stretch of the one just sealed.
  void Continue(uint32_t lane);
  void GiveBirth(RemoteStorage* storage);
  // Notes that `own` names the storage; seals whoever is in conflict.
  void Name(RemoteStorage* storage, Segment* own, bool writes,
            SealedSegments* sealed);

  uint64_t last_serial_ = 0;
  uint64_t next_storage_id_ = 1;
  absl::flat_hash_map<uint32_t, Segment*> open_;  // by lane
  // Lanes without an open segment that are in the middle of a stretch.
  absl::flat_hash_set<uint32_t> continued_;
  // Every segment ever made, since storages may point to any. Bounded by the
  // window and by kMaxOpenSegments.
  std::vector<std::unique_ptr<Segment>> all_;
  std::vector<Segment*> free_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_SEGMENT_RECORDER_H_
