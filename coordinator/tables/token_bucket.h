// Limits how often a peer may have something done: a number of times at once,
// and a rate per second in the long run.
//
// Not thread-safe; reads no clock.
#ifndef COORDINATOR_TABLES_TOKEN_BUCKET_H_
#define COORDINATOR_TABLES_TOKEN_BUCKET_H_

#include <algorithm>

#include "absl/time/time.h"

namespace djinn::coordinator {

class TokenBucket {
 public:
  // Begins full, with `burst` tokens.
  TokenBucket(double burst, double per_second)
      : burst_(burst), per_second_(per_second), tokens_(burst) {}

  // Takes a token; returns false when there is none. `now` is monotonic.
  bool Take(absl::Duration now) {
    tokens_ = std::min(
        burst_, tokens_ + per_second_ * absl::ToDoubleSeconds(now - since_));
    since_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  double burst_;
  double per_second_;
  double tokens_;
  absl::Duration since_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_TOKEN_BUCKET_H_
