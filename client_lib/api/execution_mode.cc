#include "djinn/execution_mode.h"

#include "client_lib/session/model/execution_flag.h"

namespace djinn {

void SetExecutionMode(ExecutionMode mode) {
  SetFastExecution(mode == ExecutionMode::kFast);
}

ExecutionMode CurrentExecutionMode() {
  return FastExecution() ? ExecutionMode::kFast : ExecutionMode::kStrict;
}

}  // namespace djinn
