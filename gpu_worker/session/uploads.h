// The uploads of one session, one after the other: what may take the place of
// the bytes, and the bytes themselves as they come on Bulk. In which order, and
// what the client is told, is the session's to see to.
//
// An upload begins with Find(). Where the client has to answer, or the disk to
// be read, it is to be awaited that it is settled(); GoOn() goes on from there.
// If the bytes are nowhere, Receive() makes room for them, and the client may
// be told to send them. When all are here with their hash, or will not come any
// more, it is settled() again, and Finish() has the outcome.
//
// The hash that a client says is for finding its bytes here. What comes is kept
// under the hash that this worker made of it, whichever was said: it is another
// one where the program wrote to the bytes meanwhile.
//
// What comes inside a message, unasked, is taken as a whole: Take().
//
// Of two chunks that are the same the second is a violation, unless the stream
// was resumed meanwhile; and what still comes of an upload that was given up is
// ignored.
//
// Find(), GoOn(), Receive(), Finish(), Take(), NoteFreed() and Forget() belong
// to whoever carries out the session; everything else may be called by any
// thread, at any time. Nothing is called back with a lock held.
#ifndef GPU_WORKER_SESSION_UPLOADS_H_
#define GPU_WORKER_SESSION_UPLOADS_H_

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
#include "common/hash.h"
#include "common/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/memory/ledger.h"
#include "gpu_worker/session/passing_contents.h"
#include "gpu_worker/session/session_environment.h"
#include "gpu_worker/session/storage_table.h"
#include "gpu_worker/leases/traffic.h"

namespace djinn::worker {

class ContentChallenge;
class ContentLoad;

// How a client's bytes come.
enum class StreamWay {
  // Within this machine.
  kLocal,
  kNetwork,
};

class Uploads {
 public:
  struct Callbacks {
    // What was awaited may be settled.
    std::function<void()> settled;
    // Work was done for a proof.
    std::function<void(absl::Duration)> charge;
  };
  // What came of looking for the bytes.
  struct Found {
    // It is to be awaited, and the client to be asked this, if anything.
    bool waits = false;
    std::optional<v1::TransferDecision> question;
    // Otherwise the bytes; null when they have to be sent.
    std::shared_ptr<Buffer> held;
  };
  // Bytes from the client, or an answer of it, or from disk.
  struct Awaited {
    absl::Duration since;
    bool from_disk = false;
  };

  // `environment` and `traffic` outlive it. Bytes that could have come inline,
  // in a message of the session, are nobody's contents.
  Uploads(const SessionEnvironment* environment, std::string tenant,
          uint64_t inline_bytes, Traffic* traffic, Callbacks callbacks);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // --- Whoever carries out the session.
  // Begins an upload. `fits` is false where the session could not have the
  // bytes: then they are looked for only where that is no work.
  Found Find(const v1::Transfer& transfer, bool fits);
  Found GoOn(bool fits);
  // Room for the bytes; from here on they may come. RESOURCE_EXHAUSTED: it is
  // over.
  absl::Status Receive();
  // The bytes; DEADLINE_EXCEEDED (TRANSFER_TIMEOUT) when they did not come,
  // and what the device says.
  absl::StatusOr<std::shared_ptr<Buffer>> Finish();
  // The bytes of a message, as what came otherwise is. RESOURCE_EXHAUSTED, or
  // what the device says.
  absl::StatusOr<std::shared_ptr<Buffer>> Take(const std::string& bytes);
  // The session frees a storage that has the buffer.
  void NoteFreed(const Buffer& buffer);
  // Whether so many that came are kept as a content, if there is a place.
  bool Keeps(uint64_t bytes) const { return bytes > inline_bytes_; }
  // Gives up the one that is under way, if any.
  void Forget();

