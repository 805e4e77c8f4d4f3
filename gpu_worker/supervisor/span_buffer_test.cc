// Tests the spans of executors on their way to the supervisor, and what it does
// with those of a hostile one.
#include "gpu_worker/supervisor/span_buffer.h"

#include <functional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/report_check.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Span Good() {
  Span span = MakeSpan({1, 2, 3}, 4, "run", Span::SPAN_KIND_SERVER,
                       absl::FromUnixSeconds(10), absl::FromUnixSeconds(11));
  AddText("djinn.tenant", "evil", &span);
  AddNumber("djinn.run", -1, &span);
  AddSeconds("djinn.device_time", absl::Seconds(1), &span);
  return span;
}

TEST(ContextOfTest, ReturnsTheContextThatMadeTheSpan) {
  const TraceContext self{~uint64_t{0} - 1, 0x80, 0x8000000000000003};
  const absl::Time now = absl::FromUnixSeconds(1);
  Span span = MakeSpan(self, 4, "run", Span::SPAN_KIND_SERVER, now, now);
  EXPECT_EQ(ContextOf(span), self);
  span.set_span_id("short");
  EXPECT_FALSE(ContextOf(span).valid());
}

TEST(SpanBufferTest, SpansWaitInTheirOrderAndThoseWithoutRoomAreCounted) {
  SpanBuffer buffer(1);
  EXPECT_FALSE(buffer.Take().has_value());
  for (size_t i = 0; i < SpanBuffer::kMaxSpans + 3; ++i) {
    Span span;
    span.set_name(std::to_string(i));
    buffer.Add(std::move(span));
  }
  const auto first = buffer.Take();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->spans_size(), static_cast<int>(SpanBuffer::kMaxTogether));
  EXPECT_EQ(first->spans(0).name(), "0");
  EXPECT_EQ(first->dropped(), 3u);
  const auto second = buffer.Take();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->spans(0).name(), std::to_string(SpanBuffer::kMaxTogether));
  EXPECT_EQ(second->dropped(), 0u);
  EXPECT_FALSE(buffer.Take().has_value());
}

TEST(CheckSpansTest, TheTenantIsTheSupervisorsWord) {
  v1::ExecutorSpans spans;
  *spans.add_spans() = Good();
  AddText("djinn.tenant", "good", spans.mutable_spans(0));
  const absl::Status status = CheckSpans({"evil", "w0"}, &spans);
  ASSERT_TRUE(status.ok()) << status;
  const std::string text = spans.ShortDebugString();
  EXPECT_THAT(text, Not(HasSubstr("good")));
  EXPECT_THAT(text, HasSubstr("\"evil\""));
  EXPECT_THAT(text, HasSubstr("\"w0\""));
  EXPECT_EQ(spans.spans(0).attributes_size(), 4);
}

TEST(CheckSpansTest, MalformedSpanIsRefused) {
  const auto change = [](const std::function<void(Span*)>& apply) {
    v1::ExecutorSpans spans;
    *spans.add_spans() = Good();
    apply(spans.mutable_spans(0));
    return CheckSpans({"evil", "w0"}, &spans);
  };
  EXPECT_TRUE(change([](Span*) {}).ok());
  EXPECT_FALSE(change([](Span* s) { s->set_trace_id("short"); }).ok());
  EXPECT_FALSE(change([](Span* s) { s->clear_span_id(); }).ok());
  EXPECT_FALSE(change([](Span* s) { s->set_parent_span_id("short"); }).ok());
  EXPECT_FALSE(change([](Span* s) { s->clear_name(); }).ok());
  EXPECT_FALSE(
      change([](Span* s) { s->set_name(std::string(201, 'x')); }).ok());
  EXPECT_FALSE(
      change([](Span* s) { s->set_start_time_unix_nano(~0ull); }).ok());
  EXPECT_FALSE(change([](Span* s) { s->add_events(); }).ok());
  EXPECT_FALSE(change([](Span* s) { s->add_links(); }).ok());
  EXPECT_FALSE(change([](Span* s) { s->set_trace_state("x"); }).ok());
  EXPECT_FALSE(change([](Span* s) {
                 s->set_kind(static_cast<Span::SpanKind>(99));
               }).ok());
  EXPECT_FALSE(change([](Span* s) { AddText("service.name", "x", s); }).ok());
  EXPECT_FALSE(
      change([](Span* s) {
        s->mutable_attributes(0)->mutable_value()->mutable_array_value();
      }).ok());
  EXPECT_FALSE(change([](Span* s) {
                 for (int i = 0; i < 40; ++i) AddText("djinn.x", "x", s);
               }).ok());
  EXPECT_FALSE(change([](Span* s) {
                 s->mutable_status()->set_message(std::string(300, 'x'));
               }).ok());
}

TEST(CheckSpansTest, ALargeSpanIsRefused) {
  v1::ExecutorSpans spans;
  *spans.add_spans() = Good();
  for (int i = 0; i < 25; ++i) {
    AddText("djinn.x", std::string(200, 'x'), spans.mutable_spans(0));
  }
  EXPECT_THAT(CheckSpans({"evil", "w0"}, &spans).message(),
              HasSubstr("too large"));
}

TEST(CheckSpansTest, TimesThatClocksMakeNegativeAreAccepted) {
  v1::ExecutorSpans spans;
  *spans.add_spans() = Good();
  AddSeconds("djinn.x", -absl::Nanoseconds(1), spans.mutable_spans(0));
  AddSeconds("djinn.y", absl::InfiniteDuration(), spans.mutable_spans(0));
  EXPECT_TRUE(CheckSpans({"evil", "w0"}, &spans).ok());
}

TEST(CheckSpansTest, TooManySpansAreRefusedAndControlCharactersReplaced) {
  v1::ExecutorSpans spans;
  for (int i = 0; i < 512; ++i) *spans.add_spans() = Good();
  spans.mutable_spans(0)->set_name("a\x1b[2Jb");
  EXPECT_TRUE(CheckSpans({"evil", "w0"}, &spans).ok());
  EXPECT_EQ(spans.spans(0).name(), "a [2Jb");
  for (Span& span : *spans.mutable_spans()) span = Good();
  *spans.add_spans() = Good();
  EXPECT_FALSE(CheckSpans({"evil", "w0"}, &spans).ok());
}

}  // namespace
}  // namespace djinn::worker
