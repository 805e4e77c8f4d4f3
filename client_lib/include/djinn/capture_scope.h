// Creates tensors on a remote device by default. While a CaptureScope lives,
// every factory call (torch::zeros, the constructor of a module) that names no
// device creates its tensor on the scope's virtual device:
//
//   djinn::CaptureScope scope;
//   auto model = torch::nn::Linear(4, 2);  // its parameters are remote
//
// A scope applies to the thread that creates it, and must be destroyed on that
// thread. Scopes nest: the innermost one counts. Calls that name a device, and
// tensors that exist already, are unaffected. The scope itself neither connects
// nor throws; the factory calls throw djinn::Error if there is no session.
#ifndef CLIENT_LIB_INCLUDE_DJINN_CAPTURE_SCOPE_H_
#define CLIENT_LIB_INCLUDE_DJINN_CAPTURE_SCOPE_H_

#include "djinn/api.h"

namespace djinn {

class DJINN_API CaptureScope {
 public:
  explicit CaptureScope(int device_index = 0);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  const int outer_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_CAPTURE_SCOPE_H_
