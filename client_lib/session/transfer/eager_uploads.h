// Decides which uploads are eager, that is, carry the content inside their
// message.
//
// Any other upload first asks by hash whether the worker has its content. The
// question takes a round trip, and its answer may also permit to send the
// bytes. An eager upload waits for nothing. Therefore its call cannot report a
// refusal: the storage is poisoned instead. An upload is eager when
// - it has at most 2 MiB (kMaxContentBytes), and the window for messages has
//   room for four of its size;
// - the worker has room for it (v1::ControlResponse.content_room) besides the
//   eager uploads under way;
// - nothing suggests that the worker has the content already: the device has
//   not uploaded it before, and UploadTable::finds_new_contents() is false.
// A wrong guess costs a question, or bytes that the worker already has.
//
// The same rules apply to tenants that share contents with one another. An
// eager content belongs to its own tenant alone, so it reveals nothing about
// others.
//
// Not thread-safe: the lock of the answers (device/answers/answers.h) guards
// it.
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
  // Least number of latest uploads that are remembered.
  static constexpr size_t kMaxRemembered = 8192;

  // Starts on a worker. If the device had another worker, keeps the remembered
  // uploads and those under way.
  void Begin(const v1::WorkerHello& hello);
  // Takes the room from a response. A later response may belong to the same
  // sequence. The responses that the worker repeats after its hello belong to
  // earlier sequences and are ignored.
  void Hear(const v1::ControlResponse& response);

  // Remembers that the device uploads the content. Returns whether the device
  // had uploaded it before.
  bool Remember(const ContentHash& hash);
  // Returns whether there is room for another eager upload of the size. If
  // there is, counts the upload as under way until Complete().
  bool Take(uint64_t size_bytes);
  // Counts an eager upload that was executed and is sent again as under way.
  void TakeAgain(uint64_t size_bytes) { under_way_bytes_ += size_bytes; }
  // Notes that an eager upload was executed, or is not eager after all.
  void Complete(uint64_t size_bytes) { under_way_bytes_ -= size_bytes; }

 private:
  uint64_t most_bytes_ = 0;
  uint64_t room_bytes_ = 0;
  // The sequence that room_bytes_ belongs to.
  uint64_t heard_at_ = 0;
  uint64_t under_way_bytes_ = 0;
  // Hashes of the latest uploads, and of those before.
  absl::flat_hash_set<ContentHash> latest_;
  absl::flat_hash_set<ContentHash> earlier_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_EAGER_UPLOADS_H_
