// Chooses whether workers may trade bit-exact results for speed. The mode
// applies to the whole process. Any thread may change the mode at any time; a
// change applies to later calls only.
#ifndef CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
#define CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_

#include <optional>

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

// Reads the switches of PyTorch on which the bits of results depend
// (at::globalContext(): oneDNN, cuDNN and NNPACK, precisions of float32
// products, reduced sums). Workers execute later calls of all threads under
// them. A session calls this when it opens, and the Python package whenever a
// switch is set; a C++ program calls it after it set one.
//
// at::Context::setFlushDenormal() is the calling thread's. If
// `flushes_denormals` has no value, the value of an earlier call is kept; where
// there was none, the calling thread's mode is taken.
DJINN_API void UpdateSwitches(
    std::optional<bool> flushes_denormals = std::nullopt);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_EXECUTION_MODE_H_
