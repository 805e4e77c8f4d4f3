// Whether runs may be carried out fast: see djinn/execution_mode.h.
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_EXECUTION_FLAG_H_
#define CLIENT_LIB_SESSION_EXECUTION_FLAG_H_

#include <atomic>

namespace djinn {

// From the environment, when the library is loaded.
extern std::atomic<bool> fast_execution;

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_EXECUTION_FLAG_H_
