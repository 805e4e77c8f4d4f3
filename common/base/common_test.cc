#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/retry_after.h"
#include "common/base/saturating.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "google/rpc/quota_failure.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(SaturatingSumTest, IsTheMostThereIsInPlaceOfAnOverflow) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(SaturatingSum(2, 3), 5u);
  EXPECT_EQ(SaturatingSum(kMost - 1, 1), kMost);
  EXPECT_EQ(SaturatingSum(kMost, 1), kMost);
  EXPECT_EQ(SaturatingSum(1, kMost), kMost);
  EXPECT_EQ(SaturatingSum(kMost, kMost), kMost);
}

TEST(FakeClockTest, MovesOnlyWhenTold) {
  FakeClock clock;
  const absl::Duration start = clock.Monotonic();
  EXPECT_EQ(clock.Monotonic(), start);
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.Monotonic() - start, absl::Seconds(3));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(3));
}

TEST(RandomSourceTest, RealIdsDiffer) {
  EXPECT_EQ(RandomSource::Real()->HexId().size(), 32u);
  EXPECT_NE(RandomSource::Real()->HexId(), RandomSource::Real()->HexId());
}

TEST(RandomSourceTest, FakeIdsRepeatFromTheStart) {
  FakeRandomSource first, second;
  EXPECT_EQ(first.NonZero64(), second.NonZero64());
  EXPECT_NE(first.NonZero64(), 1u);
}

TEST(ErrorTest, CarriesReasonAndMetadata) {
  const absl::Status status =
      LimitExceeded("MEMORY_LIMIT", "session memory", 100, 60, 50);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "MEMORY_LIMIT");
  EXPECT_EQ(ErrorMetadataValue(status, "asked"), "50");
  EXPECT_EQ(status.message(),
            "session memory: limit 100 bytes, used 60, asked 50");
}

TEST(ErrorTest, ForeignStatusHasNoReason) {
  EXPECT_EQ(ErrorReason(absl::InternalError("x")), "");
  EXPECT_EQ(ErrorMetadataValue(absl::InternalError("x"), "y"), "");
}

// Protobuf agrees with the encoding that MakeError() and ErrorReason() write
// and read by hand.
TEST(ErrorTest, ThePayloadIsAnErrorInfo) {
  constexpr absl::string_view kUrl = "type.googleapis.com/google.rpc.ErrorInfo";
  google::rpc::ErrorInfo info;
  info.set_reason("QUOTA");
  info.set_domain("djinn");
  (*info.mutable_metadata())["limit"] = std::string(300, '7');
  (*info.mutable_metadata())["used"] = "";
  absl::Status status = absl::UnavailableError("x");
  status.SetPayload(kUrl, absl::Cord(info.SerializeAsString()));
  EXPECT_EQ(ErrorReason(status), "QUOTA");
  EXPECT_EQ(ErrorMetadataValue(status, "limit"), std::string(300, '7'));
  EXPECT_EQ(ErrorMetadataValue(status, "used"), "");

  const absl::optional<absl::Cord> made =
      MakeError(absl::StatusCode::kUnavailable, "QUOTA", "x",
                {{"limit", std::string(300, '7')}})
          .GetPayload(kUrl);
  ASSERT_TRUE(made.has_value());
  google::rpc::ErrorInfo read;
  ASSERT_TRUE(read.ParseFromString(std::string(*made)));
  EXPECT_EQ(read.reason(), "QUOTA");
  EXPECT_EQ(read.domain(), "djinn");
  EXPECT_EQ(read.metadata().at("limit"), std::string(300, '7'));

  // An ErrorInfo of another domain, and a payload that is no ErrorInfo.
  info.set_domain("googleapis.com");
  status.SetPayload(kUrl, absl::Cord(info.SerializeAsString()));
  EXPECT_EQ(ErrorReason(status), "");
  EXPECT_EQ(ErrorMetadataValue(status, "limit"), "");
  const std::string whole(*made);
  for (size_t size = 0; size < whole.size(); ++size) {
    status.SetPayload(kUrl, absl::Cord(whole.substr(0, size)));
    EXPECT_TRUE(ErrorReason(status) == "" || ErrorReason(status) == "QUOTA");
    EXPECT_EQ(ErrorMetadataValue(status, "limit"), "");
  }
}

TEST(ErrorTest, DetailTellsWhereItHappened) {
  v1::ErrorDetail detail;
  FillDetail(MakeError(absl::StatusCode::kInvalidArgument, "OPERATOR_FAILED",
                       "sizes do not match"),
             &detail);
  detail.set_error_id(0xab);
  detail.set_node(7);
  detail.set_operator_name("aten::mm");
  detail.set_operands("float32[2,3], float32[2,3]");
  detail.set_worker_id("w0");
  detail.set_tenant("t");
  detail.set_lane(3);
  const absl::Status status = StatusFromDetail(detail);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(status), "OPERATOR_FAILED");
  EXPECT_EQ(ErrorMetadataValue(status, "error_id"), "ab");
  EXPECT_EQ(ErrorMetadataValue(status, "lane"), "3");
  EXPECT_EQ(status.message(),
            "sizes do not match [in aten::mm at node 7 on float32[2,3], "
            "float32[2,3]] (worker w0, tenant t, lane 3, error ab)");
}

