#include "common/trace/trace_context.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/trace/span.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr char kHeader[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceparentTest, TheStandardsExampleIsRead) {
  const absl::StatusOr<Traceparent> parent = ParseTraceparent(kHeader);
  ASSERT_TRUE(parent.ok()) << parent.status();
  EXPECT_EQ(parent->context.trace_high, 0x4bf92f3577b34da6u);
  EXPECT_EQ(parent->context.trace_low, 0xa3ce929d0e0e4736u);
  EXPECT_EQ(parent->context.span_id, 0x00f067aa0ba902b7u);
  EXPECT_TRUE(parent->sampled);
  std::string unsampled = kHeader;
  unsampled.back() = '0';
  EXPECT_FALSE(ParseTraceparent(unsampled)->sampled);
}

TEST(TraceparentTest, ALaterVersionMayBeLonger) {
  std::string later = kHeader;
  later[1] = '1';
  EXPECT_TRUE(ParseTraceparent(later + "-more").ok());
  EXPECT_FALSE(ParseTraceparent(later + "more").ok());
  EXPECT_FALSE(ParseTraceparent(std::string(kHeader) + "-more").ok());
}

TEST(TraceparentTest, MalformedTextsAreNamed) {
  const std::string good = kHeader;
  const auto with = [&](size_t at, const std::string& text) {
    std::string changed = good;
    return changed.replace(at, text.size(), text);
  };
  for (const std::string& text :
       {std::string(), std::string("00"), with(0, "ff"), with(2, "_"),
        with(35, "_"), with(52, "_"), with(3, "g"), with(3, "A"),
        with(3, std::string(32, '0')), with(36, std::string(16, '0')),
        with(53, "-1"), good.substr(1)}) {
    const absl::Status status = ParseTraceparent(text).status();
    EXPECT_EQ(ErrorReason(status), "BAD_TRACEPARENT") << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "\"" + text + "\""))
        << status;
  }
}

TEST(IsSampledTest, TheRatioIsThatOfTheIds) {
  SpanIds ids(7);
  int sampled = 0;
  for (int i = 0; i < 10000; ++i) {
    const TraceContext context{ids.Next(), ids.Next(), ids.Next()};
    EXPECT_FALSE(IsSampled(context, 0));
    EXPECT_TRUE(IsSampled(context, 1));
    sampled += IsSampled(context, 0.1) ? 1 : 0;
    // A higher ratio includes what a lower one does.
    if (IsSampled(context, 0.1)) {
      EXPECT_TRUE(IsSampled(context, 0.2));
    }
  }
  EXPECT_NEAR(sampled, 1000, 100);
}

TEST(SpanIdsTest, IdsDifferAndAreNeverZero) {
  SpanIds ids(0);
  std::set<uint64_t> seen{0};
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(ids.Next()).second);
}

TEST(TraceContextTest, AContextSurvivesTheMessageAndABrokenOneIsNone) {
  const TraceContext context{1, 2, 3, true};
  EXPECT_EQ(FromProto(ToProto(context)), context);
  EXPECT_FALSE(FromProto(v1::TraceContext()).valid());
  v1::TraceContext without_span = ToProto(context);
  without_span.clear_span_id();
  EXPECT_FALSE(FromProto(without_span).valid());
}

TEST(MakeSpanTest, IdsAreBigEndianAndTextsAreCut) {
  const TraceContext self{0x0102030405060708, 0x090a0b0c0d0e0f10, 0x11};
  Span span =
      MakeSpan(self, 0x12, std::string(1000, 'x'), Span::SPAN_KIND_CLIENT,
               absl::FromUnixNanos(5), absl::FromUnixNanos(3));
  EXPECT_EQ(span.trace_id(), "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10");
  EXPECT_EQ(span.span_id(), std::string("\0\0\0\0\0\0\0\x11", 8));
  EXPECT_EQ(span.parent_span_id(), std::string("\0\0\0\0\0\0\0\x12", 8));
  EXPECT_EQ(span.name().size(), kMaxSpanText);
  EXPECT_EQ(span.start_time_unix_nano(), 5u);
  EXPECT_EQ(span.end_time_unix_nano(), 5u);
  AddText("key", std::string(1000, 'x'), &span);
  EXPECT_EQ(span.attributes(0).value().string_value().size(), kMaxSpanText);
}

}  // namespace
}  // namespace djinn
