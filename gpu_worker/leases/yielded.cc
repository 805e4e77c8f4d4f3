#include "gpu_worker/leases/yielded.h"

#include <utility>

#include "common/base/proto_duration.h"
#include "common/log/log.h"

namespace djinn::worker {

void Yielded::Add(Preemptor first, const char* reason, absl::Duration away,
                  absl::Duration now) {
  MutexLock lock(&mu_);
  ++count_;
  time_ += away;
  last_ = std::move(first);
  last_reason_ = reason;
  last_at_ = now;
}

bool Yielded::Describe(absl::Duration now, v1::Yielded* yielded) const {
  MutexLock lock(&mu_);
  if (count_ == 0) return false;
  yielded->set_count(count_);
  *yielded->mutable_time() = ToProtoDuration(time_);
  yielded->set_last_tenant(last_.tenant);
  yielded->set_last_session_id(log::ShortId(last_.session_id));
  yielded->set_last_reason(last_reason_);
  *yielded->mutable_last_age() = ToProtoDuration(now - last_at_);
  return true;
}

}  // namespace djinn::worker
