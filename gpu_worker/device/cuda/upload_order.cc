#include "gpu_worker/device/cuda/upload_order.h"

#include <utility>

namespace djinn::worker {

void UploadOrder::Add(const TorchBuffer& buffer) {
  // Records an event even if nothing is written: the stream may still have
  // commands for the memory's earlier owner.
  EventPtr event = accelerator_.Record(StreamId::kCopyIn);
  MutexLock lock(&mu_);
  events_[&buffer] = std::move(event);
  count_.store(events_.size(), std::memory_order_release);
}

void UploadOrder::Wrote(const TorchBuffer& buffer) {
  // Records the event under the lock, so that the later event of two writers
  // stays.
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
