#include "client_lib/session/model/execution_flag.h"

#include <atomic>
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

std::atomic<bool> fast_execution{FromEnvironment()};
std::atomic<bool> fast_execution_was_used{
    fast_execution.load(std::memory_order_relaxed)};

}  // namespace

bool FastExecution() { return fast_execution.load(std::memory_order_acquire); }

void SetFastExecution(bool fast) {
  // A thread that sees the fast mode must also see that it was used.
  if (fast) fast_execution_was_used.store(true, std::memory_order_relaxed);
  fast_execution.store(fast, std::memory_order_release);
}

bool FastExecutionWasUsed() {
  return fast_execution_was_used.load(std::memory_order_acquire);
}

}  // namespace djinn
