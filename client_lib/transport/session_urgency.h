// Shares a session's priority between the program, which sets it, and the link,
// which sends it to the coordinator.
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

  // Sets the priority and returns the previous one. Returns PermissionDenied
  // (PRIORITY_NOT_ALLOWED) above the tenant's highest class.
  absl::StatusOr<v1::Urgency> Set(v1::Urgency urgency);
  Said said() const;

  // Sets the tenant's highest class, which the coordinator announces.
  void SetMaxClass(v1::PriorityClass max_class);
  // Sets the function to call after every change; null for none. It runs under
  // a lock of this object and may take further locks. When Listen() returns, no
  // call of the previous listener is running. The caller must therefore not
  // hold a lock that the previous listener takes.
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
