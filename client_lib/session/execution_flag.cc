#include "client_lib/session/execution_flag.h"

#include <cstdlib>

#include "absl/strings/string_view.h"
#include "common/log/log.h"

namespace djinn {
namespace {

bool FromEnvironment() {
  const char* const value = std::getenv("DJINN_EXECUTION_MODE");
  const absl::string_view mode = value == nullptr ? "" : value;
  if (mode == "fast") return true;
  if (mode.empty() || mode == "strict") return false;
  log::Warning("DJINN_EXECUTION_MODE is ignored: it must be strict or fast",
               {{"value", mode}});
  return false;
}

}  // namespace

std::atomic<bool> fast_execution{FromEnvironment()};

}  // namespace djinn
