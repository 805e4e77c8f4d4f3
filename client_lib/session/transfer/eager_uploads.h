// Decides which uploads are eager: the content goes inside its message.
//
// Any other upload asks first whether the worker has its content, by the
// content's hash. The question takes a round trip, and the permission to send
// the bytes belongs to the same answer. An eager upload waits for nothing, and
// so its call cannot report a refusal: the storage is poisoned instead. An
// upload is therefore eager when
// - it has at most 2 MiB (kMaxContentBytes), and the window for messages has
//   room for four of its size;
// - the worker has room for it (v1::ControlResponse.content_room) besides the
//   eager uploads under way;
// - nothing suggests that the worker has the content already: the device has
//   not uploaded it before, and UploadTable::finds_new_contents() is false.
// A wrong guess costs a question, or bytes that the worker has already.
//
// Tenants that share contents with one another are no exception: an eager
// content belongs to its own tenant alone, so it reveals nothing about others.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_TRANSFER_EAGER_UPLOADS_H_
#define CLIENT_LIB_SESSION_TRANSFER_EAGER_UPLOADS_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "common/hash/hash.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class EagerUploads {
 public:
  // The number of uploads that are remembered at least, the latest ones.
  static constexpr size_t kMaxRemembered = 8192;

  // The session begins on a worker, or continues on another one. What was
  // uploaded before, and what is under way, comes along.
  void Begin(const v1::WorkerHello& hello);
  // Takes the worker's word about its room. A later word may belong to the same
  // sequence. Responses that the worker sends again after its hello belong to
  // earlier sequences, and are ignored.
  void Hear(const v1::ControlResponse& response);

  // Remembers that the device uploads the content. Returns whether it has done
  // so before.
  bool Remember(const ContentHash& hash);
  // Returns whether there is room for another eager upload of the size, and if
  // so counts it as under way until Complete().
  bool Take(uint64_t size_bytes);
  // An eager upload was executed, or did not become one after all.
  void Complete(uint64_t size_bytes) { under_way_bytes_ -= size_bytes; }

 private:
  uint64_t most_bytes_ = 0;
  uint64_t room_bytes_ = 0;
  // The sequence that room_bytes_ belongs to.
  uint64_t heard_at_ = 0;
  uint64_t under_way_bytes_ = 0;
  // The hashes of the latest uploads, and of those before.
  absl::flat_hash_set<ContentHash> latest_;
  absl::flat_hash_set<ContentHash> earlier_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_EAGER_UPLOADS_H_
