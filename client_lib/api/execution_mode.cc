#include "djinn/execution_mode.h"

#include "client_lib/session/execution_flag.h"

namespace djinn {

void SetExecutionMode(ExecutionMode mode) {
  fast_execution.store(mode == ExecutionMode::kFast, std::memory_order_relaxed);
}

ExecutionMode CurrentExecutionMode() {
  return fast_execution.load(std::memory_order_relaxed)
             ? ExecutionMode::kFast
             : ExecutionMode::kStrict;
}

}  // namespace djinn
