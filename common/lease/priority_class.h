// Priority classes by the names that people, configurations and metrics use.
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

// What counts: the default for one that nobody specified or nobody here knows.
inline v1::PriorityClass EffectiveClass(v1::PriorityClass asked) {
  for (const auto& [known, name] : kPriorityClasses) {
    if (asked == known) return known;
  }
  return v1::PRIORITY_CLASS_INTERACTIVE;
}

// Whether somebody said which: where nobody did, training counts as batch work.
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
