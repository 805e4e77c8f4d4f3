// Sends factory calls that name no device to a remote one:
//
//   djinn::CaptureScope scope;
//   auto model = torch::nn::Linear(4, 2);  // its parameters are remote
//
// Holds for the current thread; scopes nest. Tensors that exist already stay
// where they are.
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
