// Tells the service manager that started this process that it serves. Follows
// sd_notify(3), whose protocol is stable and meant to be spoken without
// libsystemd.
#ifndef COMMON_DAEMON_SERVICE_MANAGER_H_
#define COMMON_DAEMON_SERVICE_MANAGER_H_

#include "absl/status/status.h"

namespace djinn {

// Sends READY=1 to the socket that NOTIFY_SOCKET names. Without the variable,
// returns OK and does nothing. Returns the system's error if the socket takes
// no message, or InvalidArgument if it is no path or abstract name of at most
// 107 bytes.
absl::Status NotifyReady();

}  // namespace djinn

#endif  // COMMON_DAEMON_SERVICE_MANAGER_H_
