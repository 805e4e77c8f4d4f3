// absl::Duration to and from google.protobuf.Duration.
#ifndef COMMON_NET_PROTO_DURATION_H_
#define COMMON_NET_PROTO_DURATION_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"

namespace djinn {

// Cut to nanoseconds; about 292 years are the most either way.
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

}  // namespace djinn

#endif  // COMMON_NET_PROTO_DURATION_H_
