#include "client_lib/session/device/answers/uploader.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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

absl::Status Uploader::Upload(uint32_t lane, RemoteStorage* storage,
                              SharedBytes source,
                              absl::FunctionRef<bool()> permits_eager) {
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
  if (GoesEagerly(size, permits_eager, &install)) {
    install.copy.assign(source.bytes.data(), size);
    install.eager = true;
    absl::Status status = QueueInstall(lane, storage, std::move(install));
    if (!status.ok()) {
      MutexLock lock(&answers_->mu);
      answers_->eager.Complete(size);
    }
    return status;
  }
  install.source = std::move(source);
  absl::Status status = UploadLarge(lane, storage, install);
  if (!absl::IsResourceExhausted(status)) return status;
  // Seals everything, because unsent calls and recently released storages may
  // free memory. Every Install carries their frees along.
  recorder_->SealAll();
  return UploadLarge(lane, storage, std::move(install));
}

bool Uploader::GoesEagerly(uint64_t size,
                           absl::FunctionRef<bool()> permits_eager,
                           InstallWork* install) {
  // Counts storages that were recorded but do not exist on the worker yet.
  const uint64_t memory = memory_bytes();
  const int64_t used = used_bytes_->load(std::memory_order_relaxed);
  const bool fits =
      used < 0 || static_cast<uint64_t>(used) <= memory - memory / kSpareShare;
  // A program that watches uploads or debugs needs each outcome at its call.
  const bool watched =
      UploadProgress(size).watched() || debug::Has(debug::kEager);
  const bool permitted = permits_eager();
  MutexLock lock(&answers_->mu);
  install->uploaded_before = answers_->eager.Remember(install->hash);
  return fits && !watched && permitted && !install->uploaded_before &&
         !answers_->uploads.finds_new_contents() && answers_->eager.Take(size);
}

absl::Status Uploader::QueueInstall(uint32_t lane, RemoteStorage* storage,
                                    InstallWork install) {
  const bool copied = install.wait == nullptr;
  bool quiet = false;
  DJINN_RETURN_IF_ERROR(
      recorder_->Install(lane, storage, std::move(install), &quiet));
  if (!copied) {
    sender_->SendNow();
  } else if (!quiet) {
    sender_->Wake();
  }
  return absl::OkStatus();
}

absl::Status Uploader::UploadLarge(uint32_t lane, RemoteStorage* storage,
                                   InstallWork install) {
  const auto wait = std::make_shared<UploadWait>();
  SharedBytes source = install.source;
  wait->uploaded_before = install.uploaded_before;
  install.wait = wait;
  DJINN_RETURN_IF_ERROR(QueueInstall(lane, storage, std::move(install)));
  const absl::Status status = Finish(wait.get(), std::move(source));
  MutexLock lock(&answers_->mu);
  answers_->uploads.Erase(wait->transfer_id);
  return status;
}

absl::Status Uploader::SendAgain(const std::shared_ptr<UploadWait>& wait,
                                 SharedBytes bytes) {
  absl::Status status;
  if (bytes.owner != nullptr) {
    status = Finish(wait.get(), std::move(bytes));
  } else {
    MutexLock lock(&answers_->mu);
    status = answers_->Await(
        wait.get(), [&] { return wait->state != UploadWait::State::kAsked; });
    if (status.ok() && wait->state != UploadWait::State::kOver) {
      status = absl::NotFoundError(
          "its bytes are kept neither here nor at the worker");
    } else if (status.ok()) {
      status = wait->refusal;
    }
  }
  MutexLock lock(&answers_->mu);
  answers_->uploads.Erase(wait->transfer_id);
  return status;
}

absl::Status Uploader::Finish(UploadWait* wait, SharedBytes source) {
  using State = UploadWait::State;
  State state = State::kAsked;
  const auto await_decision = [&]() -> absl::Status {
    MutexLock lock(&answers_->mu);
    DJINN_RETURN_IF_ERROR(
        answers_->Await(wait, [wait] { return wait->state != State::kAsked; }));
    state = wait->state;
    return wait->refusal;
  };
  UploadProgress progress(source.bytes.size());
  // After a loss, the next worker decides again whether it needs the bytes.
  for (;;) {
    DJINN_RETURN_IF_ERROR(await_decision());
    if (state == State::kOver) break;
    if (state == State::kProve) {
      Prove(wait, source.bytes);
    } else {
      DJINN_RETURN_IF_ERROR(SendTransfer(wait, source, &progress));
    }
  }
  progress.Finish();
  return absl::OkStatus();
}

void Uploader::Prove(UploadWait* wait, absl::string_view bytes) {
  std::string key;
  {
    MutexLock lock(&answers_->mu);
    key = wait->key;
  }
  std::string proof = ProveContent(key, bytes);
  // A proof that OpenSSL could not compute is wrong, and then the bytes are
  // sent.
  proof.resize(kContentMacBytes);
  {
    MutexLock lock(&answers_->mu);
    answers_->uploads.QueueProof(wait, key, std::move(proof));
  }
  sender_->SendNow();
}

absl::Status Uploader::SendTransfer(UploadWait* wait, SharedBytes source,
                                    UploadProgress* progress) {
  const size_t size = source.bytes.size();
  const auto release = std::make_shared<Release>();
  uint64_t released = 0;
  uint64_t used = 0;  // the connection that all bytes were handed to
  bool asked_again = false;
  absl::Status status;
  for (;;) {
    ClientStream* stream = nullptr;
    size_t offset = 0;
    {
      MutexLock lock(&answers_->mu);
      // The process keeps the bytes until the worker has them, because a broken
      // connection may lose them.
      status = answers_->Await(
          wait,
          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(answers_->mu) {
            return wait->state != UploadWait::State::kSend ||
                   answers_->connections != used;
          },
          [&] {
            const uint64_t before =
                std::exchange(released, release->Released());
            return released != before;
          });
      if (!status.ok() || wait->state != UploadWait::State::kSend) {
        asked_again = status.ok() && wait->state != UploadWait::State::kOver;
        break;
      }
      used = answers_->connections;
      // Chunks have fixed offsets, so a chunk that arrived in part is sent
      // again.
      if (wait->resume_at < size) {
        offset = wait->resume_at / kBulkChunkBytes * kBulkChunkBytes;
      } else {
        offset = size;
      }
      // The connection may be lost already. Then the next one is awaited.
      stream = answers_->receiver->EnterConnected();
    }
    if (stream == nullptr) continue;
    bool sent = true;
    for (; offset < size && sent; offset += kBulkChunkBytes) {
      const absl::string_view chunk =
          source.bytes.substr(offset, kBulkChunkBytes);
      sent = stream
                 ->SendBulk(wait->transfer_id, offset,
                            {chunk, Hold(source.owner, release)})
                 .ok();
      progress->Sent(offset);
      moves_->fetch_add(1, std::memory_order_relaxed);
      answers_->NoteReplayed();
    }
    answers_->receiver->Leave();
  }
  source.owner.reset();
  // Waits even after an error, because the transport may still read the bytes.
  if (!AwaitRelease(release.get(), options_->operation_timeout,
                    options_->clock) &&
      status.ok()) {
    status = MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                       absl::StrCat("the transport kept an upload of ", size,
                                    " bytes that the worker has"));
  }
  if (!status.ok() || asked_again) return status;
  MutexLock lock(&answers_->mu);
  ++answers_->statistics.uploads_sent;
  answers_->statistics.bytes_up += size;
  return absl::OkStatus();
}

}  // namespace djinn
