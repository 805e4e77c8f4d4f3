#include "client_lib/session/model/execution_flag.h"

#include <atomic>
#include <cstdlib>
#include <list>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
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
std::atomic<bool> other_mode_was_used{
    fast_execution.load(std::memory_order_relaxed)};
std::atomic<const srg::Switches*> current_switches{nullptr};

// Returns the one object that is equal to `switches`. A program sets few
// different ones.
const srg::Switches* Keep(const srg::Switches& switches) {
  static auto* const mu = new Mutex;
  static auto* const kept = new std::list<srg::Switches>;
  MutexLock lock(mu);
  const auto found = absl::c_find(*kept, switches);
  return found != kept->end() ? &*found : &kept->emplace_back(switches);
}

}  // namespace

RunMode CurrentRunMode() {
  return {FastExecution(), current_switches.load(std::memory_order_acquire)};
}

bool FastExecution() { return fast_execution.load(std::memory_order_acquire); }

void SetFastExecution(bool fast) {
  // A thread that sees the fast mode must also see that it was used.
  if (fast) other_mode_was_used.store(true, std::memory_order_relaxed);
  fast_execution.store(fast, std::memory_order_release);
}

void SetSwitches(const srg::Switches& switches) {
  const bool defaults = switches == srg::Switches();
  // As in SetFastExecution().
  if (!defaults) other_mode_was_used.store(true, std::memory_order_relaxed);
  current_switches.store(defaults ? nullptr : Keep(switches),
                         std::memory_order_release);
}

bool OtherModeWasUsed() {
  return other_mode_was_used.load(std::memory_order_acquire);
}

}  // namespace djinn
