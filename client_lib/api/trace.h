// Reads tracing options from the environment.
#ifndef CLIENT_LIB_API_TRACE_H_
#define CLIENT_LIB_API_TRACE_H_

#include "absl/status/status.h"

namespace djinn {

// Configures tracing from the environment (djinn/trace.h), unless the process
// has configured it. Called before a session is opened.
absl::Status ConfigureTracingFromEnvironment();

}  // namespace djinn

#endif  // CLIENT_LIB_API_TRACE_H_
