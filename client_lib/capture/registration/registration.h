// Registers capture for every operator of PyTorch, by one policy.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_REGISTRATION_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_REGISTRATION_H_

#include <cstddef>

namespace djinn::capture {

// What became of the aten overloads.
struct RegistrationCounts {
  size_t native = 0;    // typed kernels
  size_t captured = 0;  // boxed capture
  size_t captured_whole =
      0;                 // of those: composites captured whole without gradient
  size_t composite = 0;  // left to PyTorch's own composite, which splits them
};

// Idempotent; RegisterBackend() came first.
const RegistrationCounts& RegisterOperators();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_REGISTRATION_H_
