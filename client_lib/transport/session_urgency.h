// What a session says of how urgent its runs are, shared by whoever says it and
// the link that tells the coordinator.
//
// Thread-safe.
#ifndef CLIENT_LIB_TRANSPORT_SESSION_URGENCY_H_
#define CLIENT_LIB_TRANSPORT_SESSION_URGENCY_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "djinn/v1/lease.pb.h"

namespace djinn {

class SessionUrgency {
 public:
  struct Said {
    v1::Urgency urgency;
    // Grows with every change.
    uint64_t version = 0;
  };

  explicit SessionUrgency(v1::Urgency urgency = {});

  // Returns what was said before. PermissionDenied (PRIORITY_NOT_ALLOWED) above
  // the highest class.
  absl::StatusOr<v1::Urgency> Set(v1::Urgency urgency);
  Said said() const;

  // The coordinator says what the tenant may use at most.
  void SetMaxClass(v1::PriorityClass max_class);
  // Called after every change, under a lock of this object's own, behind which
  // the listener may take others; null for nobody. Calls have ended when this
  // returns: its caller holds none of those.
  void Listen(std::function<void()> listener);

 private:
  mutable Mutex mu_;
  Said said_ ABSL_GUARDED_BY(mu_);
  v1::PriorityClass max_class_ ABSL_GUARDED_BY(mu_) =
      v1::PRIORITY_CLASS_REALTIME;
  Mutex listener_mu_;
  std::function<void()> listener_ ABSL_GUARDED_BY(listener_mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_SESSION_URGENCY_H_
