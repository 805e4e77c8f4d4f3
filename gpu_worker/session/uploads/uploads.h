// The uploads of one session, one after the other: finds an equal content that
// makes the bytes unnecessary, or receives the bytes. The session decides about
// order, quota and replies.
//
// A hash-first upload is in one of three states.
//
// Found: Find() has the tenant's own content from memory, and the upload is
// over.
//
// Searching: the disk reads the tenant's own content, or the client proves that
// it has another tenant's. Once the search is settled(), GoOn() has the
// outcome: the content, the next search, or nothing.
//
// Receiving: no content was found. Receive() made room, and the bytes arrive on
// Bulk until all are here, or too late. Once the upload is settled(), Finish()
// has the outcome.
//
// An eager upload is complete at once: Take().
//
// The hash that a client announces only serves to find its bytes here. The
// worker keeps received bytes under the hash that it computes from them, which
// differs if the program wrote to the bytes meanwhile.
//
// The second of two equal chunks is a violation, unless the stream was resumed
// meanwhile. Bytes of an upload that was given up are ignored.
//
// Find(), GoOn(), Receive(), Finish(), Take() and Forget() belong to the thread
// that executes the session; any thread may call everything else at any time.
// No callback runs with a lock held.
#ifndef GPU_WORKER_SESSION_UPLOADS_UPLOADS_H_
#define GPU_WORKER_SESSION_UPLOADS_UPLOADS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class ContentChallenge;
class ContentLoad;

class Uploads {
 public:
  struct Callbacks {
    // Called when the search or the upload under way may be settled().
    std::function<void()> settled;
    // Charges the session for the time that a proof took.
    std::function<void(absl::Duration)> charge;
  };
  // The result of looking for the bytes.
  struct Found {
    // True when the upload is searching. The session then sends `question` to
    // the client, if it is set.
    bool waits = false;
    std::optional<v1::TransferDecision> question;
    // The bytes, when the upload is not searching; null when the client has to
    // send them.
    std::shared_ptr<Buffer> held;
  };
  // Since when the upload waits for the client, or for the disk.
  struct Awaited {
    absl::Duration since;
    bool from_disk = false;
  };

  // `environment` and `traffic` must outlive this. An upload of at most
  // `inline_bytes` does not become a content.
  Uploads(const SessionEnvironment* environment, std::string tenant,
          uint64_t inline_bytes, Traffic* traffic, Callbacks callbacks);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // --- The thread that executes the session.

  // Begins an upload. When `fits` is false, the session's quota has no room for
  // the bytes, and Find() looks only in memory.
  Found Find(const v1::Transfer& transfer, bool fits);
  // Continues after a search that is settled().
  Found GoOn();
  // Makes room for the bytes, which may arrive from here on. Returns
  // RESOURCE_EXHAUSTED, or the device's error, and then the upload is over.
  absl::Status Receive();
  // Returns the bytes, DEADLINE_EXCEEDED (TRANSFER_TIMEOUT) when they did not
  // arrive, or the device's error.
  absl::StatusOr<std::shared_ptr<Buffer>> Finish();
  // Keeps the bytes of an eager upload as a content, or finds the one that the
  // tenant has. Returns RESOURCE_EXHAUSTED, or the device's error.
  absl::StatusOr<std::shared_ptr<Buffer>> Take(const std::string& bytes);
  // Returns whether an upload of the size becomes a content, if the cache has
  // room.
  bool Keeps(uint64_t bytes) const { return bytes > inline_bytes_; }
  // Gives up the upload that is under way, if any.
  void Forget();

  // --- Any thread.

