#include "client_lib/session/transfer/upload_progress.h"

#include <algorithm>
#include <utility>

#include "common/base/mutex.h"

namespace djinn {
namespace {

// Never destroyed, because uploads may continue while the process ends.
struct Watcher {
  Mutex mu;
  std::shared_ptr<const ProgressCallback> callback ABSL_GUARDED_BY(mu);
  uint64_t min_bytes ABSL_GUARDED_BY(mu) = 0;

  static Watcher& Get() {
    static Watcher* const watcher = new Watcher;
    return *watcher;
  }
};

}  // namespace

void WatchUploads(ProgressCallback callback, uint64_t min_bytes) {
  auto shared =
      callback == nullptr
          ? nullptr
          : std::make_shared<const ProgressCallback>(std::move(callback));
  Watcher& watcher = Watcher::Get();
  MutexLock lock(&watcher.mu);
  watcher.callback.swap(shared);
  watcher.min_bytes = min_bytes;
}

UploadProgress::UploadProgress(uint64_t total_bytes) : total_(total_bytes) {
  Watcher& watcher = Watcher::Get();
  MutexLock lock(&watcher.mu);
  if (total_bytes >= watcher.min_bytes) callback_ = watcher.callback;
}

void UploadProgress::Sent(uint64_t done_bytes) {
  if (callback_ == nullptr || done_bytes < next_ || done_bytes >= total_) {
    return;
  }
  next_ = done_bytes + std::max<uint64_t>(total_ / kReports, 1);
  (*callback_)(done_bytes, total_);
}

void UploadProgress::Finish() {
  if (callback_ != nullptr) (*callback_)(total_, total_);
}

}  // namespace djinn
