#include "gpu_worker/session/uploads/uploads.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/content_proof.h"
#include "common/transport/stream.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/uploads/received_chunks.h"
#include "gpu_worker/session/uploads/upload_rate.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/content_store.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {

// Uploads::mu_ guards everything except the buffer's bytes and the hasher,
// which one thread at a time uses.
struct Uploads::Incoming {
  enum class State { kReceiving, kComplete, kFailed };

  Incoming(uint64_t id, uint64_t size_bytes)
      : id(id), size_bytes(size_bytes), chunks(size_bytes) {}

  bool settled() const { return state != State::kReceiving && writers == 0; }

  const uint64_t id;
  const uint64_t size_bytes;
  Room room;
  State state = State::kReceiving;
  absl::Status failure;
  ReceivedChunks chunks;
  // Calls that write into the buffer, or hash it, now.
  uint32_t writers = 0;
  // Hashes the bytes before `hashed`, by one call at a time.
  ContentHasher hasher;
  uint64_t hashed = 0;
  bool hashing = false;
  // True when the stream was resumed meanwhile, so that chunks may arrive
  // twice.
  bool resumed = false;
  absl::Duration started;
  absl::Duration last_chunk;
  // Marks of the chunks that arrived over the network.
  std::optional<UploadRate::Mark> first;
  UploadRate::Mark last;
};

Uploads::Uploads(const SessionEnvironment* environment, std::string tenant,
                 uint64_t inline_bytes, Traffic* traffic, Callbacks callbacks)
    : environment_(*environment),
      tenant_(std::move(tenant)),
      inline_bytes_(inline_bytes),
      traffic_(traffic),
      callbacks_(std::move(callbacks)) {}

Uploads::~Uploads() = default;

void Uploads::Forget() {
  MutexLock lock(&mu_);
  search_ = nullptr;
  incoming_ = nullptr;
}

absl::StatusOr<Uploads::Room> Uploads::MakeRoom(uint64_t bytes) {
  DeviceMemory* const memory = environment_.memory;
  absl::StatusOr<Reservation> reservation =
      memory->Reserve(MemoryClass::kTransfers, tenant_, bytes);
  absl::StatusOr<std::shared_ptr<Buffer>> buffer =
      reservation.ok() ? memory->device()->AllocateUnset(bytes)
                       : reservation.status();
  if (!buffer.ok()) return buffer.status();
  Room room;
  room.reservation = std::make_shared<Reservation>(*std::move(reservation));
  room.buffer = DeviceMemory::Track(*std::move(buffer), room.reservation);
  return room;
}

