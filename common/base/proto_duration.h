// Converts absl::Duration and absl::Time to and from their protocol buffer
// messages.
#ifndef COMMON_BASE_PROTO_DURATION_H_
#define COMMON_BASE_PROTO_DURATION_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace djinn {

// Truncates to nanoseconds, and clamps to about 292 years either way.
inline google::protobuf::Duration ToProtoDuration(absl::Duration value) {
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(value);
  google::protobuf::Duration result;
  result.set_seconds(nanoseconds / 1'000'000'000);
  result.set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
  return result;
}

inline absl::Duration FromProtoDuration(
    const google::protobuf::Duration& value) {
  return absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

// Truncates to nanoseconds, and clamps to the years 1677 to 2262.
inline google::protobuf::Timestamp ToProtoTimestamp(absl::Time value) {
  const int64_t nanoseconds = absl::ToUnixNanos(value);
  google::protobuf::Timestamp result;
  result.set_seconds(nanoseconds / 1'000'000'000);
  result.set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
  return result;
}

inline absl::Time FromProtoTimestamp(const google::protobuf::Timestamp& value) {
  return absl::FromUnixSeconds(value.seconds()) +
         absl::Nanoseconds(value.nanos());
}

}  // namespace djinn

#endif  // COMMON_BASE_PROTO_DURATION_H_
