// Relates a worker's clock to the local one. Round trips measure the offset as
// in NTP, and the shortest one has the smallest error.
//
// Not thread-safe.
#ifndef CLIENT_LIB_SESSION_PROFILE_CLOCK_RELATION_H_
#define CLIENT_LIB_SESSION_PROFILE_CLOCK_RELATION_H_

#include <optional>

#include "absl/time/time.h"

namespace djinn {

class ClockRelation {
 public:
  // Round trips after which a measurement is forgotten, because clocks drift
  // apart.
  static constexpr int kWindow = 256;

  // Adds a round trip: a message sent here at `sent`, and its answer, which
  // arrived here at `received`. The times with `_there` are the other clock's.
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

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_CLOCK_RELATION_H_