absl::Status Uploads::Receive() {
  const uint64_t bytes = transfer_.size_bytes();
  DJINN_ASSIGN_OR_RETURN(Room room, MakeRoom(bytes));
  auto incoming = std::make_shared<Incoming>(transfer_.transfer_id(), bytes);
  incoming->room = std::move(room);
  incoming->started = incoming->last_chunk = environment_.clock->Monotonic();
  MutexLock lock(&mu_);
  incoming_ = std::move(incoming);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Buffer>> Uploads::Finish() {
  std::shared_ptr<Incoming> incoming;
  {
    MutexLock lock(&mu_);
    incoming = std::move(incoming_);
  }
  // The upload is settled: no other thread changes it, though the thread that
  // received the last chunk may still refer to it.
  Room room = std::move(incoming->room);
  if (incoming->state == Incoming::State::kFailed) return incoming->failure;
  // Uses the hash of the received bytes, not the announced one, because a
  // program may write to the bytes while they are sent.
  const ContentHash hash = incoming->hasher.Hash();
  // The cache bounds the number of contents, so small values are not kept.
  if (!Keeps(incoming->size_bytes)) {
    room.reservation->MoveTo(MemoryClass::kStorages);
    return std::move(room.buffer);
  }
  return Keep(std::move(room), hash, incoming->started);
}

std::shared_ptr<Buffer> Uploads::Keep(Room room, const ContentHash& hash,
                                      absl::Duration started) {
  const uint64_t bytes = room.buffer->size_bytes();
  room.reservation->MoveTo(MemoryClass::kContents);
  std::shared_ptr<Buffer> buffer =
      environment_.contents->Insert(tenant_, hash, std::move(room.buffer),
                                    environment_.clock->Monotonic() - started);
  // A full cache does not keep the buffer.
  if (!IsSoleOwner(buffer)) KeepOnDisk(hash, bytes, /*found=*/false);
  environment_.contents_changed();
  return buffer;
}

absl::StatusOr<std::shared_ptr<Buffer>> Uploads::Take(
    const std::string& bytes) {
  const absl::Duration started = environment_.clock->Monotonic();
  const ContentHash hash = HashContent(bytes.data(), bytes.size());
  if (std::shared_ptr<Buffer> held =
          environment_.contents->Find(tenant_, hash, bytes.size())) {
    KeepOnDisk(hash, bytes.size(), /*found=*/true);
    return held;
  }
  DJINN_ASSIGN_OR_RETURN(Room room, MakeRoom(bytes.size()));
  DJINN_RETURN_IF_ERROR(
      environment_.memory->device()->Write(room.buffer.get(), 0, bytes));
  // The cost of the bytes is mostly their transfer to this worker.
  const uint64_t rate =
      way() == StreamWay::kNetwork ? environment_.uploads->BytesPerSecond() : 0;
  const absl::Duration moved =
      rate == 0 ? absl::ZeroDuration()
                : absl::Seconds(static_cast<double>(bytes.size()) /
                                static_cast<double>(rate));
  return Keep(std::move(room), hash, started - moved);
}

void Uploads::OnStream(StreamWay way, bool resumed, v1::WorkerHello* hello) {
  MutexLock lock(&mu_);
  way_ = way;
  if (incoming_ == nullptr || incoming_->state != Incoming::State::kReceiving) {
    return;
  }
  // The time-out does not run while there is no stream.
  incoming_->last_chunk = environment_.clock->Monotonic();
  incoming_->resumed = resumed;
  hello->mutable_transfer()->set_transfer_id(incoming_->id);
  hello->mutable_transfer()->set_received_bytes(
      incoming_->chunks.prefix_bytes());
}

absl::Status Uploads::ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                                  absl::Span<const absl::string_view> pieces) {
  uint64_t bytes = 0;
  for (absl::string_view piece : pieces) bytes += piece.size();
  std::shared_ptr<Incoming> incoming;
  {
    MutexLock lock(&mu_);
    incoming = incoming_;
    const bool asked = incoming != nullptr && incoming->id == transfer_id &&
                       incoming->state == Incoming::State::kReceiving;
    if (!asked && over_.Contains(transfer_id)) return absl::OkStatus();
    if (!asked) {
      return Violation(absl::StrCat("bytes of transfer ", transfer_id,
                                    ", which this worker did not ask for"));
    }
    if (!incoming->chunks.Fits(offset, bytes)) {
      return Violation(absl::StrCat(bytes, " bytes at ", offset,
                                    " of transfer ", transfer_id, " of ",
                                    incoming->size_bytes, " bytes"));
    }
    if (incoming->chunks.state(offset) != ReceivedChunks::State::kMissing) {
      if (incoming->resumed) return absl::OkStatus();
      return Violation(absl::StrCat("bytes at ", offset, " of transfer ",
                                    transfer_id, " twice"));
    }
    incoming->chunks.SetWriting(offset);
    ++incoming->writers;
    NoteChunk(bytes, incoming.get());
  }
  traffic_->Add(Traffic::kBulkIn, bytes);
  absl::Status written;
  uint64_t at = offset;
  for (absl::string_view piece : pieces) {
    if (!written.ok()) break;
    written = environment_.memory->device()->Write(incoming->room.buffer.get(),
                                                   at, piece);
    at += piece.size();
  }
  {
    MutexLock lock(&mu_);
    incoming->chunks.SetHere(offset);
    incoming->last_chunk = environment_.clock->Monotonic();
    if (incoming->chunks.complete()) NoteAllChunks(*incoming);
  }
  if (written.ok()) written = HashWhatIsHere(incoming.get());
  bool settled = false;
  {
    MutexLock lock(&mu_);
    --incoming->writers;
    if (incoming->state == Incoming::State::kReceiving) {
      if (written.ok()) {
        Complete(incoming.get());
      } else {
        Fail(std::move(written), incoming.get());
      }
    }
    settled = incoming->settled();
  }
  if (settled) callbacks_.settled();
  return absl::OkStatus();
}

void Uploads::NoteChunk(uint64_t bytes, Incoming* incoming) {
  if (way_ != StreamWay::kNetwork) return;
  const UploadRate::Mark mark = environment_.uploads->Add(bytes);
  if (!incoming->first.has_value()) incoming->first = mark;
  incoming->last = mark;
}

