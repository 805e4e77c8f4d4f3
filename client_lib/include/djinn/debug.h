// Looking at what Djinn does with a program's calls. Process-wide; may be
// changed at any time, from any thread. What is off costs nothing.
#ifndef CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_
#define CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_

#include <string>

#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

// Each level logs one stage, one line per event on stderr. DJINN_DEBUG names
// the level to begin with: interception, shape_inference, execution or off.
enum class DebugLevel {
  kOff,
  // Every captured call: lane, operator, arguments' metadata. Uploads and reads
  // are no calls: kExecution shows them.
  kInterception,
  // How each call's result shapes were found, and why the worker was asked.
  kShapeInference,
  // What is sent, whether a plan was there and why not, what comes back.
  kExecution,
};
DJINN_API void SetDebugLevel(DebugLevel level);

// Whether calls remember where they were made: the error of an operator that
// failed on a worker then says so. Some microseconds per call. DJINN_CALL_SITES
// set to 1 begins with it.
//
// A C++ program's calls have no place of their own; they are known by the
// ModuleScope around them. A call of a backward pass has the place of the
// forward call that it derives from.
DJINN_API void SetCallSites(bool on);

// Names the part of the program that makes the calls of this thread, such as a
// module. Scopes nest: the names are joined by dots.
class DJINN_API ModuleScope {
 public:
  explicit ModuleScope(const std::string& name);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  const std::string outer_;
};

// For bindings to other languages: the whole path at once, instead of what it
// was, which is returned; and who knows the place of the current call, called
// in the calling thread while call sites are on, and when a registered callable
// is refused for what it calls.
DJINN_API std::string ExchangeModulePath(std::string path);
using CallSiteSource = std::string (*)();
DJINN_API void SetCallSiteSource(CallSiteSource source);

// Result shapes are worked out in this process, without asking the worker. An
// operator whose shapes took longer than `time`, or were not found, `failures`
// times in succession, is waited for from then on, which is logged once and
// counted in SynchronousCalls(). Setting the limits lets every operator begin
// anew. Operators that return lists are not affected: they cannot be waited
// for.
struct ShapeInferenceLimits {
  absl::Duration time = absl::Milliseconds(500);
  int failures = 10;
};
DJINN_API void SetShapeInferenceLimits(const ShapeInferenceLimits& limits);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_
