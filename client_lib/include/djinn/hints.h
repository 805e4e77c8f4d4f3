// What a program knows about its calls and Djinn does not. Hints may improve a
// decision, never change a result.
#ifndef CLIENT_LIB_INCLUDE_DJINN_HINTS_H_
#define CLIENT_LIB_INCLUDE_DJINN_HINTS_H_

#include "djinn/api.h"

namespace djinn {

// What calls are for.
enum class Phase {
  kUnknown = 0,
  kForward = 1,
  kLlmPrefill = 2,
  kLlmDecode = 3,
  kVisionEncoding = 4,
  kVisionDecoding = 5,
  kMultimodalFusion = 6,
  kTraining = 7,
};

// The calls of this thread, and of the backward passes that it starts, are of
// this phase from now on; returns what they were of. The coordinator is told
// with each structure that is new, and shows it with the structure's nodes:
// `djinnctl get graphs`.
DJINN_API Phase SignalPhase(Phase phase);

// Likewise, while it lives.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase) : outer_(SignalPhase(phase)) {}
  ~PhaseScope() { SignalPhase(outer_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const Phase outer_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_HINTS_H_
