#include "client_lib/session/transfer/eager_uploads.h"

#include <algorithm>

#include "common/transport/stream.h"

namespace djinn {
namespace {

// The window for messages holds this many uploads of the largest eager size.
constexpr uint64_t kLeastInWindow = 4;

}  // namespace

void EagerUploads::Begin(const v1::WorkerHello& hello) {
  most_bytes_ = std::min<uint64_t>(
      kMaxContentBytes,
      hello.limits().max_outstanding_bytes() / kLeastInWindow);
  room_bytes_ = heard_at_ = 0;
}

void EagerUploads::Hear(const v1::ControlResponse& response) {
  if (!response.has_content_room() ||
      (!response.has_hello() && response.completed_sequence() < heard_at_)) {
    return;
  }
  room_bytes_ = response.content_room();
  heard_at_ = response.completed_sequence();
}

bool EagerUploads::Remember(const ContentHash& hash) {
  const bool before = latest_.contains(hash) || earlier_.contains(hash);
  latest_.insert(hash);
  if (latest_.size() >= kMaxRemembered) {
    earlier_.swap(latest_);
    latest_.clear();
  }
  return before;
}

bool EagerUploads::Take(uint64_t size_bytes) {
  if (size_bytes > most_bytes_ || under_way_bytes_ + size_bytes > room_bytes_) {
    return false;
  }
  under_way_bytes_ += size_bytes;
  return true;
}

}  // namespace djinn