  // --- Any thread.
  // Says what the tenant has here that could come unasked.
  void SayHeld(v1::WorkerHello* hello) const;
  // Whether anything is to come unasked. Of those who share contents, nothing:
  // they learn by no way but a proof what is here.
  bool TakesUnasked() const;
  // A stream brings what comes now, after another one if it `resumed`. Says in
  // `hello` what is here of an upload under way; its time-out begins anew.
  void OnStream(StreamWay way, bool resumed, v1::WorkerHello* hello);
  // InvalidArgument (PROTOCOL_VIOLATION): nobody asked for that.
  absl::Status ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                           absl::Span<const absl::string_view> pieces);
  absl::Status ReceiveHash(const v1::TransferHash& said);
  absl::Status ReceiveProof(v1::TransferProof proof);
  // Gives up what was awaited for too long. Without a stream no bytes can come,
  // so they are not late either.
  void CheckDeadline(bool attached);

  bool settled() const;
  // Nothing once it is settled.
  std::optional<Awaited> awaited() const;

 private:
  // An answer, or what the disk has, on its way. Guarded by mu_ while it is in
  // search_.
  struct Search {
    uint64_t id = 0;
    // One of the two, or none: the hash is awaited.
    std::shared_ptr<ContentChallenge> challenge;
    std::shared_ptr<ContentLoad> load;
    // What the client said; it did not say so in time.
    std::optional<ContentHash> hash;
    bool hash_late = false;
    // Of the load.
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<Reservation> reservation;
    absl::Duration started;
    absl::Duration deadline;

    bool awaits_hash() const { return load == nullptr && challenge == nullptr; }
    bool settled() const;
  };
  // Bytes on their way.
  struct Incoming;

  // Room for an upload of so many bytes.
  struct Room {
    std::shared_ptr<Reservation> reservation;
    std::shared_ptr<Buffer> buffer;
  };
  absl::StatusOr<Room> MakeRoom(uint64_t bytes);
  // What came, as the buffer to use.
  std::shared_ptr<Buffer> Keep(Room room, const ContentHash& hash,
                               uint64_t sample, absl::Duration started);
  StreamWay way() const {
    MutexLock lock(&mu_);
    return way_;
  }
  Found Look(bool fits);
  // Whether the tenant may have the bytes of an upload whose hash follows, or
  // another tenant.
  bool HashMayHelp() const;
  Found AskForHash();
  bool StartLoad();
  // Waits for nothing, and has nothing, where no proof can be had.
  Found AskForProof();
  void Await(std::unique_ptr<Search> search);
  // Null when it was not read; when nothing was proved.
  std::shared_ptr<Buffer> FinishLoad(Search* search);
  std::shared_ptr<Buffer> FinishProof(Search* search);
  // The tenant has the content: it may be worth keeping on disk.
  void KeepOnDisk(const ContentHash& hash, uint64_t bytes, bool found);

  // Takes note of a chunk before it is written: it came over the network, or
  // within the machine, which says nothing of the link.
  void NoteChunk(uint64_t bytes, Incoming* incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAllChunks(const Incoming& incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It is complete if every byte is here, and the hash is said.
  void Complete(Incoming* incoming) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(absl::Status why, Incoming* incoming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hashes what is here from the beginning on, unless another call does.
  absl::Status HashWhatIsHere(Incoming* incoming);

  const SessionEnvironment& environment_;
  const std::string tenant_;
  const uint64_t inline_bytes_;
  Traffic* const traffic_;
  const Callbacks callbacks_;

  // The one under way, and those before; of whoever carries out the session.
  v1::Transfer transfer_;
  PassingContents passing_;

  mutable Mutex mu_;
  StreamWay way_ ABSL_GUARDED_BY(mu_) = StreamWay::kLocal;
  // One of the two at most.
  std::unique_ptr<Search> search_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Incoming> incoming_ ABSL_GUARDED_BY(mu_);
  // Given up, or resumed: their last chunks may still come.
  UsedIds over_ ABSL_GUARDED_BY(mu_){1024};
  // Whose proofs were asked for; an answer may come too late.
  UsedIds challenged_ ABSL_GUARDED_BY(mu_){1024};
  // Whose hashes follow, and the client was told how to go on.
  UsedIds unhashed_ ABSL_GUARDED_BY(mu_){1024};
  // The last that came when nothing waited for it: too late to be looked for,
  // but not for the bytes that follow, or once more.
  v1::TransferHash early_hash_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_UPLOADS_H_