void Uploads::NoteAllChunks(const Incoming& incoming) {
  // The time without a stream does not count for the link.
  if (!incoming.first.has_value() || incoming.resumed ||
      incoming.size_bytes < UploadRate::kMinBytes) {
    return;
  }
  environment_.uploads->Note(*incoming.first, incoming.last);
}

void Uploads::Complete(Incoming* incoming) {
  if (!incoming->chunks.complete()) return;
  incoming->state = Incoming::State::kComplete;
  if (incoming->resumed) over_.Insert(incoming->id);
}

void Uploads::Fail(absl::Status why, Incoming* incoming) {
  incoming->state = Incoming::State::kFailed;
  incoming->failure = std::move(why);
  over_.Insert(incoming->id);
}

absl::Status Uploads::HashWhatIsHere(Incoming* incoming) {
  absl::Status read;
  while (read.ok()) {
    uint64_t here = 0;
    {
      MutexLock lock(&mu_);
      here = incoming->chunks.prefix_bytes();
      // The thread that hashes continues to the end of the received bytes.
      if (incoming->hashing || here == incoming->hashed) break;
      incoming->hashing = true;
    }
    const absl::StatusOr<SharedBytes> bytes =
        environment_.memory->device()->HostRange(
            incoming->room.buffer, incoming->hashed, here - incoming->hashed);
    read = bytes.status();
    if (read.ok()) incoming->hasher.Add(bytes->bytes);
    MutexLock lock(&mu_);
    if (read.ok()) incoming->hashed = here;
    incoming->hashing = false;
  }
  return read;
}

absl::Status Uploads::ReceiveProof(v1::TransferProof proof) {
  const uint64_t id = proof.transfer_id();
  std::shared_ptr<ContentChallenge> challenge;
  {
    MutexLock lock(&mu_);
    if (!challenged_.Contains(id)) {
      return Violation(absl::StrCat("a proof for transfer ", id,
                                    ", which nobody asked for"));
    }
    if (proof.mac().size() != kContentMacBytes) {
      return Violation(absl::StrCat("a proof of ", proof.mac().size(),
                                    " bytes for transfer ", id));
    }
    if (search_ != nullptr && search_->id == id) challenge = search_->challenge;
  }
  // A proof that arrives too late, or twice, is ignored.
  if (challenge != nullptr) challenge->Answer(std::move(*proof.mutable_mac()));
  return absl::OkStatus();
}

void Uploads::CheckDeadline(bool attached) {
  const absl::Duration now = environment_.clock->Monotonic();
  const absl::Duration timeout = environment_.transfer_idle_timeout;
  std::shared_ptr<ContentChallenge> unproven;
  std::shared_ptr<ContentLoad> unread;
  {
    MutexLock lock(&mu_);
    if (search_ != nullptr) {
      if (now < search_->deadline) return;
      unproven = search_->challenge;
      unread = search_->load;
    } else if (!attached || incoming_ == nullptr || incoming_->writers > 0 ||
               incoming_->state != Incoming::State::kReceiving ||
               now - incoming_->last_chunk < timeout) {
      return;
    } else {
      Fail(MakeError(
               absl::StatusCode::kDeadlineExceeded, "TRANSFER_TIMEOUT",
               absl::StrCat("transfer ", incoming_->id, " of ",
                            incoming_->size_bytes, " bytes stood still for ",
                            absl::FormatDuration(timeout), " with all before ",
                            incoming_->chunks.prefix_bytes(), " received")),
           incoming_.get());
    }
  }
  if (unproven != nullptr) return unproven->Expire();
  if (unread != nullptr) return unread->GiveUp();
  callbacks_.settled();
}

bool Uploads::settled() const {
  MutexLock lock(&mu_);
  return search_ != nullptr ? search_->settled()
                            : incoming_ != nullptr && incoming_->settled();
}

std::optional<Uploads::Awaited> Uploads::awaited() const {
  MutexLock lock(&mu_);
  if (search_ != nullptr && !search_->settled()) {
    return Awaited{search_->started, search_->load != nullptr};
  }
  if (incoming_ != nullptr && !incoming_->settled()) {
    return Awaited{incoming_->started};
  }
  return std::nullopt;
}

}  // namespace djinn::worker
