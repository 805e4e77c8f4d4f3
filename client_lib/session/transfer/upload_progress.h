// Who is told how far an upload has come: see djinn/transfers.h.
#ifndef CLIENT_LIB_SESSION_TRANSFER_UPLOAD_PROGRESS_H_
#define CLIENT_LIB_SESSION_TRANSFER_UPLOAD_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace djinn {

using ProgressCallback = std::function<void(uint64_t done, uint64_t total)>;

// For the process, from the next upload on; null: nobody. Thread-safe.
void WatchUploads(ProgressCallback callback, uint64_t min_bytes);

// One upload's reports. Not thread-safe.
class UploadProgress {
 public:
  // Reports made of one upload, about.
  static constexpr uint64_t kReports = 100;

  explicit UploadProgress(uint64_t total_bytes);

  bool watched() const { return callback_ != nullptr; }
  // Says so unless nobody watches, or little has moved since. What is sent a
  // second time is not said again. Calls out.
  void Sent(uint64_t done_bytes);
  // The worker has everything.
  void Finish();

 private:
  const uint64_t total_;
  uint64_t next_ = 0;  // not said below this
  std::shared_ptr<const ProgressCallback> callback_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_UPLOAD_PROGRESS_H_
