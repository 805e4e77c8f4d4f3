// Pages of a list in the order of its keys, as AIP-158 defines them. A page
// continues after the last key of the previous page. So if entries come and go
// between two pages, no other entry is repeated or left out.
#ifndef COORDINATOR_TABLES_PAGE_H_
#define COORDINATOR_TABLES_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace djinn::coordinator {

// The part of a list that a request asks for; everything by default.
struct PageRange {
  // The key before the first item, exclusive; empty for the list's beginning.
  // No key is empty.
  std::string after;
  // At least 1.
  size_t max_items = std::numeric_limits<size_t>::max();
};

template <typename Item>
struct Page {
  std::vector<Item> items;
  // The key of the last item if others follow, otherwise empty.
  std::string last_key;
};

inline constexpr size_t kDefaultPageSize = 100;
inline constexpr size_t kMaxPageSize = 1000;

// Returns the range of a List request. `list` names the list; a token of
// another list is refused. Returns InvalidArgument (PAGE_SIZE_NEGATIVE,
// PAGE_TOKEN_MALFORMED).
absl::StatusOr<PageRange> ParsePageRange(absl::string_view list,
                                         int32_t page_size,
                                         const std::string& page_token);

// Returns the next_page_token that continues after `last_key`; empty if
// `last_key` is.
std::string MakePageToken(absl::string_view list, const std::string& last_key);

// Returns the entries of a std::map with string keys that lie in the range.
template <typename Map>
Page<typename Map::const_iterator> Slice(const Map& map,
                                         const PageRange& range) {
  Page<typename Map::const_iterator> page;
  auto entry = map.upper_bound(range.after);
  for (; entry != map.end() && page.items.size() < range.max_items; ++entry) {
    page.items.push_back(entry);
  }
  if (entry != map.end()) page.last_key = page.items.back()->first;
  return page;
}

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_PAGE_H_
