// Reads values of a replica's storages for the program.
//
// Thread-safe. It has no state of its own: a read is in the recorder until it
// is queued, and among the answers (answers.h) from then on.
#ifndef CLIENT_LIB_SESSION_DEVICE_ANSWERS_VALUE_READER_H_
#define CLIENT_LIB_SESSION_DEVICE_ANSWERS_VALUE_READER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/session/device/answers/answers.h"
#include "client_lib/session/device/outgoing/call_recorder.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/work.h"
#include "common/srg/graph.h"

namespace djinn {

class ValueReader {
 public:
  // The parts must outlive the reader and its reads.
  ValueReader(int index, SessionContext* context, CallRecorder* recorder,
              Answers* answers, SenderSignal* sender)
      : index_(index),
        context_(context),
        recorder_(recorder),
        answers_(answers),
        sender_(sender) {}

  // See RemoteDevice for these methods. A PendingRead keeps `owner`.
  absl::StatusOr<std::shared_ptr<ReadWait>> Begin(uint32_t lane,
                                                  RemoteStorage* storage,
                                                  const srg::TensorView& view,
                                                  void* destination,
                                                  uint64_t bytes);
  absl::Status Finish(ReadWait* wait, void* destination);
  absl::StatusOr<std::unique_ptr<PendingRead>> Start(
      std::shared_ptr<void> owner, uint32_t lane, RemoteStorage* storage,
      const srg::TensorView& view, void* destination, uint64_t bytes);
  absl::Status CheckSound(uint32_t lane, RemoteStorage* storage);

 private:
  class Handle;

  // Returns whether the process knows the value of a read of one element, which
  // is then in `destination`.
  absl::StatusOr<bool> AnswerFromHost(uint32_t lane,
                                      const RemoteStorage& storage,
                                      const srg::TensorView& view,
                                      void* destination, uint64_t bytes);
  // Queues the read. Replaces `wait` by that of a prefetched read if there is
  // one.
  absl::Status Issue(uint32_t lane, RemoteStorage* storage,
                     const srg::TensorView& view,
                     std::shared_ptr<ReadWait>* wait);
  // Waits for the answer. Abandons the read if there is none.
  absl::Status AwaitOrAbandon(ReadWait* wait);
  // Adds the times of an answered read to the profile of the process.
  void AddToProfile(ReadWait* wait);
  // Exports the spans of the sampled request that the read ended.
  void ExportTrace(ReadWait* wait, const absl::Status& outcome);
  absl::Duration Now() const { return context_->options.clock->Monotonic(); }

  const int index_;
  SessionContext* const context_;
  CallRecorder* const recorder_;
  Answers* const answers_;
  SenderSignal* const sender_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_ANSWERS_VALUE_READER_H_
