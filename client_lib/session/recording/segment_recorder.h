// Maintains the lanes' open segments, stamps versions on storages, and seals
// segments so that the order of sealing is a topological order of the program.
//
// Two calls conflict if both name a storage and one of them changes it. A call
// that conflicts with a call in another lane's open segment first seals that
// segment. A segment is also sealed when it reaches its cap and when it repeats
// its own start. Neither time nor the length of the queue seals a segment, so
// equal stretches of calls make equal segments.
//
// After a read, a lane begins with a short segment, so that the worker starts
// while the program still issues calls. A program that reads in every iteration
// thus has equal segments in each. A segment also ends where another thread
// continues the lane, as an autograd thread can: the worker executes the
// forward pass while the program records the backward pass. Finally, a segment
// ends where the execution mode changes.
//
// Not thread-safe: the recorder's lock guards it and the fields of its
// storages. No method waits or calls other components.
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
  // Sets the id of the next storage that a call creates.
  void NumberStoragesFrom(uint64_t id) { next_storage_id_ = id; }
  // Reserves `count` consecutive ids for storages that no call creates. Returns
  // the first id.
  uint64_t TakeStorageIds(uint64_t count) {
    return std::exchange(next_storage_id_, next_storage_id_ + count);
  }

  // Limit on lanes with an open segment. Above it, the oldest segment is
  // sealed.
  static constexpr size_t kMaxOpenSegments = 256;
  // Cap of the first segment of a stretch. Later segments of the stretch have
  // the cap Segment::kMaxCalls.
  static constexpr size_t kFirstCalls = 32;
  // Bytes of call templates after which a segment is sealed.
  static constexpr size_t kMaxSegmentBytes = 1 << 20;
  // Operands and results after which a segment is sealed.
  static constexpr size_t kMaxSegmentTouches = 32768;
  // Limit on the bytes of one call's template.
  static constexpr size_t kMaxCallBytes = 16 << 20;

  // Rejects calls that would make the rest of the session undefined: a call
  // with storages of another device, a second creation of a storage, or a draw
  // from a generator that was never seeded. Rejects calls that no worker takes
  // (CALL_TOO_LARGE), because a worker refuses a graph as a whole.
  absl::Status Check(Call* call, const VirtualDevice* device) const;

  // Stamps the call's touches and appends the call to the lane's segment.
  // Appends segments that are sealed as a result to `sealed`. `thread`
  // identifies the issuing thread within the lane. Returns the segment whose
  // last call this is; it may be sealed already.
  const Segment* Record(uint32_t lane, Call* call, SealedSegments* sealed,
                        uint64_t thread = 0);

  void SealLane(uint32_t lane, SealedSegments* sealed);
  // Seals every open segment that names the storage, or, if `writers_only`,
  // every open segment that writes it.
  void SealUsers(RemoteStorage* storage, bool writers_only,
                 SealedSegments* sealed);
  // Seals the segments that write the storage, without ending the lane's
  // stretch of segments.
  void SealWriters(uint32_t lane, RemoteStorage* storage,
                   SealedSegments* sealed) {
    SealUsers(storage, /*writers_only=*/true, sealed);
    Continue(lane);
  }
  void SealAll(SealedSegments* sealed);
  bool HasOpenSegments() const { return !open_.empty(); }

  // Stamps a write by a message that is not a run (upload, seed, resize), and
  // returns the version before the write. The caller calls SealUsers() first.
  // Afterwards the storage exists and has the next version.
  uint64_t StampWrite(RemoteStorage* storage);

  // Takes back a sealed segment that was cleared.
  void Recycle(Segment* segment) { free_.push_back(segment); }

 private:
  Segment* OpenSegment(uint32_t lane, SealedSegments* sealed);
  void Seal(Segment* segment, SealedSegments* sealed);
  // Makes the lane's next segment continue the stretch of the one just sealed.
  void Continue(uint32_t lane);
  void MarkCreated(RemoteStorage* storage);
  // Notes that `own` names the storage, and seals conflicting segments.
  void Name(RemoteStorage* storage, Segment* own, bool writes,
            SealedSegments* sealed);

  uint64_t last_serial_ = 0;
  uint64_t next_storage_id_ = 1;
  absl::flat_hash_map<uint32_t, Segment*> open_;  // by lane
  // Lanes without an open segment that are in the middle of a stretch.
  absl::flat_hash_set<uint32_t> continued_;
  // Owns every segment that was ever made, because storages may point to any of
  // them. The window and kMaxOpenSegments bound their number.
  std::vector<std::unique_ptr<Segment>> all_;
  std::vector<Segment*> free_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_SEGMENT_RECORDER_H_
