// Computes the latency components of a read (djinn/profile.h) from its marks,
// which are noted while a profile runs.
#ifndef CLIENT_LIB_SESSION_PROFILE_REQUEST_STAGES_H_
#define CLIENT_LIB_SESSION_PROFILE_REQUEST_STAGES_H_

#include <array>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/profile.h"

namespace djinn::v1 {
class ReplyTiming;
}  // namespace djinn::v1

namespace djinn {

// Relates a worker's clock to the local one. Round trips measure the offset as
// in NTP, and the shortest one has the smallest error.
//
// Not thread-safe.
class ClockRelation {
 public:
  // The number of round trips after which a measurement is forgotten, because
  // clocks drift apart.
  static constexpr int kWindow = 256;

  // Adds a round trip. Its message was sent at `sent`, and its answer was
  // received at `received`, by the local clock. The times whose names end in
  // `_there` are by the other clock.
  void Add(absl::Duration sent, absl::Duration received_there,
           absl::Duration sent_there, absl::Duration received);

  bool known() const { return best_.has_value(); }
  // Returns the local time at which the other clock shows `there`. Requires
  // known().
  absl::Duration ToOurs(absl::Duration there) const {
    return there - best_->offset;
  }
  // Returns the largest error of ToOurs().
  absl::Duration uncertainty() const { return best_->round_trip / 2; }

 private:
  struct Sample {
    absl::Duration round_trip;  // without the time there
    absl::Duration offset;      // theirs less ours
  };
  static void Keep(const Sample& sample, std::optional<Sample>* best) {
    if (!best->has_value() || sample.round_trip < (*best)->round_trip) {
      *best = sample;
    }
  }

  std::optional<Sample> best_;
  // The best sample of the last half window; it replaces best_ when the window
  // ends.
  std::optional<Sample> next_;
  int count_ = 0;
};

// The times that a worker sends with a reply, by its own clock.
struct WorkerTimes {
  absl::Duration received;
  absl::Duration sent;
  // Parts of the time in between.
  absl::Duration decode;
  absl::Duration admission;
  absl::Duration bind;
  absl::Duration execute;
  absl::Duration reply;
};

struct ReadMarks {
  // The times when the thread's request began and when the program asked for
  // the value. `asked` has no value while the read is only a prefetch.
  absl::Duration began;
  std::optional<absl::Duration> asked;
  // The sender's total encoding time at `asked`.
  absl::Duration encoding_before;
  // The time when the transport got the message, and the time that the sender
  // had spent on encoding until then.
  std::optional<absl::Duration> handed;
  absl::Duration encoding_after;
  // The times in the reply, and when the reply arrived.
  std::optional<WorkerTimes> timing;
  absl::Duration arrived;

  bool complete() const {
    return asked.has_value() && handed.has_value() && timing.has_value();
  }
};

// Returns the times, or an error if their values are impossible.
absl::StatusOr<WorkerTimes> TimesOf(const v1::ReplyTiming& timing);

// Returns the latency components of a request with complete marks. Their sum is
// `ended` - `marks.began`. The time before the program asked for the value
// counts as capture.
std::array<absl::Duration, kStageCount> StagesOf(const ReadMarks& marks,
                                                 const ClockRelation& clocks,
                                                 absl::Duration ended);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_REQUEST_STAGES_H_
