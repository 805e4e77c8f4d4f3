#include "client_lib/session/device/answers/answers.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/io/fresh_memory.h"

namespace djinn {

absl::Status Answers::Await(Waiter* waiter, absl::FunctionRef<bool()> done,
                            absl::FunctionRef<bool()> moved) {
  Deadline deadline(options->operation_timeout, options->clock);
  uint64_t replayed = replay_moves;
  waiters.insert(waiter);
  absl::Status status;
  while (!done()) {
    if (!failure.ok()) {
      status = failure;
      break;
    }
    if (deadline.passed()) {
      if (moved() || replay_moves != replayed) {
        replayed = replay_moves;
        deadline = Deadline(options->operation_timeout, options->clock);
        continue;
      }
      status = NoAnswer();
      break;
    }
    receiver->WaitOrReceive(
        &mu, &waiter->changed,
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
          return done() || !failure.ok();
        },
        deadline, may_lead());
  }
  waiters.erase(waiter);
  return status;
}

absl::Status Answers::AwaitRead(ReadWait* wait, absl::Duration timeout) {
  const Deadline deadline(timeout, options->clock);
  Deadline patience(options->operation_timeout, options->clock);
  size_t copied = 0;
  uint64_t replayed = replay_moves;
  while (!wait->done) {
    if (!failure.ok()) {
      NoteTold(failure);
      return failure;
    }
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "VALUE_PENDING",
                       absl::StrCat("the value was not here within ",
                                    absl::FormatDuration(timeout)));
    }
    if (patience.passed()) {
      // A large value may take longer as long as its chunks arrive.
      const size_t before = std::exchange(
          copied, wait->chunks.has_value() ? wait->chunks->copied() : 0);
      const uint64_t replayed_before = std::exchange(replayed, replay_moves);
      if (copied == before && replayed == replayed_before) return NoAnswer();
      patience = Deadline(options->operation_timeout, options->clock);
    }
    receiver->WaitOrReceive(
        &mu, &wait->changed,
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
          return wait->done || !failure.ok();
        },
        deadline.left() < patience.left() ? deadline : patience, may_lead());
  }
  return absl::OkStatus();
}

void Answers::Abandon(ReadWait* wait) {
  wait->abandoned = true;
  while (wait->copying > 0) wait->changed.Wait(&mu);
}

absl::Status Answers::NoAnswer() const {
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
      absl::StrCat("the worker did not answer within ",
                   absl::FormatDuration(options->operation_timeout)));
}

absl::StatusOr<std::shared_ptr<ReadWait>> Answers::TakeChunk(
    uint64_t transfer_id, uint64_t offset,
    absl::Span<const absl::string_view> pieces, bool* copies) {
  uint64_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  std::shared_ptr<ReadWait> wait;
  {
    MutexLock lock(&mu);
    statistics.bytes_down += size;
    wait = table.reads().FindBulk(transfer_id);
    if (wait == nullptr) return nullptr;  // of a known value
    if (!wait->chunks->Fits(offset, size)) {
      return Violation(absl::StrCat(size, " bytes at ", offset,
                                    " of a value of ", wait->bytes));
    }
    if (!wait->chunks->Take(offset)) return nullptr;
    *copies = !wait->abandoned;
    if (*copies) ++wait->copying;
  }
  if (*copies) {
    char* destination = wait->destination + offset;
    PopulateForWrite(destination, size);
    for (const absl::string_view piece : pieces) {
      std::memcpy(destination, piece.data(), piece.size());
      destination += piece.size();
    }
  }
  return wait;
}

void Answers::WakeAll() {
  for (Waiter* waiter : waiters) waiter->changed.SignalAll();
}

void Answers::OnConnected() {
  ++connections;
  WakeAll();
}

void Answers::Fail(const absl::Status& why) {
  MutexLock lock(&mu);
  if (failure.ok()) failure = why;
  WakeAll();
  table.reads().FinishWatched();
}

ReadTable::Callbacks Answers::TakeDue() {
  MutexLock lock(&mu);
  return table.reads().TakeDue();
}

}  // namespace djinn
