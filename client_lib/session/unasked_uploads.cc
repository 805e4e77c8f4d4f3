#include "client_lib/session/unasked_uploads.h"

#include <algorithm>

#include "client_lib/session/worker_features.h"
#include "common/transport/stream.h"

namespace djinn {
namespace {

// Of what may be under way to the worker at once: others follow meanwhile.
constexpr uint64_t kLeastUnderWay = 4;

}  // namespace

void UnaskedUploads::Begin(const v1::WorkerHello& hello) {
  most_bytes_ = 0;
  if (WorkerFeatures::Of(hello).contents) {
    most_bytes_ = std::min<uint64_t>(
        kMaxContentBytes,
        hello.limits().max_outstanding_bytes() / kLeastUnderWay);
  }
  room_bytes_ = heard_at_ = 0;
  const v1::HeldContents& held = hello.held();
  held_samples_ = {held.samples().begin(), held.samples().end()};
  held_sizes_ = {held.sizes().begin(), held.sizes().end()};
}

void UnaskedUploads::Hear(const v1::ControlResponse& response) {
  if (!response.has_content_room() ||
      (!response.has_hello() && response.completed_sequence() < heard_at_)) {
    return;
  }
  room_bytes_ = response.content_room();
  heard_at_ = response.completed_sequence();
}

bool UnaskedUploads::Take(uint64_t size_bytes, uint64_t sample, bool fits) {
  const bool there = MayBeThere(size_bytes, sample);
  Remember(sample);
  if (there || !fits || size_bytes > most_bytes_ ||
      under_way_bytes_ + size_bytes > room_bytes_) {
    return false;
  }
  under_way_bytes_ += size_bytes;
  return true;
}

bool UnaskedUploads::MayBeThere(uint64_t size_bytes, uint64_t sample) const {
  return held_sizes_.contains(size_bytes) || held_samples_.contains(sample) ||
         latest_.contains(sample) || earlier_.contains(sample);
}

void UnaskedUploads::Remember(uint64_t sample) {
  latest_.insert(sample);
  if (latest_.size() < kMaxRemembered) return;
  earlier_.swap(latest_);
  latest_.clear();
}

}  // namespace djinn
