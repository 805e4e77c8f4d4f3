// Identifies a span within a trace, as W3C's Trace Context does, and decides
// which traces are sampled.
//
// A trace is sampled or not by its id alone, so processes with the same ratio
// keep the same traces.
#ifndef COMMON_TRACE_TRACE_CONTEXT_H_
#define COMMON_TRACE_TRACE_CONTEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/trace.pb.h"

namespace djinn {

struct TraceContext {
  // The two halves of the trace id; both 0 in none.
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t span_id = 0;
  // Asks for spans of nodes.
  bool nodes = false;

  // Returns whether this names a span. Others stand for "not traced".
  bool valid() const { return (trace_high | trace_low) != 0 && span_id != 0; }
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// A context as a program gives it.
struct Traceparent {
  TraceContext context;
  // The program's own decision.
  bool sampled = false;
};

// Parses a `traceparent` header such as
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Accepts longer
// texts of later versions. InvalidArgument (BAD_TRACEPARENT) says what is
// wrong.
absl::StatusOr<Traceparent> ParseTraceparent(absl::string_view text);

// Returns whether a ratio between 0 and 1 includes the trace.
bool IsSampled(const TraceContext& context, double ratio);

v1::TraceContext ToProto(const TraceContext& context);
// Returns an invalid context for an incomplete message.
TraceContext FromProto(const v1::TraceContext& proto);

// Draws ids from a seed. They differ, but they are not secret. Not thread-safe.
class SpanIds {
 public:
  explicit SpanIds(uint64_t seed) : state_(seed) {}
  // Returns an id that is not 0.
  uint64_t Next();

 private:
  uint64_t state_;
};

}  // namespace djinn

#endif  // COMMON_TRACE_TRACE_CONTEXT_H_
