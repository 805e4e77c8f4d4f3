// Tells PyTorch about devices, streams and events of this backend.
//
// A virtual device has one stream, because the session's order of calls is the
// only order. Every stream is therefore the default one, and waiting for
// another stream costs nothing. Synchronizing or querying an event waits until
// the device has executed everything that was issued so far. Recording an event
// with timing waits as well, so that the time between two events is the time of
// the work between them.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_DEVICE_GUARD_H_
#define CLIENT_LIB_CAPTURE_DEVICE_DEVICE_GUARD_H_

#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace djinn::capture {

// Returns the backend's guard, which lives for the rest of the process.
const c10::impl::DeviceGuardImplInterface& DeviceGuard();

// Throws c10::Error unless 0 <= index < DeviceCount().
void CheckDeviceIndex(c10::DeviceIndex index);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_DEVICE_GUARD_H_
