// Makes PrivateUse1 a device of this process: its name, device guard, hooks,
// allocator and mixed precision. The operators are registered apart
// (registration.h).
#ifndef CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_
#define CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_

#include <string>

namespace djinn::capture {

// "remote_accelerator", or DJINN_DEVICE_NAME as it was at load.
const std::string& DeviceName();

// Idempotent. Throws when the slot is taken by another backend.
void RegisterBackend();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_
