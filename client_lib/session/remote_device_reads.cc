// Reads: what waits, and the bytes that come on Bulk.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

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

absl::Status RemoteDevice::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, bytes));
  const auto wait = std::make_shared<ReadWait>(destination, bytes);
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter());
    SealedSegments writers;
    recorder_.SealUsers(storage, /*writers_only=*/true, &writers);
    QueueSegments(writers);
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
    // What the value does not depend on comes after it: a loss is back before
    // the step that followed it was made.
    SealedSegments rest;
    recorder_.SealLane(lane, &rest);
    QueueSegments(rest);
    ++statistics_.reads;
  }
  SendNow();
  {
    MutexLock lock(&mu_);
    // A large value takes its time.
    size_t copied = 0;
    const absl::Status status = Await(
        wait.get(), [&] { return wait->done; },
        [&] {
          const size_t before = std::exchange(
              copied, wait->chunks.has_value() ? wait->chunks->copied() : 0);
          return copied != before;
        });
    if (!status.ok()) {
      wait->abandoned = true;
      // The destination is the caller's again once we return.
      while (wait->copying > 0) wait->changed.Wait(&mu_);
      return status;
    }
  }
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  if (wait->value.has_value()) {
    std::memcpy(destination, wait->value->data(), bytes);
  }
  return absl::OkStatus();
}

void RemoteDevice::OnBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  uint64_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  std::shared_ptr<ReadWait> wait;
  bool misplaced = false;
  bool copies = false;
  {
    MutexLock lock(&mu_);
    statistics_.bytes_down += size;
    ++progress_;
    const auto found = bulk_reads_.find(transfer_id);
    if (found == bulk_reads_.end()) return;  // sent again; known
    wait = found->second;
    misplaced = !wait->chunks->Fits(offset, size);
    if (!misplaced) {
      if (!wait->chunks->Take(offset)) return;  // likewise
      copies = !wait->abandoned;
      if (copies) ++wait->copying;
    }
  }
  if (misplaced) {
    Fail(MakeError(
        absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
        absl::StrCat("the worker broke the protocol: ", size, " bytes at ",
                     offset, " of a value of ", wait->bytes)));
    return;
  }
  if (copies) {
    char* destination = wait->destination + offset;
    for (const absl::string_view piece : pieces) {
      std::memcpy(destination, piece.data(), piece.size());
      destination += piece.size();
    }
  }
  bool acknowledge = false;
  {
    MutexLock lock(&mu_);
    if (copies) --wait->copying;
    wait->chunks->Copied();
    if (wait->announced && wait->chunks->complete()) {
      bulk_reads_.erase(transfer_id);
      replies_.Release(wait->reply_number, wait->bytes);
      wait->done = true;
      acknowledge = replies_.Due();
    }
    if (wait->done || wait->abandoned) wait->changed.SignalAll();
  }
  if (acknowledge) wakeup_.Set();
}

}  // namespace djinn
