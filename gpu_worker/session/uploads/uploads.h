// The uploads of one session, one after the other: finds what may take the
// place of the bytes, and receives the bytes otherwise. The session decides
// about order, quota and replies.
//
// An upload that asks is in one of these states:
//   found      Find() has the tenant's own content from memory; it is over.
//   searching  The disk reads the tenant's own content, or the client proves
//              that it has another tenant's. GoOn() has the outcome, once it is
//              settled(): the content, the next search, or nothing.
//   receiving  Nothing takes the place of the bytes. Receive() made room, and
//              they come on Bulk until all are here, or too late. Finish() has
//              the outcome, once it is settled().
// An eager upload is complete at once: Take().
//
// The hash that a client says is for finding its bytes here. What comes is kept
// under the hash that this worker makes of it: it is another one where the
// program wrote to the bytes meanwhile.
//
// The second of two equal chunks is a violation, unless the stream was resumed
// meanwhile. Bytes of an upload that was given up are ignored.
//
// Find(), GoOn(), Receive(), Finish(), Take() and Forget() belong to the thread
// that executes the session; any thread may call everything else at any time.
// Nothing is called back with a lock held.
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
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/leases/traffic.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class ContentChallenge;
class ContentLoad;

// How a client's bytes reach this worker.
enum class StreamWay {
  kLocal,  // within this machine
  kNetwork,
};

class Uploads {
 public:
  struct Callbacks {
    // The search or the upload under way may be settled().
    std::function<void()> settled;
    // Charges the session for the time that a proof took.
    std::function<void(absl::Duration)> charge;
  };
  // The result of looking for the bytes.
  struct Found {
    // The upload is searching. The client is asked `question`, if it is set.
    bool waits = false;
    std::optional<v1::TransferDecision> question;
    // Otherwise the bytes; null when the client has to send them.
    std::shared_ptr<Buffer> held;
  };
  // Since when the upload waits for the client, or for the disk.
  struct Awaited {
    absl::Duration since;
    bool from_disk = false;
  };

  // `environment` and `traffic` outlive it. An upload of at most `inline_bytes`
  // does not become a content.
  Uploads(const SessionEnvironment* environment, std::string tenant,
          uint64_t inline_bytes, Traffic* traffic, Callbacks callbacks);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // --- The thread that executes the session.
  // Begins an upload. Where `fits` is false, the session may not have the
  // bytes, and only memory is looked at.
  Found Find(const v1::Transfer& transfer, bool fits);
  // Continues after a search that is settled().
  Found GoOn();
  // Makes room for the bytes, which may come from here on. Returns
  // RESOURCE_EXHAUSTED, or the device's error, and then the upload is over.
  absl::Status Receive();
  // Returns the bytes, DEADLINE_EXCEEDED (TRANSFER_TIMEOUT) when they did not
  // come, or the device's error.
  absl::StatusOr<std::shared_ptr<Buffer>> Finish();
  // Keeps the bytes of an eager upload as a content, or finds the one that the
  // tenant has. Returns RESOURCE_EXHAUSTED, or the device's error.
  absl::StatusOr<std::shared_ptr<Buffer>> Take(const std::string& bytes);
  // Whether an upload of the size becomes a content, if there is a place.
  bool Keeps(uint64_t bytes) const { return bytes > inline_bytes_; }
  // Gives up the upload that is under way, if any.
  void Forget();

  // --- Any thread.
  // Another stream carries the session from now on; it `resumed` an earlier
  // one. Says in `hello` how much of an upload under way is here, and restarts
  // the upload's time-out.
  void OnStream(StreamWay way, bool resumed, v1::WorkerHello* hello);
  // Return InvalidArgument (PROTOCOL_VIOLATION) for what was not asked for.
  absl::Status ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                           absl::Span<const absl::string_view> pieces);
  absl::Status ReceiveProof(v1::TransferProof proof);
  // Gives up a search or an upload that has taken too long. Bytes cannot be
  // late while no stream is `attached`.
  void CheckDeadline(bool attached);

  bool settled() const;
  // Empty when nothing is under way, or it is settled.
  std::optional<Awaited> awaited() const;

 private:
  // Room for an upload of so many bytes.
  struct Room {
    std::shared_ptr<Reservation> reservation;
    std::shared_ptr<Buffer> buffer;
  };
  // A proof that the client makes, or a content that the disk reads. Guarded by
  // mu_ while it is in search_.
  struct Search {
    uint64_t id = 0;
    // One of the two.
    std::shared_ptr<ContentChallenge> challenge;
    std::shared_ptr<ContentLoad> load;
    Room room;  // of the load
    absl::Duration started;
    absl::Duration deadline;

    bool settled() const;
  };
  // Bytes on their way.
  struct Incoming;

  absl::StatusOr<Room> MakeRoom(uint64_t bytes);
  // Keeps the bytes as a content of the tenant's, which took from `started`
  // until now. Returns the buffer to use.
  std::shared_ptr<Buffer> Keep(Room room, const ContentHash& hash,
                               absl::Duration started);
  StreamWay way() const {
    MutexLock lock(&mu_);
    return way_;
  }
  // Starts to read the content from disk. False when it is not there, or there
  // is no room for it.
  bool StartLoad();
  // Finds nothing where no proof can be asked for.
  Found AskForProof();
  void Await(std::unique_ptr<Search> search);
  // Return null when the disk did not read it, or the client did not prove it.
  std::shared_ptr<Buffer> FinishLoad(Search* search);
  std::shared_ptr<Buffer> FinishProof(Search* search);
  // Offers a content of the tenant's to the disk. `found`: it was found again.
  void KeepOnDisk(const ContentHash& hash, uint64_t bytes, bool found);

  // Measures the link by a chunk that came over the network, before the chunk
  // is written, and by all chunks of an upload.
  void NoteChunk(uint64_t bytes, Incoming* incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAllChunks(const Incoming& incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Completes the upload if every byte is here.
  void Complete(Incoming* incoming) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(absl::Status why, Incoming* incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hashes all bytes that are here without a gap, unless another thread does.
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
  // One of the two at most.
  std::unique_ptr<Search> search_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Incoming> incoming_ ABSL_GUARDED_BY(mu_);
  // Uploads that were given up or resumed: their last chunks may still come.
  UsedIds over_ ABSL_GUARDED_BY(mu_){1024};
  // Transfers whose proofs were asked for; an answer may come too late.
  UsedIds challenged_ ABSL_GUARDED_BY(mu_){1024};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_UPLOADS_UPLOADS_H_
