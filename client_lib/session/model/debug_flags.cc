#include "client_lib/session/model/debug_flags.h"

#include <cstdlib>

#include "absl/strings/string_view.h"
#include "common/log/log.h"

namespace djinn::debug {
namespace {

absl::string_view FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? absl::string_view() : absl::string_view(value);
}

uint32_t LevelFromEnvironment() {
  const absl::string_view level = FromEnvironment("DJINN_DEBUG");
  if (level.empty() || level == "off") return 0;
  if (level == "interception") return kInterception;
  if (level == "shape_inference") return kShapeInference;
  if (level == "execution") return kExecution;
  log::Warning(
      "DJINN_DEBUG is ignored: it must be interception, "
      "shape_inference, execution or off",
      {{"value", level}});
  return 0;
}

uint32_t InitialFlags() {
  uint32_t initial = LevelFromEnvironment();
  if (FromEnvironment("DJINN_EAGER") == "1") initial |= kEager;
  if (FromEnvironment("DJINN_CALL_SITES") == "1") initial |= kCallSites;
  return initial;
}

}  // namespace

std::atomic<uint32_t> flags{InitialFlags()};

void Set(uint32_t mask, uint32_t value) {
  uint32_t before = Flags();
  while (!flags.compare_exchange_weak(before, (before & ~mask) | value,
                                      std::memory_order_relaxed)) {
  }
}

}  // namespace djinn::debug
