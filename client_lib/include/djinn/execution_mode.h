// What workers may do to be fast. Process-wide; may be changed at any time,
// from any thread, and goes with the calls that are made from then on.
#ifndef CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
#define CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_

#include "djinn/api.h"

namespace djinn {

enum class ExecutionMode {
  // Every operator gives the bits that PyTorch gives on a device like the
  // worker's, with the worker's number of threads.
  kStrict,
  // Sums may be taken in another order where the worker measures that to be
  // faster.
  kFast,
};

// DJINN_EXECUTION_MODE names the mode to begin with: strict (the default) or
// fast.
DJINN_API void SetExecutionMode(ExecutionMode mode);
DJINN_API ExecutionMode CurrentExecutionMode();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
