// The dispatcher's side of djinn::CaptureScope, and of who else wants to see
// every operator that a thread calls.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_CAPTURE_SCOPE_FALLBACK_H_
#define CLIENT_LIB_CAPTURE_DEVICE_CAPTURE_SCOPE_FALLBACK_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace djinn::capture {

// Idempotent.
void RegisterCaptureScope();

// Sees the operators that a thread calls itself, on any device; not those that
// they call in turn.
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  // The arguments are the last values of the stack.
  virtual void Before(const c10::OperatorHandle& op,
                      const torch::jit::Stack& stack) = 0;
  // The results are.
  virtual void After(const c10::OperatorHandle& op,
                     const torch::jit::Stack& stack) = 0;
};

// Sets this thread's observer, which may be null; returns what it was.
OperatorObserver* ExchangeObserver(OperatorObserver* observer);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_CAPTURE_SCOPE_FALLBACK_H_
