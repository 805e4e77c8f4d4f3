#include "client_lib/transport/session_urgency.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/lease/priority_class.h"

namespace djinn {

SessionUrgency::SessionUrgency(v1::Urgency urgency) {
  MutexLock lock(&mu_);
  said_ = {std::move(urgency), 1};
}

absl::StatusOr<v1::Urgency> SessionUrgency::Set(v1::Urgency urgency) {
  v1::Urgency before;
  {
    MutexLock lock(&mu_);
    if (urgency.priority_class() > max_class_) {
      return MakeError(
          absl::StatusCode::kPermissionDenied, "PRIORITY_NOT_ALLOWED",
          absl::StrCat("sessions of this tenant may have priority ",
                       PriorityClassName(max_class_), " at most, ",
                       PriorityClassName(urgency.priority_class()),
                       " was asked"));
    }
    before = std::exchange(said_.urgency, std::move(urgency));
    ++said_.version;
  }
  MutexLock lock(&listener_mu_);
  if (listener_) listener_();
  return before;
}

SessionUrgency::Said SessionUrgency::said() const {
  MutexLock lock(&mu_);
  return said_;
}

void SessionUrgency::SetMaxClass(v1::PriorityClass max_class) {
  MutexLock lock(&mu_);
  max_class_ = max_class;
}

void SessionUrgency::Listen(std::function<void()> listener) {
  MutexLock lock(&listener_mu_);
  listener_ = std::move(listener);
}

}  // namespace djinn
