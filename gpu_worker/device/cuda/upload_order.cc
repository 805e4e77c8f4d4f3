#include "gpu_worker/device/cuda/upload_order.h"

#include <utility>

namespace djinn::worker {

void UploadOrder::Add(const TorchBuffer& buffer) {
  // Even if nothing is written: its memory may have been another's, for whom
  // the stream still has something to do.
  EventPtr event = accelerator_.Record(StreamId::kCopyIn);
  MutexLock lock(&mu_);
  events_[&buffer] = std::move(event);
  count_.store(events_.size(), std::memory_order_release);
}

void UploadOrder::Wrote(const TorchBuffer& buffer) {
  // Recorded under the lock: of two writers the later event stays.
  MutexLock lock(&mu_);
  const auto found = events_.find(&buffer);
  if (found == events_.end()) return;
  found->second = accelerator_.Record(StreamId::kCopyIn);
}

EventPtr UploadOrder::EventOf(const TorchBuffer& buffer) const {
  MutexLock lock(&mu_);
  const auto found = events_.find(&buffer);
  return found == events_.end() ? nullptr : found->second;
}

void UploadOrder::JoinNow(const TorchBuffer& buffer) {
  EventPtr event;
  {
    MutexLock lock(&mu_);
    const auto found = events_.find(&buffer);
    if (found == events_.end()) return;
    event = std::move(found->second);
    events_.erase(found);
    count_.store(events_.size(), std::memory_order_release);
  }
  accelerator_.Wait(StreamId::kCompute, event);
  accelerator_.UsedBy(buffer.storage(), StreamId::kCompute);
}

void UploadOrder::Forget(const TorchBuffer& buffer) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  MutexLock lock(&mu_);
  events_.erase(&buffer);
  count_.store(events_.size(), std::memory_order_release);
}

}  // namespace djinn::worker
