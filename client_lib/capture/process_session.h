// The one open session of this process, as every kernel finds it.
//
// Opened explicitly (djinn::Connect) or, at the first use of the device, from
// the environment (see djinn/connect.h). Thread-safe.
#ifndef CLIENT_LIB_CAPTURE_PROCESS_SESSION_H_
#define CLIENT_LIB_CAPTURE_PROCESS_SESSION_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/session/recording/session.h"

namespace djinn::capture {

using SessionFactory =
    std::function<absl::StatusOr<std::shared_ptr<Session>>()>;

// Called when the device is used while no session is open. Set once, at load.
void SetDefaultSessionFactory(SessionFactory factory);

// AlreadyExists (SESSION_OPEN) when one is open.
absl::Status SetSession(std::shared_ptr<Session> session);

// Null when none is open.
std::shared_ptr<Session> CurrentSession();

// Takes the session out, for closing. Null when none is open.
std::shared_ptr<Session> TakeSession();

// Device `index` of the open session, opening the default one if need be.
// FailedPrecondition (NO_SESSION) when there is none to open.
absl::StatusOr<std::shared_ptr<VirtualDevice>> DeviceOfProcess(int index);

// Number of virtual devices; constant for the process. DJINN_DEVICE_COUNT, 16
// unless set.
int DeviceCount();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_PROCESS_SESSION_H_
