#include "gpu_worker/supervisor/span_buffer.h"

#include <utility>

namespace djinn::worker {

void SpanBuffer::Add(Span span) {
  MutexLock lock(&mu_);
  if (spans_.size() >= kMaxSpans) {
    ++dropped_;
  } else {
    spans_.push_back(std::move(span));
  }
}

std::optional<v1::ExecutorSpans> SpanBuffer::Take() {
  MutexLock lock(&mu_);
  if (spans_.empty() && dropped_ == 0) return std::nullopt;
  v1::ExecutorSpans message;
  message.set_dropped(std::exchange(dropped_, 0));
  while (!spans_.empty() &&
         message.spans_size() < static_cast<int>(kMaxTogether)) {
    *message.add_spans() = std::move(spans_.front());
    spans_.pop_front();
  }
  return message;
}

}  // namespace djinn::worker
