// Chooses whether workers may trade bit-exact results for speed. The mode
// applies to the whole process. Any thread may change the mode at any time; a
// change applies to later calls only.
#ifndef CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
#define CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_

#include "djinn/api.h"

namespace djinn {

enum class ExecutionMode {
  // Every operator returns the bits that PyTorch returns on a device like the
  // worker's, with the worker's number of threads.
  kStrict,
  // Workers may compute sums in another order where this is faster, so results
  // may differ in their last bits.
  kFast,
};

// Sets and returns the mode. The environment variable DJINN_EXECUTION_MODE sets
// the initial one: strict (the default) or fast.
DJINN_API void SetExecutionMode(ExecutionMode mode);
DJINN_API ExecutionMode CurrentExecutionMode();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
