// Holds whether runs may use fast execution: see djinn/execution_mode.h.
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_
#define CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_

namespace djinn {

// Returns the current mode. The environment sets it when the library is loaded.
bool FastExecution();
void SetFastExecution(bool fast);

// Returns whether fast execution was ever enabled. If it returns false after a
// call was recorded, that call executes strictly.
bool FastExecutionWasUsed();

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_
