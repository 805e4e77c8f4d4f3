// Shows what Djinn does with a program's calls:
//
//   djinn::SetDebugLevel(djinn::DebugLevel::kExecution);
//   djinn::SetCallSites(true);  // errors name the line that made the call
//
// The settings apply to the whole process. Any thread may change them at any
// time, and disabled ones cost nothing.
#ifndef CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_
#define CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_

#include <string>

#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

// Chooses the stage that is logged, one line for each event, on stderr. The
// environment variable DJINN_DEBUG sets the initial level: interception,
// shape_inference, execution or off.
enum class DebugLevel {
  kOff,
  // Logs every captured call with its lane, operator and arguments' metadata.
  // Uploads and reads are no calls; kExecution shows them.
  kInterception,
  // Logs how the shapes of each call's results were found, and why the worker
  // was asked.
  kShapeInference,
  // Logs the messages that are sent, whether a plan existed and why not, and
  // the replies.
  kExecution,
};
DJINN_API void SetDebugLevel(DebugLevel level);

// Sets whether calls remember where the program made them. The error of an
// operator that fails on a worker then names that place. It costs a few
// microseconds for each call. DJINN_CALL_SITES=1 enables it initially.
//
// The place of a C++ call is the ModuleScope around it. A call of a backward
// pass has the place of the forward call from which it derives.
DJINN_API void SetCallSites(bool on);

// Names the part of the program, such as a module, that makes the calls of this
// thread. Scopes nest, and their names are joined by dots.
class DJINN_API ModuleScope {
 public:
  explicit ModuleScope(const std::string& name);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  const std::string outer_;
};

// The following two functions are for bindings to other languages.
// ExchangeModulePath() sets this thread's whole path and returns the former
// one. A CallSiteSource returns the place of the current call. It is called on
// the calling thread, while call sites are on, and when a registered callable
// is refused because of a call.
DJINN_API std::string ExchangeModulePath(std::string path);
using CallSiteSource = std::string (*)();
DJINN_API void SetCallSiteSource(CallSiteSource source);

// Limits of shape inference. The shapes of results are inferred in this
// process, without asking the worker. If inference for an operator takes longer
// than `time`, or fails, in `failures` consecutive calls, each new call of the
// operator waits for the worker instead. This is logged once and counted in
// SynchronousCalls(). Setting the limits enables inference for every operator
// again. Operators that return lists are exempt, because the worker cannot be
// asked about them.
struct ShapeInferenceLimits {
  absl::Duration time = absl::Milliseconds(500);
  int failures = 10;
};
DJINN_API void SetShapeInferenceLimits(const ShapeInferenceLimits& limits);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_
