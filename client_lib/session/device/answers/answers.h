// Holds what a device has asked its worker for, and the threads that wait for
// the answers: reads, metadata, uploads, use, models, and profiles.
//
// `mu` guards every field, and the fields of a wait until that is done; then
// they belong to the thread that waited. Lock order: recorder, connection,
// `mu`, receiver. The stream's thread applies a message of the worker under
// `mu` and the connection's lock, so that a thread sees all of its effects or
// none.
#ifndef CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWERS_H_
#define CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client_lib/session/device/answers/answer_receiver.h"
#include "client_lib/session/device/answers/answer_table.h"
#include "client_lib/session/device/outgoing/request_profiler.h"
#include "client_lib/session/recording/session.h"
#include "client_lib/session/transfer/eager_uploads.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/upload_table.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/mutex.h"
#include "djinn/statistics.h"

namespace djinn {

// Sends to the worker what the recorder queued. Called without locks.
class SenderSignal {
 public:
  virtual ~SenderSignal() = default;
  // Lets the calling thread, which waits for the outcome anyway, be the sender
  // if no other thread is.
  virtual void SendNow() = 0;
  // Wakes the device's own thread.
  virtual void Wake() = 0;
};

struct Answers {
  Answers(const SessionOptions* options, AnswerReceiver* receiver)
      : options(options), receiver(receiver) {}

  // --- For threads that wait

  // Waits until `done`, the device's failure or the operation timeout. The
  // timeout restarts when something `moved` since the last check, or a recovery
  // did.
  absl::Status Await(
      Waiter* waiter, absl::FunctionRef<bool()> done,
      absl::FunctionRef<bool()> moved = [] { return false; })
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Waits for the value. The operation timeout restarts while its chunks
  // arrive. Returns DeadlineExceeded (VALUE_PENDING) after `timeout`. The
  // caller keeps the read in `waiters`, because several threads may wait for
  // it.
  absl::Status AwaitRead(ReadWait* wait, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Abandons the read and waits until the destination is the caller's again.
  // The wait needs no deadline: a callback that copies a chunk to the
  // destination does nothing else.
  void Abandon(ReadWait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Notes that a call of the program returns the status of such a wait.
  void NoteTold(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!status.ok() && !failure.ok()) failure_told = true;
  }
  // Returns the error of a worker that does not answer in time.
  absl::Status NoAnswer() const;
  // Notes that a recovery made progress, if one is under way. While one does,
  // no wait for an answer ends: the operation timeout restarts. Any thread may
  // call it, under any lock.
  void NoteReplayed() {
    if (replays.load(std::memory_order_relaxed)) {
      replay_moves.fetch_add(1, std::memory_order_relaxed);
    }
  }
  // Returns whether a waiting thread may lead (answer_receiver.h). A leader
  // must not run the program's callbacks, so none leads while one awaits a
  // read. It must not miss a value on Bulk, so none leads while one is awaited
  // from a stream whose leader does not receive Bulk.
  bool may_lead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const ReadTable& reads = table.reads();
    return !reads.has_watched() &&
           (!reads.has_bulk() || receiver->leads_bulk());
  }

  // --- For the stream's callbacks, and for those that end the device

  // Copies a chunk of a value to its destination. Returns the read, or null if
  // the chunk is a repeated one. Sets `copies` if the read counts this chunk as
  // being copied, which the caller ends. An error is a breach of the protocol.
  absl::StatusOr<std::shared_ptr<ReadWait>> TakeChunk(
      uint64_t transfer_id, uint64_t offset,
      absl::Span<const absl::string_view> pieces, bool* copies)
      ABSL_LOCKS_EXCLUDED(mu);
  // Notes that the worker answered the hello of a new stream.
  void OnConnected() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Ends every wait with `why`, or with the first such reason, and makes all
  // callbacks due.
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu);
  // Returns the callbacks that are due; the caller runs them without locks.
  // Only the stream's thread, the device's own, and the one that closes the
  // session call this: the callbacks may take locks that other threads of the
  // program hold.
  ReadTable::Callbacks TakeDue() ABSL_LOCKS_EXCLUDED(mu);

  const SessionOptions* const options;
  AnswerReceiver* const receiver;

  mutable Mutex mu;
  AnswerTable table ABSL_GUARDED_BY(mu);
  UploadTable uploads ABSL_GUARDED_BY(mu);
  EagerUploads eager ABSL_GUARDED_BY(mu);
  RequestProfiler profiler ABSL_GUARDED_BY(mu);
  // The count root_errors is kept elsewhere.
  Statistics statistics ABSL_GUARDED_BY(mu);
  // Threads that wait, and reads that a program may wait for.
  absl::flat_hash_set<Waiter*> waiters ABSL_GUARDED_BY(mu);
  // Streams on which the worker answered the hello so far.
  uint64_t connections ABSL_GUARDED_BY(mu) = 0;
  // The error that every wait returns from now on.
  absl::Status failure ABSL_GUARDED_BY(mu);
  // A call of the program has returned the device's failure.
  std::atomic<bool> failure_told{false};

  // The device recovers, and its new worker has not executed all that is
  // replayed.
  std::atomic<bool> replays{false};
  // Counts the steps of recoveries. See NoteReplayed().
  std::atomic<uint64_t> replay_moves{0};

 private:
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_ANSWERS_ANSWERS_H_
