// Uploads: what waits, and the bytes that move on Bulk.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/debug_flags.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/remote_device.h"
#include "client_lib/session/wait.h"
#include "common/content_proof.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// Smaller ones are hashed sooner than it takes to say the hash by itself.
constexpr uint64_t kLeastHashedLater = uint64_t{2} << 20;

// Of a worker's memory, what has to be left for uploads to go unasked.
constexpr uint64_t kSpareShare = 8;

// Counts the chunks of an upload that somebody may still read.
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

// Keeps `owner` alive for one chunk; what it points to may be used until the
// last copy of the result is gone.
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

// Waits until nobody reads the upload any more; false when no chunk was let go
// of for as long as `patience`.
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
  if (size <= inline_bytes_.load(std::memory_order_relaxed)) {
    auto copy = std::make_shared<std::string>(source.bytes);
    InstallWork small;
    small.source = {*copy, copy};
    return QueueInstall(lane, storage, std::move(small));
  }
  InstallWork install;
  install.sample = SampleContent(source.bytes);
  if (GoesUnasked(size, install.sample)) {
    install.unasked.emplace(source.bytes);
    absl::Status status = QueueInstall(lane, storage, std::move(install));
    if (!status.ok()) {
      MutexLock lock(&mu_);
      unasked_.Complete(size);
    }
    return status;
  }
  install.source = std::move(source);
  if (HashesFirst(size)) {
    install.hash = HashContent(install.source.bytes.data(), size);
  }
  absl::Status status = UploadLarge(lane, storage, install);
  if (!absl::IsResourceExhausted(status)) return status;
  // Calls not sent yet may give memory back, and so may storages that died
  // since: every install takes their frees along.
  recorder_.SealAll();
  return UploadLarge(lane, storage, std::move(install));
}

bool RemoteDevice::GoesUnasked(uint64_t size, uint64_t sample) {
  // A program that watches, or debugs, is told when it is there.
  if (UploadProgress(size).watched() || debug::Has(debug::kEager)) {
    return false;
  }
  // What was recorded, and will be made before it comes, counts already.
  const uint64_t memory = memory_bytes();
  const int64_t used = role_.used_bytes->load(std::memory_order_relaxed);
  const bool fits =
      used < 0 || static_cast<uint64_t>(used) <= memory - memory / kSpareShare;
  MutexLock lock(&mu_);
  // A multi-worker device looks for room until a worker takes it. What the next
  // worker takes after a migration is not known.
  return !near_ && !stays_ && migration_ == nullptr &&
         unasked_.Take(size, sample, fits);
}

bool RemoteDevice::HashesFirst(uint64_t size) const {
  MutexLock lock(&mu_);
  return size < kLeastHashedLater || !features_.late_hashes ||
         uploads_.last_hash_was_of_use();
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
  install.wait = wait;
  DJINN_RETURN_IF_ERROR(QueueInstall(lane, storage, std::move(install)));
  const absl::Status status = FinishUpload(wait.get(), std::move(source));
  MutexLock lock(&mu_);
  uploads_.Erase(wait->transfer_id);
  return status;
}

absl::Status RemoteDevice::FinishUpload(UploadWait* wait, SharedBytes source) {
  bool send = false;
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Await(
        wait, [wait] { return wait->state != UploadWait::State::kPending; }));
  }
  DJINN_RETURN_IF_ERROR(SayHash(wait, source.bytes));
  DJINN_RETURN_IF_ERROR(Prove(wait, source.bytes));
  {
    MutexLock lock(&mu_);
    if (wait->state == UploadWait::State::kRefused) return wait->refusal;
    if (wait->state == UploadWait::State::kInlined) return absl::OkStatus();
    send = wait->state == UploadWait::State::kSend;
  }
  UploadProgress progress(source.bytes.size());
  if (send) {
    DJINN_RETURN_IF_ERROR(SendTransfer(wait, std::move(source), &progress));
  }
  progress.Finish();
  return absl::OkStatus();
}

absl::Status RemoteDevice::SayHash(UploadWait* wait, absl::string_view bytes) {
  {
    MutexLock lock(&mu_);
    if (wait->state != UploadWait::State::kHash) return absl::OkStatus();
  }
  QueueHash(wait, HashContent(bytes.data(), bytes.size()));
  MutexLock lock(&mu_);
  return Await(wait,
               [wait] { return wait->state != UploadWait::State::kPending; });
}

void RemoteDevice::QueueHash(UploadWait* wait, const ContentHash& hash) {
  {
    MutexLock lock(&mu_);
    uploads_.QueueHash(wait, hash);
  }
  SendNow();
}

absl::Status RemoteDevice::Prove(UploadWait* wait, absl::string_view bytes) {
  std::string key;
  {
    MutexLock lock(&mu_);
    if (wait->state != UploadWait::State::kProve) return absl::OkStatus();
    key = wait->key;
  }
  std::string proof = ProveContent(key, bytes);
  // What OpenSSL cannot prove is sent.
  proof.resize(kContentMacBytes);
  {
    MutexLock lock(&mu_);
    uploads_.QueueProof(wait, std::move(proof));
  }
  SendNow();
  MutexLock lock(&mu_);
  return Await(wait,
               [wait] { return wait->state != UploadWait::State::kProving; });
}

absl::Status RemoteDevice::SendTransfer(UploadWait* wait, SharedBytes source,
                                        UploadProgress* progress) {
  const SessionOptions& options = context_->options;
  const size_t size = source.bytes.size();
  bool hash_follows;
  {
    MutexLock lock(&mu_);
    hash_follows = wait->hash_follows && !wait->hash.has_value();
  }
  const auto release = std::make_shared<Release>();
  uint64_t released = 0;
  uint64_t used = 0;  // the connection that all of it was handed to
  // Of what was sent, where the hash is to follow.
  ContentHasher hasher;
  size_t hashed = 0;
  absl::Status status;
  for (;;) {
    ClientStream* stream = nullptr;
    size_t offset = 0;
    {
      MutexLock lock(&mu_);
      // Not before the worker has the bytes: what the network loses must still
      // be here.
      status = Await(
          wait,
          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
            return wait->completed || (connected_ && connection_ != used);
          },
          [&] {
            const uint64_t before =
                std::exchange(released, release->Released());
            return released != before;
          });
      if (!status.ok() || wait->completed) break;
      used = connection_;
      // Chunks have fixed places; a part of one is sent again.
      if (wait->resume_at < size) {
        offset = wait->resume_at / kBulkChunkBytes * kBulkChunkBytes;
      } else {
        offset = size;
      }
      stream = EnterStream();
    }
    bool sent = true;
    for (; offset < size && sent; offset += kBulkChunkBytes) {
      const absl::string_view chunk =
          source.bytes.substr(offset, kBulkChunkBytes);
      // What is sent a second time was hashed.
      if (hash_follows && offset == hashed) {
        hasher.Add(chunk);
        hashed += chunk.size();
        // It is there when the last chunk is.
        if (hashed == size) QueueHash(wait, hasher.Hash());
      }
      sent = stream
                 ->SendBulk(wait->transfer_id, offset,
                            {chunk, Hold(source.owner, release)})
                 .ok();
      progress->Sent(offset);
      MutexLock lock(&mu_);
      ++progress_;
    }
    MutexLock lock(&mu_);
    LeaveStream();
  }
  source.owner.reset();
  // Also after an error: the transport may still read the bytes.
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
