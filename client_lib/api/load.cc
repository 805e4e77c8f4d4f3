// Registers the device with PyTorch when the library is loaded. Loading
// connects to nothing, and starts neither a thread nor a process.
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/operator_observer.h"
#include "client_lib/capture/registration/registration.h"

namespace djinn {
namespace {

const bool loaded = [] {
  capture::RegisterBackend();
  capture::RegisterOperators();
  capture::RegisterCaptureScope();
  return true;
}();

}  // namespace
}  // namespace djinn
