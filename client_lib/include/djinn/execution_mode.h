// What workers may do to be fast. Process-wide; may be changed at any time,
// from any thread, and goes with the calls that are sent from then on.
#ifndef CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
#define CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_

#include "djinn/api.h"

namespace djinn {

enum class ExecutionMode {
  // Every operator as PyTorch carries it out on a device like the worker's,
  // with the worker's number of threads: the same bits.
  kStrict,
  // Sums may be taken in another order: the worker chooses by measurement with
  // how many threads each operator of a repeated structure runs, and whether it
  // multiplies by a packed copy of a weight that is not being written.
  kFast,
};

// DJINN_EXECUTION_MODE names the mode to begin with: strict (the default) or
// fast.
DJINN_API void SetExecutionMode(ExecutionMode mode);
DJINN_API ExecutionMode CurrentExecutionMode();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
