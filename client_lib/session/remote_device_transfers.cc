// Uploads and reads: what waits, and the bytes that move on Bulk.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/remote_device.h"
#include "client_lib/session/wait.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// Counts the chunks of an upload that somebody may still read.
struct Release {
  Mutex mu;
  CondVar changed;
  size_t held ABSL_GUARDED_BY(mu) = 0;
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
bool AwaitRelease(Release* release, absl::Duration patience) {
  Deadline deadline(patience);
  MutexLock lock(&release->mu);
  while (release->held > 0) {
    const size_t before = release->held;
    WaitUntil(&release->changed, &release->mu, deadline);
    if (release->held < before) {
      deadline = Deadline(patience);
    } else if (deadline.passed()) {
      return false;
    }
  }
  return true;
}

absl::Status CheckViewBytes(const srg::TensorView& view, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(const int64_t elements, srg::ElementCount(view));
  const uint64_t expected =
      static_cast<uint64_t>(elements) *
      static_cast<uint64_t>(srg::ElementSize(view.data_type));
  if (bytes == expected) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
                   absl::StrCat("a read of ", srg::DescribeView(view), " has ",
                                expected, " bytes, the destination ", bytes));
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
    return QueueInstall(lane, storage, {0, {*copy, copy}, {}, nullptr});
  }
  const ContentHash hash = HashContent(source.bytes.data(), size);
  absl::Status status = UploadLarge(lane, storage, source, hash);
  if (!absl::IsResourceExhausted(status) || !SealEverything()) return status;
  // What was sealed just now may have given memory back.
  return UploadLarge(lane, storage, std::move(source), hash);
}

absl::Status RemoteDevice::QueueInstall(uint32_t lane, RemoteStorage* storage,
                                        InstallWork install) {
  const bool small = install.wait == nullptr;
  const size_t footprint = small ? install.source.bytes.size() : 0;
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter());
    SealedSegments sealed;
    recorder_.SealUsers(storage, /*writers_only=*/false, &sealed);
    QueueSegments(sealed);
    install.base_version = recorder_.StampWrite(storage);
    Queue({lane, StoragePtr(storage), footprint, std::move(install)},
          /*needs_lease=*/!small);
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::UploadLarge(uint32_t lane, RemoteStorage* storage,
                                       SharedBytes source,
                                       const ContentHash& hash) {
  const auto wait = std::make_shared<UploadWait>();
  DJINN_RETURN_IF_ERROR(QueueInstall(lane, storage, {0, source, hash, wait}));
  return FinishUpload(wait.get(), std::move(source));
}

bool RemoteDevice::SealEverything() {
  MutexLock lock(&mu_);
  SealedSegments sealed;
  recorder_.SealAll(&sealed);
  QueueSegments(sealed);
  wakeup_.Set();
  return !sealed.empty();
}

absl::Status RemoteDevice::FinishUpload(UploadWait* wait, SharedBytes source) {
  {
    MutexLock lock(&mu_);
    const absl::Status status = Await(
        wait, [wait] { return wait->state != UploadWait::State::kPending; });
    uploads_.erase(wait->transfer_id);
    DJINN_RETURN_IF_ERROR(status);
    if (wait->state == UploadWait::State::kRefused) return wait->refusal;
    if (wait->state != UploadWait::State::kSend) return absl::OkStatus();
  }
  return SendTransfer(wait->transfer_id, std::move(source));
}

absl::Status RemoteDevice::SendTransfer(uint64_t transfer_id,
                                        SharedBytes source) {
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    ++streaming_;  // keeps the stream
    stream = stream_.get();
  }
  const auto release = std::make_shared<Release>();
  absl::Status sent;
  for (size_t offset = 0; offset < source.bytes.size() && sent.ok();
       offset += kBulkChunkBytes) {
    sent = stream->SendBulk(transfer_id, offset,
                            {source.bytes.substr(offset, kBulkChunkBytes),
                             Hold(source.owner, release)});
    MutexLock lock(&mu_);
    ++progress_;
  }
  source.owner.reset();
  {
    MutexLock lock(&mu_);
    --streaming_;
    streaming_changed_.SignalAll();
  }
  // Also after an error: the transport may still read the bytes.
  const absl::Duration patience = context_->options.operation_timeout;
  if (!AwaitRelease(release.get(), patience) && sent.ok()) {
    sent = MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                     absl::StrCat("an upload of ", source.bytes.size(),
                                  " bytes made no progress for ",
                                  absl::FormatDuration(patience)));
  }
  // A closed stream: what the device failed with says more.
  MutexLock lock(&mu_);
  if (!sent.ok() && !failure_.ok()) return failure_;
  if (sent.ok()) {
    ++statistics_.uploads_sent;
    statistics_.bytes_up += source.bytes.size();
  }
  return sent;
}

absl::Status RemoteDevice::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, bytes));
  const auto wait = std::make_shared<ReadWait>(destination, bytes);
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter());
    SealedSegments sealed;
    recorder_.SealLane(lane, &sealed);
    recorder_.SealUsers(storage, /*writers_only=*/true, &sealed);
    QueueSegments(sealed);
    if (!storage->born_) {
      const uint64_t size = storage->size_bytes();
      Queue({lane, StoragePtr(storage), 0,
             CreateWork{recorder_.StampWrite(storage), size}},
            /*needs_lease=*/true);
    }
    storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
    Queue(
        {lane, StoragePtr(storage), 0, ReadWork{storage->version_, view, wait}},
        /*needs_lease=*/true);
    ++statistics_.reads;
  }
  wakeup_.Set();
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = Await(wait.get(), [&] { return wait->done; });
    if (!status.ok()) {
      wait->abandoned = true;
      bulk_reads_.erase(wait->transfer_id);
      // The destination is the caller's again once we return.
      while (wait->copying) wait->changed.Wait(&mu_);
    }
  }
  DJINN_RETURN_IF_ERROR(status);
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  if (wait->received == 0 && bytes > 0) {
    std::memcpy(destination, wait->value.data(), bytes);
  }
  return absl::OkStatus();
}

void RemoteDevice::OnBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  uint64_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  std::shared_ptr<ReadWait> wait;
  bool misplaced = false;
  {
    MutexLock lock(&mu_);
    statistics_.bytes_down += size;
    ++progress_;
    const auto found = bulk_reads_.find(transfer_id);
    if (found == bulk_reads_.end()) return;  // nobody waits any more
    wait = found->second;
    misplaced = offset != wait->received || size > wait->bytes - offset;
    wait->copying = !misplaced;
  }
  if (misplaced) {
    Fail(MakeError(absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
                   absl::StrCat("the worker sent ", size, " bytes at ", offset,
                                " of a value where ", wait->received, " of ",
                                wait->bytes, " had come")));
    return;
  }
  char* destination = wait->destination + offset;
  for (const absl::string_view piece : pieces) {
    std::memcpy(destination, piece.data(), piece.size());
    destination += piece.size();
  }
  MutexLock lock(&mu_);
  wait->copying = false;
  wait->received += size;
  if (wait->received == wait->bytes) {
    bulk_reads_.erase(transfer_id);
    wait->done = wait->replied;
  }
  if (wait->done || wait->abandoned) wait->changed.SignalAll();
}

}  // namespace djinn
