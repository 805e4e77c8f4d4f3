#include "coordinator/tables/page.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"

namespace djinn::coordinator {

absl::StatusOr<PageRange> ParsePageRange(absl::string_view list,
                                         int32_t page_size,
                                         const std::string& page_token) {
  if (page_size < 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_NEGATIVE",
                     absl::StrCat("page_size ", page_size));
  }
  PageRange range;
  range.max_items = page_size == 0 ? kDefaultPageSize
                                   : std::min<size_t>(page_size, kMaxPageSize);
  if (page_token.empty()) return range;
  std::string decoded;
  absl::string_view key;
  if (absl::WebSafeBase64Unescape(page_token, &decoded)) key = decoded;
  if (!absl::ConsumePrefix(&key, absl::StrCat(list, ":")) || key.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_MALFORMED",
                     absl::StrCat("page_token \"", absl::CHexEscape(page_token),
                                  "\" is not a next_page_token of the ", list));
  }
  range.after = std::string(key);
  return range;
}

std::string MakePageToken(absl::string_view list, const std::string& last_key) {
  if (last_key.empty()) return "";
  return absl::WebSafeBase64Escape(absl::StrCat(list, ":", last_key));
}

}  // namespace djinn::coordinator
