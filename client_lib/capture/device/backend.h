// Registers PrivateUse1 with PyTorch as a device of this process: its name,
// device guard, hooks, allocator and autocast lists. registration.h registers
// its operators.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_
#define CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_

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

// Keeps a registration for the life of the process, because the dispatcher
// outlives static destructors. A leak checker still reaches the object. The
// caller ensures that no two threads call this at once, for example by calling
// it from the initialisation of a static variable.
template <typename T>
T& KeepForever(std::unique_ptr<T> object) {
  static auto* const kept = new std::vector<std::unique_ptr<T>>;
  return *kept->emplace_back(std::move(object));
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_BACKEND_H_
