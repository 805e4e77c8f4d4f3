// Names priority classes as configurations, metrics and users do.
#ifndef COMMON_LEASE_PRIORITY_CLASS_H_
#define COMMON_LEASE_PRIORITY_CLASS_H_

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "djinn/v1/lease.pb.h"

namespace djinn {

inline constexpr std::array<std::pair<v1::PriorityClass, absl::string_view>, 3>
    kPriorityClasses = {{{v1::PRIORITY_CLASS_BATCH, "batch"},
                         {v1::PRIORITY_CLASS_INTERACTIVE, "interactive"},
                         {v1::PRIORITY_CLASS_REALTIME, "realtime"}}};

// Returns the class that applies: the default for an unspecified or unknown
// one.
inline v1::PriorityClass EffectiveClass(v1::PriorityClass asked) {
  for (const auto& [known, name] : kPriorityClasses) {
    if (asked == known) return known;
  }
  return v1::PRIORITY_CLASS_INTERACTIVE;
}

// Returns whether a class was specified. If none was, training counts as batch
// work.
inline bool IsDeclared(v1::PriorityClass asked) {
  return asked != v1::PRIORITY_CLASS_UNSPECIFIED;
}

inline std::string PriorityClassName(v1::PriorityClass asked) {
  for (const auto& [known, name] : kPriorityClasses) {
    if (EffectiveClass(asked) == known) return std::string(name);
  }
  return "";
}

inline std::optional<v1::PriorityClass> ParsePriorityClass(
    absl::string_view text) {
  for (const auto& [known, name] : kPriorityClasses) {
    if (text == name) return known;
  }
  return std::nullopt;
}

}  // namespace djinn

#endif  // COMMON_LEASE_PRIORITY_CLASS_H_
