#include "gpu_worker/device/cpu/available_memory.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/io/read_file.h"

namespace djinn::worker {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 10;

// Returns the number behind `name` in lines such as "inactive_file 4096" and
// "MemAvailable:   123 kB".
std::optional<uint64_t> NumberOf(absl::string_view text,
                                 absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    uint64_t number = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &number)) return number;
  }
  return std::nullopt;
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  uint64_t number = 0;
  // An unlimited group says "max".
  if (!text.ok() || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

// Returns what the group in this folder leaves, or nothing without a limit.
std::optional<uint64_t> LeftInGroup(const std::string& folder) {
  const std::optional<uint64_t> limit = NumberIn(folder + "/memory.max");
  const std::optional<uint64_t> used = NumberIn(folder + "/memory.current");
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const uint64_t left = *limit - std::min(*limit, *used);
  const absl::StatusOr<std::string> stat =
      ReadFile(folder + "/memory.stat", kMaxFileBytes);
  const uint64_t files =
      stat.ok() ? NumberOf(*stat, "inactive_file ").value_or(0) : 0;
  return std::min(*limit, left + files);
}

}  // namespace

absl::StatusOr<uint64_t> AvailableMemory(const MemoryFiles& files) {
  const absl::StatusOr<std::string> machine =
      ReadFile(files.machine, kMaxFileBytes);
  const std::optional<uint64_t> kilobytes =
      machine.ok() ? NumberOf(*machine, "MemAvailable") : std::nullopt;
  if (!kilobytes.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(files.machine, " does not say what is available"));
  }
  uint64_t available = *kilobytes << 10;
  const absl::StatusOr<std::string> own =
      ReadFile(files.own_group, kMaxFileBytes);
  if (!own.ok()) return available;
  for (absl::string_view line : absl::StrSplit(*own, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::/")) continue;
    // Every group around the process may have a limit.
    std::string folder = files.groups;
    const auto consider = [&] {
      available = std::min(available, LeftInGroup(folder).value_or(available));
    };
    consider();
    for (absl::string_view part :
         absl::StrSplit(line, '/', absl::SkipEmpty())) {
      absl::StrAppend(&folder, "/", part);
      consider();
    }
  }
  return available;
}

}  // namespace djinn::worker
