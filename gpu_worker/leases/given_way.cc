#include "gpu_worker/leases/given_way.h"

#include <utility>

#include "common/base/proto_duration.h"
#include "common/log/log.h"

namespace djinn::worker {

void GivenWay::Add(Preemptor first, const char* reason, absl::Duration away,
                   absl::Duration now) {
  MutexLock lock(&mu_);
  ++count_;
  time_ += away;
  last_ = std::move(first);
  last_reason_ = reason;
  last_at_ = now;
}

bool GivenWay::Describe(absl::Duration now, v1::GivenWay* given_way) const {
  MutexLock lock(&mu_);
  if (count_ == 0) return false;
  given_way->set_count(count_);
  *given_way->mutable_time() = ToProtoDuration(time_);
  given_way->set_last_tenant(last_.tenant);
  given_way->set_last_session_id(log::ShortId(last_.session_id));
  given_way->set_last_reason(last_reason_);
  *given_way->mutable_last_age() = ToProtoDuration(now - last_at_);
  return true;
}

}  // namespace djinn::worker
