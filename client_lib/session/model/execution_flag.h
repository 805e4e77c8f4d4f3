// Holds how workers execute the runs of this process: in fast mode or not
// (djinn/execution_mode.h), and under which of PyTorch's switches. Thread-safe.
#ifndef CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_
#define CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_

#include "common/srg/switches.h"

namespace djinn {

struct RunMode {
  bool fast = false;
  // Null stands for PyTorch's defaults. Equal switches have equal pointers,
  // which live as long as the process.
  const srg::Switches* switches = nullptr;

  bool operator==(const RunMode&) const = default;
};

// Returns the mode of calls that are recorded now.
RunMode CurrentRunMode();

// The environment sets the initial value when the library is loaded.
bool FastExecution();
void SetFastExecution(bool fast);

// The initial switches are PyTorch's defaults.
void SetSwitches(const srg::Switches& switches);

// Returns whether another mode than the default was ever set. If it returns
// false after a call was recorded, that call executes strictly and under
// PyTorch's default switches.
bool OtherModeWasUsed();

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_
