#include "client_lib/transport/structure_queue.h"

#include <utility>

namespace djinn {

bool StructureQueue::Push(v1::SessionRequest request, size_t bytes) {
  if (items_.size() >= max_structures_ || bytes > max_bytes_ - bytes_) {
    ++dropped_;
    return false;
  }
  bytes_ += bytes;
  items_.push_back({std::move(request), bytes});
  return true;
}

const v1::SessionRequest* StructureQueue::Front() const {
  return items_.empty() ? nullptr : &items_.front().request;
}

void StructureQueue::Pop() {
  if (items_.empty()) return;
  bytes_ -= items_.front().bytes;
  items_.pop_front();
}

void StructureQueue::Clear() {
  items_.clear();
  bytes_ = 0;
}

}  // namespace djinn
