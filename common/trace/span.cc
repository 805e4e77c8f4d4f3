#include "common/trace/span.h"

#include <algorithm>
#include <string>

#include "common/base/plain_text.h"

namespace djinn {
namespace {

using opentelemetry::proto::trace::v1::Status;

std::string Bytes(uint64_t number) {
  std::string bytes(sizeof(number), '\0');
  for (int i = 7; i >= 0; --i, number >>= 8) {
    bytes[static_cast<size_t>(i)] = static_cast<char>(number & 0xff);
  }
  return bytes;
}

// Returns the number of Bytes(); 0 if there are not so many bytes from
// `offset`.
uint64_t NumberAt(absl::string_view bytes, size_t offset) {
  if (bytes.size() < offset + sizeof(uint64_t)) return 0;
  uint64_t number = 0;
  for (const char byte : bytes.substr(offset, sizeof(number))) {
    number = number << 8 | static_cast<unsigned char>(byte);
  }
  return number;
}

uint64_t UnixNanoseconds(absl::Time time) {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(time), 0));
}

opentelemetry::proto::common::v1::AnyValue* AddAttribute(absl::string_view key,
                                                         Span* span) {
  auto* const attribute = span->add_attributes();
  attribute->set_key(std::string(key));
  return attribute->mutable_value();
}

}  // namespace

WallTimes::WallTimes(Clock* clock) {
  // The two clocks cannot be read at once. The attempt that took least time is
  // the best, because this thread may be suspended in between.
  constexpr int kAttempts = 4;
  constexpr absl::Duration kGood = absl::Microseconds(20);
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < kAttempts && best > kGood; ++i) {
    const absl::Duration before = clock->Monotonic();
    const absl::Time wall = clock->Now();
    const absl::Duration after = clock->Monotonic();
    if (after - before >= best) continue;
    best = after - before;
    origin_ = wall - (before + best / 2);
  }
}

Span MakeSpan(const TraceContext& self, uint64_t parent, absl::string_view name,
              Span::SpanKind kind, absl::Time began, absl::Time ended) {
  Span span;
  span.set_trace_id(Bytes(self.trace_high) + Bytes(self.trace_low));
  span.set_span_id(Bytes(self.span_id));
  if (parent != 0) span.set_parent_span_id(Bytes(parent));
  span.set_name(std::string(Cut(name, kMaxSpanText)));
  span.set_kind(kind);
  span.set_start_time_unix_nano(UnixNanoseconds(began));
  span.set_end_time_unix_nano(UnixNanoseconds(std::max(began, ended)));
  return span;
}

TraceContext ContextOf(const Span& span) {
  return {NumberAt(span.trace_id(), 0), NumberAt(span.trace_id(), 8),
          NumberAt(span.span_id(), 0)};
}

void AddText(absl::string_view key, absl::string_view value, Span* span) {
  AddAttribute(key, span)->set_string_value(
      std::string(Cut(value, kMaxSpanText)));
}

void AddNumber(absl::string_view key, int64_t value, Span* span) {
  AddAttribute(key, span)->set_int_value(value);
}

void AddSeconds(absl::string_view key, absl::Duration value, Span* span) {
  // The difference of two clocks may be negative, and of two durations
  // infinite.
  constexpr absl::Duration kMost = absl::Hours(24 * 365 * 100);
  AddAttribute(key, span)->set_double_value(
      absl::ToDoubleSeconds(std::clamp(value, absl::ZeroDuration(), kMost)));
}

void SetFailed(absl::string_view reason, Span* span) {
  span->mutable_status()->set_code(Status::STATUS_CODE_ERROR);
  span->mutable_status()->set_message(std::string(Cut(reason, kMaxSpanText)));
}

}  // namespace djinn
