// The process's one open session, which capture kernels use. djinn::Connect()
// opens it, or the first use of the device opens it from the environment (see
// djinn/connect.h). Thread-safe.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_PROCESS_SESSION_H_
#define CLIENT_LIB_CAPTURE_DEVICE_PROCESS_SESSION_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/session/recording/session.h"

namespace djinn::capture {

using SessionFactory =
    std::function<absl::StatusOr<std::shared_ptr<Session>>()>;

// Sets the function that opens a session if the device is used while none is
// open. The library calls it once, when it is loaded.
void SetDefaultSessionFactory(SessionFactory factory);

// Makes `session` the open session. Returns AlreadyExists (SESSION_OPEN) if one
// is open.
absl::Status SetSession(std::shared_ptr<Session> session);

// Returns the open session, or null.
std::shared_ptr<Session> CurrentSession();

// Removes and returns the open session, so that the caller can close it.
// Returns null if none is open.
std::shared_ptr<Session> TakeSession();

// Returns device `index` of the open session. If no session is open, opens the
// default session first, or returns FailedPrecondition (NO_SESSION) if there is
// no default.
absl::StatusOr<std::shared_ptr<VirtualDevice>> DeviceOfProcess(int index);

// Returns the number of virtual devices, which is constant for the process:
// DJINN_DEVICE_COUNT, between 1 and kMaxVirtualDevices, or 16 if it is unset or
// not a number. A value that is not used as it is gets a warning.
int DeviceCount();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_PROCESS_SESSION_H_
