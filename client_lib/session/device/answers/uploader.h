// Uploads values to a replica's worker: inside the message if they are small
// or eager (eager_uploads.h), otherwise after a question by hash, whose states
// upload_table.h describes.
//
// Thread-safe. The state of uploads is among the answers (answers.h); the
// uploader itself has only the worker's limits, in atomics.
#ifndef CLIENT_LIB_SESSION_DEVICE_ANSWERS_UPLOADER_H_
#define CLIENT_LIB_SESSION_DEVICE_ANSWERS_UPLOADER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/device/answers/answers.h"
#include "client_lib/session/device/outgoing/call_recorder.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/session.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "client_lib/session/transfer/upload_progress.h"
#include "client_lib/session/transfer/work.h"
#include "common/transport/shared_bytes.h"

namespace djinn {

class Uploader {
 public:
  // The parts must outlive the uploader. `used_bytes` counts the bytes of the
  // live storages on the worker; `moves` counts the chunks that moved.
  Uploader(const SessionOptions* options,
           const std::atomic<int64_t>* used_bytes, CallRecorder* recorder,
           Answers* answers, SenderSignal* sender, std::atomic<uint64_t>* moves)
      : options_(options),
        used_bytes_(used_bytes),
        recorder_(recorder),
        answers_(answers),
        sender_(sender),
        moves_(moves) {}

  // See VirtualDevice. `permits_eager` says whether the worker and the device
  // permit an eager upload now; it is called without locks.
  absl::Status Upload(uint32_t lane, RemoteStorage* storage, SharedBytes source,
                      absl::FunctionRef<bool()> permits_eager);

  // Uploads bytes once more to a worker that takes the place of a lost one. The
  // Install was queued with `wait`. `bytes` has no owner if they are not here
  // any more, so that the worker must have them.
  absl::Status SendAgain(const std::shared_ptr<UploadWait>& wait,
                         SharedBytes bytes);

  // These set the limits once they are known.
  void SetInlineBytes(uint64_t bytes) {
    inline_bytes_.store(bytes, std::memory_order_relaxed);
  }
  void SetMemoryBytes(uint64_t bytes) {
    memory_bytes_.store(bytes, std::memory_order_relaxed);
  }
  // Returns the session's memory limit on the worker, or UINT64_MAX while it is
  // unknown.
  uint64_t memory_bytes() const {
    return memory_bytes_.load(std::memory_order_relaxed);
  }

 private:
  absl::Status QueueInstall(uint32_t lane, RemoteStorage* storage,
                            InstallWork install);
  // Returns whether the upload is eager, in which case it counts as under way.
  // Notes in `install` whether the content was uploaded before.
  bool GoesEagerly(uint64_t size, absl::FunctionRef<bool()> permits_eager,
                   InstallWork* install);
  absl::Status UploadLarge(uint32_t lane, RemoteStorage* storage,
                           InstallWork install);
  // Waits for the worker's decision and sends what the worker asks for.
  absl::Status Finish(UploadWait* wait, SharedBytes source);
  // Proves to the worker that this process has the bytes.
  void Prove(UploadWait* wait, absl::string_view bytes);
  absl::Status SendTransfer(UploadWait* wait, SharedBytes source,
                            UploadProgress* progress);

  const SessionOptions* const options_;
  const std::atomic<int64_t>* const used_bytes_;
  CallRecorder* const recorder_;
  Answers* const answers_;
  SenderSignal* const sender_;
  std::atomic<uint64_t>* const moves_;
  std::atomic<uint64_t> inline_bytes_{kLeastInlineBytes};
  std::atomic<uint64_t> memory_bytes_{UINT64_MAX};
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_ANSWERS_UPLOADER_H_