TEST(ErrorTest, ADetailWithoutAnErrorCodeIsInternal) {
  for (const int code : {-1, 0, 17, 1 << 30}) {
    v1::ErrorDetail detail;
    detail.set_code(code);
    EXPECT_EQ(StatusFromDetail(detail).code(), absl::StatusCode::kInternal)
        << code;
  }
  v1::ErrorDetail detail;
  detail.set_code(16);
  EXPECT_EQ(StatusFromDetail(detail).code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(RetryAfterTest, IsSaidBesideTheReason) {
  const absl::Status status = WithRetryAfter(
      LimitExceeded("MEMORY_LIMIT", "session memory", 100, 60, 50),
      absl::Milliseconds(2500));
  EXPECT_EQ(RetryAfter(status), absl::Milliseconds(2500));
  EXPECT_EQ(ErrorReason(status), "MEMORY_LIMIT");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(RetryAfterTest, NothingIsSaidOfWhatDoesNotHelp) {
  const absl::Status error = absl::UnavailableError("x");
  EXPECT_EQ(RetryAfter(error), std::nullopt);
  EXPECT_EQ(RetryAfter(WithRetryAfter(error, absl::InfiniteDuration())),
            std::nullopt);
  EXPECT_EQ(RetryAfter(WithRetryAfter(absl::OkStatus(), absl::Seconds(1))),
            std::nullopt);
  EXPECT_EQ(RetryAfter(WithRetryAfter(error, absl::Seconds(-1))),
            absl::ZeroDuration());
}

TEST(RetryAfterTest, ADetailCarriesIt) {
  v1::ErrorDetail detail;
  FillDetail(absl::UnavailableError("x"), &detail);
  EXPECT_FALSE(detail.has_retry_after());
  EXPECT_EQ(RetryAfter(StatusFromDetail(detail)), std::nullopt);
  FillDetail(WithRetryAfter(absl::UnavailableError("x"), absl::Seconds(3)),
             &detail);
  EXPECT_EQ(RetryAfter(StatusFromDetail(detail)), absl::Seconds(3));
}

TEST(HashTest, KnownValues) {
  EXPECT_EQ(absl::BytesToHexString(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_FALSE(HashContent("a", 1) == HashContent("b", 1));
  EXPECT_TRUE(HashContent("a", 1) == HashContent("a", 1));
}

TEST(HashTest, PiecesHashAsTheWhole) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes.push_back(static_cast<char>(i * i));
  for (const size_t piece : {1, 7, 256, 4999, 5000}) {
    ContentHasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.Add(absl::string_view(bytes).substr(at, piece));
    }
    EXPECT_TRUE(hasher.Hash() == HashContent(bytes.data(), bytes.size()));
  }
}

TEST(HashTest, BlocksHashAsTheWhole) {
  std::string bytes((5 << 20) + 3, '\0');
  for (size_t i = 0; i < bytes.size(); i += 4096) {
    bytes[i] = static_cast<char>(i / 4096 * 7 + (i >> 20));
  }
  for (const size_t size :
       {kHashBlockBytes - 1, kHashBlockBytes, kHashBlockBytes + 1,
        2 * kHashBlockBytes, size_t{4} << 20, bytes.size()}) {
    const absl::string_view part = absl::string_view(bytes).substr(0, size);
    const ContentHash whole = HashContent(part.data(), part.size());
    for (const size_t piece : {size_t{256} << 10, size_t{1'000'003}, size}) {
      ContentHasher hasher;
      for (size_t at = 0; at < size; at += piece) {
        hasher.Add(part.substr(at, piece));
      }
      EXPECT_TRUE(hasher.Hash() == whole) << size << " in " << piece;
    }
  }
  const ContentHash before = HashContent(bytes.data(), bytes.size());
  std::swap_ranges(bytes.begin(), bytes.begin() + kHashBlockBytes,
                   bytes.begin() + kHashBlockBytes);
  EXPECT_FALSE(HashContent(bytes.data(), bytes.size()) == before);
}

TEST(ConstantTimeTest, TokensEqual) {
  EXPECT_TRUE(TokensEqual("secret", "secret"));
  EXPECT_FALSE(TokensEqual("secret", "secret "));
  EXPECT_FALSE(TokensEqual("secret", ""));
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  DJINN_ASSIGN_OR_RETURN(const int half, Half(value));
  DJINN_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacrosTest, ReturnsTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_FALSE(Quarter(6).ok());
  EXPECT_FALSE(Quarter(5).ok());
}

TEST(QuotaFailureTest, StandsBesideTheReason) {
  const absl::Status status = WithQuotaFailure(
      MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                "tenant red has 4 sessions, its limit is 4"),
      "red");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "TOO_MANY_SESSIONS");
  const auto payload =
      status.GetPayload("type.googleapis.com/google.rpc.QuotaFailure");
  ASSERT_TRUE(payload.has_value());
  google::rpc::QuotaFailure failure;
  ASSERT_TRUE(failure.ParseFromString(std::string(*payload)));
  ASSERT_EQ(failure.violations_size(), 1);
  EXPECT_EQ(failure.violations(0).subject(), "tenant:red");
  EXPECT_EQ(failure.violations(0).description(),
            "tenant red has 4 sessions, its limit is 4");
}

TEST(QuotaFailureTest, NothingFailsWhereNothingFailed) {
  EXPECT_EQ(WithQuotaFailure(absl::OkStatus(), "red"), absl::OkStatus());
}

}  // namespace

}  // namespace djinn
