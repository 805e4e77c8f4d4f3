// What happens when the library is loaded: the device becomes known to PyTorch
// in this process. Nothing connects, starts a thread or forks.
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
