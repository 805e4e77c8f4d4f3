#include "client_lib/session/model/address_space.h"

namespace djinn {

AddressSpace::AddressSpace(uint64_t size_bytes) {
  MutexLock lock(&mu_);
  // As the end of the list, the sentinel ends at 0, where the first gap begins;
  // as its start, the sentinel begins at the size, where the last gap ends.
  ends_.begin_ = size_bytes;
  ends_.before_ = ends_.after_ = &ends_;
}

bool AddressSpace::Take(uint64_t bytes, AddressRange* range) {
  // Guards against overflow below as well.
  if (bytes > UINT64_MAX - kGranularity) return false;
  const uint64_t size = (bytes / kGranularity + 1) * kGranularity;
  MutexLock lock(&mu_);
  bool around = false;
  while (behind_->begin_ - next_ < size) {
    // The search visits every gap between two encounters with the sentinel.
    if (behind_ == &ends_) {
      if (around) return false;
      around = true;
    }
    next_ = behind_->end_;
    behind_ = behind_->after_;
  }
  range->begin_ = next_;
  range->end_ = next_ += size;
  range->before_ = behind_->before_;
  range->after_ = behind_;
  range->before_->after_ = range;
  behind_->before_ = range;
  return true;
}

void AddressSpace::Release(AddressRange* range) {
  MutexLock lock(&mu_);
  if (range->after_ == nullptr) return;
  if (behind_ == range) behind_ = range->after_;
  range->before_->after_ = range->after_;
  range->after_->before_ = range->before_;
  range->before_ = range->after_ = nullptr;
  range->begin_ = range->end_ = 0;
}

}  // namespace djinn
