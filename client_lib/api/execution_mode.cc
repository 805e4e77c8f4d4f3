#include "djinn/execution_mode.h"

#include <optional>

#include "client_lib/session/model/execution_flag.h"
#include "common/base/mutex.h"
#include "common/torch/process_switches.h"

namespace djinn {

void SetExecutionMode(ExecutionMode mode) {
  SetFastExecution(mode == ExecutionMode::kFast);
}

ExecutionMode CurrentExecutionMode() {
  return FastExecution() ? ExecutionMode::kFast : ExecutionMode::kStrict;
}

void UpdateSwitches(std::optional<bool> flushes_denormals) {
  static auto* const mu = new Mutex;
  static std::optional<bool> said;
  MutexLock lock(mu);
  if (flushes_denormals.has_value()) said = flushes_denormals;
  srg::Switches switches = ReadSwitches();
  switches.flush_denormal = said.value_or(switches.flush_denormal);
  SetSwitches(switches);
}

}  // namespace djinn
