// Reports the progress of uploads to a callback of the program
// (djinn/transfers.h).
#ifndef CLIENT_LIB_SESSION_TRANSFER_UPLOAD_PROGRESS_H_
#define CLIENT_LIB_SESSION_TRANSFER_UPLOAD_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace djinn {

using ProgressCallback = std::function<void(uint64_t done, uint64_t total)>;

// Sets the process's callback for later uploads of at least `min_bytes`. Null
// removes the callback. Thread-safe.
void WatchUploads(ProgressCallback callback, uint64_t min_bytes);

// Reports the progress of one upload. Not thread-safe.
class UploadProgress {
 public:
  // The approximate number of reports per upload.
  static constexpr uint64_t kReports = 100;

  explicit UploadProgress(uint64_t total_bytes);

  bool watched() const { return callback_ != nullptr; }
  // Calls the callback, if there is one and enough bytes have moved since its
  // last call. Bytes that are sent a second time are not reported a second
  // time.
  void Sent(uint64_t done_bytes);
  // Reports that the worker has everything.
  void Finish();

 private:
  const uint64_t total_;
  uint64_t next_ = 0;  // the next report is due at this many bytes
  std::shared_ptr<const ProgressCallback> callback_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_UPLOAD_PROGRESS_H_
