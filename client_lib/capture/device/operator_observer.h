// Observes every operator that a thread calls. djinn::CaptureScope uses the
// same dispatcher fallback to choose the device of factories.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_OPERATOR_OBSERVER_H_
#define CLIENT_LIB_CAPTURE_DEVICE_OPERATOR_OBSERVER_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace djinn::capture {

// Registers the fallback, once.
void RegisterCaptureScope();

// Observes the operators that a thread calls directly, on any device. It does
// not see operators that are called by those operators.
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  // Called before `op`. Its arguments are the last values of the stack.
  virtual void Before(const c10::OperatorHandle& op,
                      const torch::jit::Stack& stack) = 0;
  // Called after `op`. Its results are the last values of the stack.
  virtual void After(const c10::OperatorHandle& op,
                     const torch::jit::Stack& stack) = 0;
};

// Sets this thread's observer, which may be null, and returns the previous one.
OperatorObserver* ExchangeObserver(OperatorObserver* observer);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_OPERATOR_OBSERVER_H_
