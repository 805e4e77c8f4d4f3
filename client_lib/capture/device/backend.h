// Registers PrivateUse1 with PyTorch as a device of this process: its name,
// device guard, hooks, allocator and autocast lists. registration.h registers
// its operators.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_
#define CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace djinn::capture {

// Returns the value that DJINN_DEVICE_NAME had when the library was loaded, or
// "remote_accelerator" if it was empty or unset.
const std::string& DeviceName();

// Registers everything but the operators, once. Throws if another backend has
// taken PrivateUse1.
void RegisterBackend();

// Makes torch.autocast cast the operators that PyTorch lists for accelerators.
// RegisterBackend() calls it once.
void RegisterAutocast();

// Returns whether autocast casts what the thread calls now. Within an operator
// that is itself on autocast's lists, autocast has already ended.
inline bool CastsParts() {
  return at::autocast::is_autocast_enabled(at::kPrivateUse1);
}

// Keeps a registration until the process ends, because the dispatcher outlives
// static destructors. A leak checker can still reach the object. No two threads
// may call this at once: call it, for example, while a static variable is
// initialized.
template <typename T>
T& KeepForever(std::unique_ptr<T> object) {
  static auto* const kept = new std::vector<std::unique_ptr<T>>;
  return *kept->emplace_back(std::move(object));
}

// Tells PyTorch about devices, streams and events of this backend.
//
// A virtual device has one stream, because the session's order of calls is the
// only order. Every stream is therefore the default one, and waiting for
// another stream costs nothing. Synchronizing or querying an event waits until
// the device has executed everything that was issued so far. Recording an event
// with timing also waits, so that the time between two events is the time that
// the device took for the calls between them.
//
// Returns the backend's guard, which lives for the rest of the process.
const c10::impl::DeviceGuardImplInterface& DeviceGuard();

// Throws c10::Error unless 0 <= index < DeviceCount().
void CheckDeviceIndex(c10::DeviceIndex index);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_
