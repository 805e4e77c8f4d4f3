// Keeps an executor's spans until they are sent to its supervisor.
#ifndef GPU_WORKER_SUPERVISOR_SPAN_BUFFER_H_
#define GPU_WORKER_SUPERVISOR_SPAN_BUFFER_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "common/base/mutex.h"
#include "common/trace/span.h"
#include "djinn/v1/supervision.pb.h"

namespace djinn::worker {

// Thread-safe.
class SpanBuffer final : public SpanSink {
 public:
  // Most waiting spans, and most spans of one message.
  static constexpr size_t kMaxSpans = 1024;
  static constexpr size_t kMaxTogether = 512;

  // `ratio` is the share of traces that are taken.
  explicit SpanBuffer(double ratio) : ratio_(ratio) {}

  bool Takes(const TraceContext& context) const override {
    return context.valid() && IsSampled(context, ratio_);
  }
  // Drops and counts a span that finds no room.
  void Add(Span span) override;

  // Returns the next message; nullopt if there are no spans and no drops.
  std::optional<v1::ExecutorSpans> Take();

 private:
  const double ratio_;
  Mutex mu_;
  std::deque<Span> spans_ ABSL_GUARDED_BY(mu_);
  uint64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_SPAN_BUFFER_H_
