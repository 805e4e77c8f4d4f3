// Registers a kernel for every operator of PyTorch, by one policy.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_REGISTRATION_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_REGISTRATION_H_

#include <cstddef>

namespace djinn::capture {

// The number of aten overloads that each kind of kernel serves.
struct RegistrationCounts {
  size_t native = 0;          // typed kernels
  size_t captured = 0;        // kernels that capture the call
  size_t captured_whole = 0;  // captured ones that are composites
  size_t composite = 0;       // PyTorch's own composite, which splits the call
};

// Registers the operators once. RegisterBackend() must have been called.
const RegistrationCounts& RegisterOperators();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_REGISTRATION_H_
