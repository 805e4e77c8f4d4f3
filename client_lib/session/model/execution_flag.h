// Whether runs may be executed fast: see djinn/execution_mode.h.
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_
#define CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_

namespace djinn {

// From the environment, when the library is loaded.
bool FastExecution();
void SetFastExecution(bool fast);

// Whether it has ever been so. False after a call was recorded: it is carried
// out strictly.
bool FastExecutionWasUsed();

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_EXECUTION_FLAG_H_
