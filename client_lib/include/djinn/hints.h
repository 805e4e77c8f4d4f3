// Declares hints: facts about a program's calls that Djinn cannot see. A hint
// may improve a decision and never changes a result.
//
//   const djinn::PhaseScope phase(djinn::Phase::kLlmDecode);
//   token = Decode(model, token);
#ifndef CLIENT_LIB_INCLUDE_DJINN_HINTS_H_
#define CLIENT_LIB_INCLUDE_DJINN_HINTS_H_

#include "djinn/api.h"

namespace djinn {

// The purpose of calls.
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

// Sets the phase of this thread's later calls, and of the backward passes that
// this thread starts. Returns the previous phase. The client sends the phase to
// the coordinator with each new graph, and `djinnctl get graphs` shows it.
DJINN_API Phase SignalPhase(Phase phase);

// Sets the phase of this thread's calls until the scope is destroyed, which
// must happen on the same thread.
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