  // Notes that another stream carries the session from now on; it may have
  // `resumed` the session. Sets in `hello` how much of an upload under way has
  // arrived, and restarts the upload's time-out.
  void OnStream(StreamWay way, bool resumed, v1::WorkerHello* hello);
  // These return InvalidArgument (PROTOCOL_VIOLATION) for bytes or proofs that
  // the worker did not request.
  absl::Status ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                           absl::Span<const absl::string_view> pieces);
  absl::Status ReceiveProof(v1::TransferProof proof);
  // Gives up a search or an upload that has taken too long. Bytes cannot be
  // late while no stream is `attached`.
  void CheckDeadline(bool attached);

  bool settled() const;
  // Returns nothing when no upload is under way, or it is settled.
  std::optional<Awaited> awaited() const;

 private:
  // Memory for an upload of so many bytes.
  struct Room {
    std::shared_ptr<Reservation> reservation;
    std::shared_ptr<Buffer> buffer;
  };
  // A proof that the client makes, or a content that the disk reads. Guarded by
  // mu_ while it is in search_.
  struct Search {
    uint64_t id = 0;
    // Exactly one of the two is set.
    std::shared_ptr<ContentChallenge> challenge;
    std::shared_ptr<ContentLoad> load;
    // For the load. A proof of what the supervisor has keeps the reservation.
    Room room;
    absl::Duration started;
    absl::Duration deadline;

    bool settled() const;
  };
  // An upload whose bytes are arriving.
  struct Incoming;

  absl::StatusOr<Room> MakeRoom(uint64_t bytes);
  // Keeps the bytes as a content of the tenant. Their cost is the time since
  // `started`. Returns the buffer to use.
  std::shared_ptr<Buffer> Keep(Room room, const ContentHash& hash,
                               absl::Duration started);
  StreamWay way() const {
    MutexLock lock(&mu_);
    return way_;
  }
  // Starts to read the content from the store. Returns false when the store
  // does not have it, or there is no room for it.
  bool StartLoad();
  // Asks the client for a proof. Finds nothing when no proof can be requested.
  Found AskForProof();
  // Asks the challenge of the search.
  Found Ask(std::unique_ptr<Search> search);
  void Await(std::unique_ptr<Search> search);
  // These return null when the disk did not read the content, or the client did
  // not prove that it has it.
  std::shared_ptr<Buffer> FinishLoad(Search* search);
  std::shared_ptr<Buffer> FinishProof(Search* search);
  // Makes what the search found a content of the tenant: `other`, or if that is
  // null the bytes in the search's room.
  std::shared_ptr<Buffer> Hold(Search* search, std::shared_ptr<Buffer> other);
  // Offers a content of the tenant to the disk. `found`: the content was found
  // again.
  void KeepOnDisk(const ContentHash& hash, uint64_t bytes, bool found);

  // These measure the link: by a chunk that arrived over the network, before it
  // is written, and by all chunks of an upload.
  void NoteChunk(uint64_t bytes, Incoming* incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAllChunks(const Incoming& incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Completes the upload if every byte has arrived.
  void Complete(Incoming* incoming) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(absl::Status why, Incoming* incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hashes the bytes that have arrived without a gap, unless another thread
  // does.
  absl::Status HashWhatIsHere(Incoming* incoming);

  const SessionEnvironment& environment_;
  const std::string tenant_;
  const uint64_t inline_bytes_;
  Traffic* const traffic_;
  const Callbacks callbacks_;

  // The upload under way. The thread that executes the session owns it.
  v1::Transfer transfer_;

  mutable Mutex mu_;
  StreamWay way_ ABSL_GUARDED_BY(mu_) = StreamWay::kLocal;
  // At most one of the two is set.
  std::unique_ptr<Search> search_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Incoming> incoming_ ABSL_GUARDED_BY(mu_);
  // Uploads that were given up or resumed: their last chunks may still arrive.
  UsedIds over_ ABSL_GUARDED_BY(mu_){1024};
  // Transfers for which the client was asked for a proof; an answer may arrive
  // too late.
  UsedIds challenged_ ABSL_GUARDED_BY(mu_){1024};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_UPLOADS_UPLOADS_H_
