#include "client_lib/transport/graph_queue.h"

#include <utility>

namespace djinn {

bool GraphQueue::Push(v1::SessionRequest request, size_t bytes) {
  if (items_.size() >= max_graphs_ || bytes > max_bytes_ - bytes_) {
    ++dropped_;
    return false;
  }
  bytes_ += bytes;
  items_.push_back({std::move(request), bytes});
  return true;
}

const v1::SessionRequest* GraphQueue::Front() const {
  return items_.empty() ? nullptr : &items_.front().request;
}

void GraphQueue::Pop() {
  if (items_.empty()) return;
  bytes_ -= items_.front().bytes;
  items_.pop_front();
}

void GraphQueue::Clear() {
  items_.clear();
  bytes_ = 0;
}

}  // namespace djinn
