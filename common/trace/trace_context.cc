#include "common/trace/trace_context.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {
namespace {

// Lengths of the parts of version 00, dashes included.
constexpr size_t kLength = 55;

absl::Status Bad(absl::string_view text, absl::string_view what) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, "BAD_TRACEPARENT",
      absl::StrCat("traceparent \"", text.substr(0, 2 * kLength), "\": ", what,
                   "; expected VERSION-TRACE_ID-PARENT_ID-FLAGS in lower-case "
                   "hex, as in W3C Trace Context"));
}

// Parses lower-case hex of at most 16 digits.
bool ParseHex(absl::string_view text, uint64_t* value) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                     }) &&
         absl::SimpleHexAtoi(text, value);
}

}  // namespace

absl::StatusOr<Traceparent> ParseTraceparent(absl::string_view text) {
  uint64_t version, flags;
  Traceparent parent;
  TraceContext& context = parent.context;
  if (text.size() < kLength) return Bad(text, "it is too short");
  if (text[2] != '-' || text[35] != '-' || text[52] != '-' ||
      !ParseHex(text.substr(0, 2), &version) ||
      !ParseHex(text.substr(3, 16), &context.trace_high) ||
      !ParseHex(text.substr(19, 16), &context.trace_low) ||
      !ParseHex(text.substr(36, 16), &context.span_id) ||
      !ParseHex(text.substr(53, 2), &flags)) {
    return Bad(text, "a part is malformed");
  }
  if (version == 0xff) return Bad(text, "there is no version ff");
  if (text.size() > kLength && (version == 0 || text[kLength] != '-')) {
    return Bad(text, "it is too long");
  }
  if (!context.valid()) return Bad(text, "an id is zero");
  parent.sampled = (flags & 1) != 0;
  return parent;
}

bool IsSampled(const TraceContext& context, double ratio) {
  // The last 7 bytes are random in every trace id (W3C Trace Context, level 2).
  constexpr int kBits = 56;
  constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
  return static_cast<double>(context.trace_low & kMask) <
         ratio * static_cast<double>(uint64_t{1} << kBits);
}

v1::TraceContext ToProto(const TraceContext& context) {
  v1::TraceContext proto;
  proto.set_trace_high(context.trace_high);
  proto.set_trace_low(context.trace_low);
  proto.set_span_id(context.span_id);
  proto.set_nodes(context.nodes);
  return proto;
}

TraceContext FromProto(const v1::TraceContext& proto) {
  return {proto.trace_high(), proto.trace_low(), proto.span_id(),
          proto.nodes()};
}

uint64_t SpanIds::Next() {
  // SplitMix64.
  for (;;) {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    if (z != 0) return z;
  }
}

}  // namespace djinn
