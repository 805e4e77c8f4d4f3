// The files of the page, which the build embeds (embed.py).
#ifndef COORDINATOR_CONSOLE_ASSETS_H_
#define COORDINATOR_CONSOLE_ASSETS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace djinn::console {

struct Asset {
  // Path in a URL, such as "/console.css".
  absl::string_view path;
  absl::string_view content_type;
  absl::string_view content;
};

// Returns all files.
absl::Span<const Asset> Assets();

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_ASSETS_H_
