// Separates attempts by growing, randomized pauses, so that clients which were
// cut off together do not return together.
#ifndef CLIENT_LIB_SESSION_STREAM_BACKOFF_H_
#define CLIENT_LIB_SESSION_STREAM_BACKOFF_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/base/random.h"

namespace djinn {

class Backoff {
 public:
  static constexpr absl::Duration kFirst = absl::Milliseconds(50);
  static constexpr absl::Duration kLongest = absl::Seconds(2);

  explicit Backoff(RandomSource* random) : random_(random) {}

  // Returns a random pause between half and all of a length. The length doubles
  // with each call.
  absl::Duration Next() {
    const absl::Duration whole = pause_;
    pause_ = std::min(pause_ * 2, kLongest);
    const double part = static_cast<double>(random_->NonZero64() % 1024) / 1024;
    return whole * (0.5 + part / 2);
  }

 private:
  RandomSource* const random_;
  absl::Duration pause_ = kFirst;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_BACKOFF_H_
