// Collects spans, for tests.
#ifndef COMMON_TRACE_TESTING_COLLECTED_SPANS_H_
#define COMMON_TRACE_TESTING_COLLECTED_SPANS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/trace/span.h"

namespace djinn {

// Takes spans of every valid context but one. Thread-safe.
class CollectedSpans final : public SpanSink {
 public:
  // The lower half of the trace id that is not taken.
  static constexpr uint64_t kUnwanted = 13;

  bool Takes(const TraceContext& context) const override {
    return context.valid() && context.trace_low != kUnwanted;
  }
  void Add(Span span) override {
    MutexLock lock(&mu_);
    spans_.push_back(std::move(span));
  }
  // Returns the spans since the last call.
  std::vector<Span> Take() {
    MutexLock lock(&mu_);
    return std::exchange(spans_, {});
  }

 private:
  Mutex mu_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mu_);
};

inline absl::Duration Took(const Span& span) {
  return absl::Nanoseconds(span.end_time_unix_nano() -
                           span.start_time_unix_nano());
}

inline std::vector<std::string> NamesOf(const std::vector<Span>& spans) {
  std::vector<std::string> names;
  names.reserve(spans.size());
  for (const Span& span : spans) names.push_back(span.name());
  return names;
}

}  // namespace djinn

#endif  // COMMON_TRACE_TESTING_COLLECTED_SPANS_H_
