#include "djinn/debug.h"

#include "client_lib/session/model/debug_flags.h"

namespace djinn {

void SetDebugLevel(DebugLevel level) {
  uint32_t flag = 0;
  switch (level) {
    case DebugLevel::kOff:
      break;
    case DebugLevel::kInterception:
      flag = debug::kInterception;
      break;
    case DebugLevel::kShapeInference:
      flag = debug::kShapeInference;
      break;
    case DebugLevel::kExecution:
      flag = debug::kExecution;
      break;
  }
  debug::Set(debug::kLevels, flag);
}

void SetCallSites(bool on) {
  debug::Set(debug::kCallSites, on ? debug::kCallSites : 0);
}

}  // namespace djinn
