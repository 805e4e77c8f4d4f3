// Which uploads go to the worker inside their message, unasked.
//
// To ask whether an upload's content is there takes a round trip, and to wait
// until its bytes are another one. That is spared where the answer is as good
// as known: the worker has nothing like it. It says what its tenant has when
// the session begins there, and what this device has uploaded since is
// remembered, the latest kMaxRemembered of them at least. A wrong guess costs a
// question, or bytes that are there already.
//
// Nobody waits for such an upload, so nobody hears a refusal at the call: there
// has to be room for it, as far as the worker knows
// (v1::ControlResponse.content_room), besides what is under way.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_UNASKED_UPLOADS_H_
#define CLIENT_LIB_SESSION_UNASKED_UPLOADS_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class UnaskedUploads {
 public:
  static constexpr size_t kMaxRemembered = 8192;

  // On a worker where the session begins, or goes on: what was uploaded before
  // has come along then, and what is under way goes there.
  void Begin(const v1::WorkerHello& hello);
  // The worker's word. It may be news at the same sequence, as where an upload
  // that waits for its bytes has taken its room; what the worker says again
  // after its hello is older than that.
  void Hear(const v1::ControlResponse& response);
  // An upload was carried out that was under way, or did not get there.
  void Complete(uint64_t size_bytes) { under_way_bytes_ -= size_bytes; }
  uint64_t under_way_bytes() const { return under_way_bytes_; }

  // Whether an upload of the size and sample (common/hash.h) is to go unasked;
  // then it is under way. Is remembered in either case. `fits`: all that the
  // program has there, and still has made there, leaves room.
  bool Take(uint64_t size_bytes, uint64_t sample, bool fits);

 private:
  bool MayBeThere(uint64_t size_bytes, uint64_t sample) const;
  void Remember(uint64_t sample);

  // 0: the worker takes none.
  uint64_t most_bytes_ = 0;
  uint64_t room_bytes_ = 0;
  // As of this sequence.
  uint64_t heard_at_ = 0;
  uint64_t under_way_bytes_ = 0;
  // What the worker said.
  absl::flat_hash_set<uint64_t> held_samples_;
  absl::flat_hash_set<uint64_t> held_sizes_;
  // Samples of what was uploaded: the latest, and those before.
  absl::flat_hash_set<uint64_t> latest_;
  absl::flat_hash_set<uint64_t> earlier_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_UNASKED_UPLOADS_H_
