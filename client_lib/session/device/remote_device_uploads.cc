// Uploads values inside messages, eagerly, or after asking the worker and then
// on Bulk.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/model/wait.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/content_proof.h"

namespace djinn {
namespace {

// Uploads are not eager once less than this fraction (one in kSpareShare) of
// the session's memory on the worker is left.
constexpr uint64_t kSpareShare = 8;

// Counts the chunks of an upload that the transport may still read.
struct Release {
  Mutex mu;
  CondVar changed;
  size_t held ABSL_GUARDED_BY(mu) = 0;
  uint64_t released ABSL_GUARDED_BY(mu) = 0;

  uint64_t Released() {
    MutexLock lock(&mu);
    return released;
  }
};

// Returns a pointer that keeps `owner` alive for one chunk. The bytes may be
// used until the last copy of the result is gone.
std::shared_ptr<const void> Hold(std::shared_ptr<const void> owner,
                                 std::shared_ptr<Release> release) {
  struct Holder {
    std::shared_ptr<const void> owner;
    std::shared_ptr<Release> release;
    ~Holder() {
      owner.reset();
      MutexLock lock(&release->mu);
      --release->held;
      ++release->released;
      release->changed.SignalAll();
    }
  };
  {
    MutexLock lock(&release->mu);
    ++release->held;
  }
  auto holder = std::make_shared<Holder>();
  holder->owner = std::move(owner);
  holder->release = std::move(release);
  return holder;
}

// Waits until the transport has released every chunk. Returns false if it
// released none for `patience`.
bool AwaitRelease(Release* release, absl::Duration patience, Clock* clock) {
  Deadline deadline(patience, clock);
  MutexLock lock(&release->mu);
  while (release->held > 0) {
    const size_t before = release->held;
    WaitUntil(&release->changed, &release->mu, deadline);
    if (release->held < before) {
      deadline = Deadline(patience, clock);
    } else if (deadline.passed()) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status RemoteDevice::Upload(uint32_t lane, RemoteStorage* storage,
                                  SharedBytes source) {
  if (IsForkedChild()) return AfterForkError();
  const uint64_t size = source.bytes.size();
  if (size != storage->size_bytes()) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
        absl::StrCat("an upload of ", size, " bytes to a storage of ",
                     storage->size_bytes()));
  }
  InstallWork install;
  if (size <= inline_bytes_.load(std::memory_order_relaxed)) {
    install.copy.assign(source.bytes.data(), size);
    return QueueInstall(lane, storage, std::move(install));
  }
  install.hash = HashContent(source.bytes.data(), size);
  if (GoesEagerly(size, &install)) {
    install.copy.assign(source.bytes.data(), size);
    install.eager = true;
    absl::Status status = QueueInstall(lane, storage, std::move(install));
    if (!status.ok()) {
      MutexLock lock(&mu_);
      eager_.Complete(size);
    }
    return status;
  }
  install.source = std::move(source);
  absl::Status status = UploadLarge(lane, storage, install);
  if (!absl::IsResourceExhausted(status)) return status;
  // Seals everything, because unsent calls and recently released storages may
  // free memory. Every Install carries their frees along.
  recorder_.SealAll();
  return UploadLarge(lane, storage, std::move(install));
}

bool RemoteDevice::GoesEagerly(uint64_t size, InstallWork* install) {
  // Counts storages that were recorded but do not exist on the worker yet.
  const uint64_t memory = memory_bytes();
  const int64_t used = role_.used_bytes->load(std::memory_order_relaxed);
  const bool fits =
      used < 0 || static_cast<uint64_t>(used) <= memory - memory / kSpareShare;
  // A multi-worker device tries its workers until one has room. A program that
  // watches uploads or debugs needs each outcome at its call.
  const bool watched =
      UploadProgress(size).watched() || debug::Has(debug::kEager);
  MutexLock lock(&mu_);
  const bool outcome_wanted = stays_ || watched;
  install->uploaded_before = eager_.Remember(install->hash);
  // The question costs less than the copies of a message if the worker is near.
  // During a migration the room on the other worker is unknown.
  return fits && !outcome_wanted && !link_.near && migration_ == nullptr &&
         !install->uploaded_before && !uploads_.finds_new_contents() &&
         eager_.Take(size);
}

absl::Status RemoteDevice::QueueInstall(uint32_t lane, RemoteStorage* storage,
                                        InstallWork install) {
  const bool copied = install.wait == nullptr;
  bool quiet = false;
  DJINN_RETURN_IF_ERROR(
      recorder_.Install(lane, storage, std::move(install), &quiet));
  if (!copied) {
    SendNow();
  } else if (!quiet) {
    wakeup_.Set();
  }
  return absl::OkStatus();
}

absl::Status RemoteDevice::UploadLarge(uint32_t lane, RemoteStorage* storage,
                                       InstallWork install) {
  const auto wait = std::make_shared<UploadWait>();
  SharedBytes source = install.source;
  wait->uploaded_before = install.uploaded_before;
  install.wait = wait;
  DJINN_RETURN_IF_ERROR(QueueInstall(lane, storage, std::move(install)));
  const absl::Status status = FinishUpload(wait.get(), std::move(source));
  MutexLock lock(&mu_);
  uploads_.Erase(wait->transfer_id);
  return status;
}

absl::Status RemoteDevice::FinishUpload(UploadWait* wait, SharedBytes source) {
  using State = UploadWait::State;
  State state = State::kAsked;
  const auto await_decision = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(
        Await(wait, [wait] { return wait->state != State::kAsked; }));
    state = wait->state;
    return wait->refusal;
  };
  DJINN_RETURN_IF_ERROR(await_decision());
  if (state == State::kProve) {
    Prove(wait, source.bytes);
    DJINN_RETURN_IF_ERROR(await_decision());
  }
  UploadProgress progress(source.bytes.size());
  if (state == State::kSend) {
    DJINN_RETURN_IF_ERROR(SendTransfer(wait, std::move(source), &progress));
  }
  progress.Finish();
  return absl::OkStatus();
}

void RemoteDevice::Prove(UploadWait* wait, absl::string_view bytes) {
  std::string key;
  {
    MutexLock lock(&mu_);
    key = wait->key;
  }
  std::string proof = ProveContent(key, bytes);
  // A proof that OpenSSL could not compute is wrong, and then the bytes are
  // sent.
  proof.resize(kContentMacBytes);
  {
    MutexLock lock(&mu_);
    uploads_.QueueProof(wait, std::move(proof));
  }
  SendNow();
}

absl::Status RemoteDevice::SendTransfer(UploadWait* wait, SharedBytes source,
                                        UploadProgress* progress) {
  const SessionOptions& options = context_->options;
  const size_t size = source.bytes.size();
  const auto release = std::make_shared<Release>();
  uint64_t released = 0;
  uint64_t used = 0;  // the connection that all bytes were handed to
  absl::Status status;
  for (;;) {
    ClientStream* stream = nullptr;
    size_t offset = 0;
    {
      MutexLock lock(&mu_);
      // The process keeps the bytes until the worker has them, because a broken
      // connection may lose them.
      status = Await(
          wait,
          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
            return wait->state == UploadWait::State::kOver ||
                   (receiver_.connected() && link_.connections != used);
          },
          [&] {
            const uint64_t before =
                std::exchange(released, release->Released());
            return released != before;
          });
      if (!status.ok() || wait->state == UploadWait::State::kOver) break;
      used = link_.connections;
      // Chunks have fixed offsets, so a chunk that arrived in part is sent
      // again.
      if (wait->resume_at < size) {
        offset = wait->resume_at / kBulkChunkBytes * kBulkChunkBytes;
      } else {
        offset = size;
      }
      stream = receiver_.Enter();
    }
    bool sent = true;
    for (; offset < size && sent; offset += kBulkChunkBytes) {
      const absl::string_view chunk =
          source.bytes.substr(offset, kBulkChunkBytes);
      sent = stream
                 ->SendBulk(wait->transfer_id, offset,
                            {chunk, Hold(source.owner, release)})
                 .ok();
      progress->Sent(offset);
      MutexLock lock(&mu_);
      ++progress_;
    }
    receiver_.Leave();
  }
  source.owner.reset();
  // Waits even after an error, because the transport may still read the bytes.
  if (!AwaitRelease(release.get(), options.operation_timeout, options.clock) &&
      status.ok()) {
    status = MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                       absl::StrCat("the transport kept an upload of ", size,
                                    " bytes that the worker has"));
  }
  if (!status.ok()) return status;
  MutexLock lock(&mu_);
  ++statistics_.uploads_sent;
  statistics_.bytes_up += size;
  return absl::OkStatus();
}

}  // namespace djinn
