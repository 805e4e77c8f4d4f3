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

#include "djinn/api.h"

namespace djinn {

// The step of a call's life that is logged on stderr, one line for each event.
// The environment variable DJINN_DEBUG sets the initial level: interception,
// shape_inference, execution or off.
enum class DebugLevel {
  kOff,
  // Logs every captured call with its lane, operator and arguments' metadata.
  // Uploads and reads are not calls; kExecution shows them.
  kInterception,
  // Logs how the shapes of each call's results were found, and if the worker
  // was asked, why.
  kShapeInference,
  // Logs the messages that are sent, the replies, and for each run whether a
  // plan existed, and if not, why.
  kExecution,
};
DJINN_API void SetDebugLevel(DebugLevel level);

// Sets whether calls remember their call sites: where the program made them.
// The error of an operator that fails on a worker then names its call site.
// Call sites cost a few microseconds for each call. DJINN_CALL_SITES=1 enables
// it initially.
//
// The site of a C++ call is the ModuleScope around it. A call of a backward
// pass has the site of the forward call from which it derives.
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

// The following functions serve bindings to other languages.
//
// Sets this thread's whole module path and returns the previous one.
DJINN_API std::string ExchangeModulePath(std::string path);

// Returns the site of the calling thread's current call. Djinn calls it for
// each call while call sites are on, and when a call keeps a registered
// callable from being replayed.
using CallSiteSource = std::string (*)();
DJINN_API void SetCallSiteSource(CallSiteSource source);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_DEBUG_H_
