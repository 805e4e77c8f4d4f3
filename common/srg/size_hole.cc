#include "common/srg/size_hole.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::srg {
namespace {

absl::Status Malformed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRAPH",
                   absl::StrCat("size hole: ", what));
}

// Adds slope times size. Returns false when T cannot hold the result.
template <typename T>
bool Grow(T* value, int64_t slope, int64_t size) {
  int64_t growth;
  T grown;
  if (__builtin_mul_overflow(slope, size, &growth) ||
      __builtin_add_overflow(*value, growth, &grown)) {
    return false;
  }
  *value = grown;
  return true;
}

}  // namespace

absl::StatusOr<Graph> AtSize(Graph graph, int64_t size) {
  const SizeHole hole = std::exchange(graph.size_hole, {});
  uint32_t position = 0;
  size_t next = 0;
  bool in_range = true;
  ForEachInteger(graph, [&](auto& value) {
    if (next < hole.integers.size() && hole.integers[next] == position) {
      in_range = in_range && Grow(&value, hole.slopes[next], size);
      ++next;
    }
    ++position;
  });
  if (in_range) return graph;
  return Malformed(absl::StrCat("size ", size, " leaves the integers' range"));
}

absl::Status CheckSizeHole(const Graph& graph) {
  const SizeHole& hole = graph.size_hole;
  if (hole.integers.size() != hole.slopes.size()) {
    return Malformed(absl::StrCat(hole.slopes.size(), " slopes for ",
                                  hole.integers.size(), " integers"));
  }
  if (hole.empty()) return absl::OkStatus();
  size_t count = 0;
  ForEachInteger(graph, [&](auto&) { ++count; });
  for (size_t i = 0; i < hole.integers.size(); ++i) {
    if (hole.integers[i] >= count) {
      return Malformed(absl::StrCat("names integer ", hole.integers[i],
                                    ", but the graph has ", count));
    }
    if (i > 0 && hole.integers[i] <= hole.integers[i - 1]) {
      return Malformed("integers are not ascending");
    }
    if (hole.slopes[i] == 0) {
      return Malformed(
          absl::StrCat("integer ", hole.integers[i], " does not vary"));
    }
  }
  return absl::OkStatus();
}

}  // namespace djinn::srg
