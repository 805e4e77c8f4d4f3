// The marks that a read leaves on its way while a profile runs, and the stages
// that they make: see djinn/profile.h.
#ifndef CLIENT_LIB_SESSION_PROFILE_REQUEST_STAGES_H_
#define CLIENT_LIB_SESSION_PROFILE_REQUEST_STAGES_H_

#include <array>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/profile/clock_relation.h"
#include "djinn/profile.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

struct ReadMarks {
  // When the thread's request began, and when it asked for the value; no value
  // yet of a read that is only expected.
  absl::Duration began;
  std::optional<absl::Duration> asked;
  // Of the sender's time by then, what it spent on encoding.
  absl::Duration encoding_before;
  // When the message was handed to the transport, and the sender's encoding by
  // then.
  std::optional<absl::Duration> handed;
  absl::Duration encoding_after;
  // From the reply, and when that came.
  std::optional<v1::ReplyTiming> timing;
  absl::Duration arrived;

  bool complete() const {
    return asked.has_value() && handed.has_value() && timing.has_value();
  }
};

// OK, or what about a worker's times cannot be.
absl::Status CheckTiming(const v1::ReplyTiming& timing);

// The stages of a request with complete marks; their sum is `ended` less
// `marks.began`. What had happened before the program asked is capture.
std::array<absl::Duration, kStageCount> StagesOf(const ReadMarks& marks,
                                                 const ClockRelation& clocks,
                                                 absl::Duration ended);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_REQUEST_STAGES_H_
