#include "client_lib/session/profile/clock_relation.h"

#include <algorithm>

namespace djinn {

void ClockRelation::Add(absl::Duration sent, absl::Duration received_there,
                        absl::Duration sent_there, absl::Duration received) {
  const absl::Duration round_trip =
      (received - sent) - (sent_there - received_there);
  const absl::Duration offset =
      ((received_there - sent) + (sent_there - received)) / 2;
  const Sample sample{std::max(round_trip, absl::ZeroDuration()), offset};
  if (++count_ > kWindow / 2) {
    best_ = next_;
    next_.reset();
    count_ = 1;
  }
  Keep(sample, &best_);
  Keep(sample, &next_);
}

}  // namespace djinn
