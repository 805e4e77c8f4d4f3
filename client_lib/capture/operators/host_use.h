// Classifies the operators whose results this process can compute beside the
// worker: see host_call.h.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_HOST_USE_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_HOST_USE_H_

#include <ATen/core/function_schema.h>

#include <cstdint>

namespace djinn::capture {

// Says which tensor follows from the values of the operands, if they are
// integers.
enum class HostUse : uint8_t {
  kNone,
  kReturns,     // its one result; it writes nothing
  kOverwrites,  // its first argument, as a whole
};

HostUse HostUseOf(const c10::FunctionSchema& schema);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_HOST_USE_H_
