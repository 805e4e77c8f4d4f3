// Which operators this process can carry out beside the worker: see
// host_call.h.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_HOST_USE_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_HOST_USE_H_

#include <ATen/core/function_schema.h>

#include <cstdint>

namespace djinn::capture {

// What the values of its operands tell, where they are whole numbers.
enum class HostUse : uint8_t {
  kNone,
  kReturns,     // its one result, and it writes nothing
  kOverwrites,  // its first argument, all of it
};

HostUse HostUseOf(const c10::FunctionSchema& schema);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_HOST_USE_H_
