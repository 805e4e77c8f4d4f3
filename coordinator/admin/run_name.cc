#include "coordinator/admin/run_name.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error.h"

namespace djinn::coordinator {
namespace {

// Parses a number of digits only: no sign, no spaces. Returns whether it is
// one.
template <typename Int>
bool ParseNumber(absl::string_view text, Int* number) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, number);
}

bool ParseDevice(absl::string_view text, MemberId* device) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('.', 1));
  if (!ParseNumber(parts.first, &device->virtual_device)) return false;
  return parts.first.size() == text.size() ||
         ParseNumber(parts.second, &device->member);
}

bool Parse(absl::string_view text, RunName* name) {
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos) {
    if (!ParseDevice(text.substr(0, colon), &name->device.emplace())) {
      return false;
    }
    text.remove_prefix(colon + 1);
  }
  return ParseNumber(text, &name->number) && name->number > 0;
}

}  // namespace

absl::StatusOr<RunName> ParseRunName(absl::string_view text) {
  RunName name;
  if (Parse(text, &name)) return name;
  return MakeError(absl::StatusCode::kInvalidArgument, "RUN_MALFORMED",
                   absl::StrCat("\"", text.substr(0, 100),
                                "\" names no run: expected NUMBER, "
                                "DEVICE:NUMBER or DEVICE.MEMBER:NUMBER, such "
                                "as 17, 0:17 or 2.1:5"));
}

std::string RunNameOf(MemberId device, uint64_t number) {
  return device.member == 0 ? absl::StrCat(device.virtual_device, ":", number)
                            : absl::StrCat(device.virtual_device, ".",
                                           device.member, ":", number);
}

}  // namespace djinn::coordinator
