// Builds OpenTelemetry's spans, and takes them.
//
// Attributes hold no secrets: no token, no full session id, no value of a
// tensor, and no other tenant's name.
#ifndef COMMON_TRACE_SPAN_H_
#define COMMON_TRACE_SPAN_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/trace/trace_context.h"
#include "opentelemetry/proto/trace/v1/trace.pb.h"

namespace djinn {

using Span = opentelemetry::proto::trace::v1::Span;

// Limits on spans: what executors send beyond them is refused.
inline constexpr int kMaxSpanAttributes = 32;
inline constexpr size_t kMaxSpanText = 200;
inline constexpr size_t kMaxSpanBytes = 4096;

// Relates a clock's monotonic time to its wall time, as they were when this was
// made. All spans of one tree should use the same relation.
class WallTimes {
 public:
  explicit WallTimes(Clock* clock);
  absl::Time At(absl::Duration monotonic) const { return origin_ + monotonic; }

 private:
  absl::Time origin_;
};

// Returns the span `self`, whose parent is `parent` of the same trace; 0: it is
// the root. Texts are cut at kMaxSpanText bytes. An end before the beginning
// counts as the beginning.
Span MakeSpan(const TraceContext& self, uint64_t parent, absl::string_view name,
              Span::SpanKind kind, absl::Time began, absl::Time ended);

// Returns the context of a span, which is invalid if an id has a wrong size.
TraceContext ContextOf(const Span& span);

// Each of these adds an attribute. A time is at least 0, and at most a century.
void AddText(absl::string_view key, absl::string_view value, Span* span);
void AddNumber(absl::string_view key, int64_t value, Span* span);
void AddSeconds(absl::string_view key, absl::Duration value, Span* span);

// States that what the span describes failed for `reason`, which is in
// UPPER_SNAKE_CASE.
void SetFailed(absl::string_view reason, Span* span);

// Takes spans of sampled traces. Thread-safe; never blocks.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Returns whether spans of this trace are wanted here.
  virtual bool Takes(const TraceContext& context) const = 0;
  virtual void Add(Span span) = 0;
};

}  // namespace djinn

#endif  // COMMON_TRACE_SPAN_H_
