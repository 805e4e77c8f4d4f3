// What a worker's clock says when ours says something, found from round trips
// as NTP does: the shortest one has the least room for error.
//
// Not thread-safe.
#ifndef CLIENT_LIB_SESSION_PROFILE_CLOCK_RELATION_H_
#define CLIENT_LIB_SESSION_PROFILE_CLOCK_RELATION_H_

#include <optional>

#include "absl/time/time.h"

namespace djinn {

class ClockRelation {
 public:
  // Clocks drift apart: what was measured so many round trips ago is forgotten.
  static constexpr int kWindow = 256;

  // A message that left here at `sent`, and its answer. `there` are times of
  // the other clock.
  void Add(absl::Duration sent, absl::Duration received_there,
           absl::Duration sent_there, absl::Duration received);

  bool known() const { return best_.has_value(); }
  // Our time at which the other clock says `there`. Known.
  absl::Duration ToOurs(absl::Duration there) const {
    return there - best_->offset;
  }
  // How far that may be off.
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
  // Of the round trips since half a window: takes its place at the end.
  std::optional<Sample> next_;
  int count_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_CLOCK_RELATION_H_
