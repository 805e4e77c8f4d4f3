// Builds a graph from a segment's calls, and the key that finds the graph
// again. The key contains everything but the varying values: operators and call
// templates, the slot of each touch, its access, and the kinds of the slots.
#ifndef CLIENT_LIB_SESSION_RECORDING_GRAPH_BUILDER_H_
#define CLIENT_LIB_SESSION_RECORDING_GRAPH_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/recording/segment.h"
#include "common/srg/graph.h"

namespace djinn {

// `slot_of_touch` has an entry per touch of the segment; `kinds` one per slot.
void BuildGraphKey(const Segment& segment,
                   absl::Span<const uint32_t> slot_of_touch,
                   absl::Span<const srg::Slot> kinds, std::string* key);
srg::Graph BuildGraph(const Segment& segment,
                      absl::Span<const uint32_t> slot_of_touch,
                      absl::Span<const srg::Slot> kinds);

// Returns the start of a key, which is the same for all keys with the same
// operators and the same numbers of operands and dimensions.
absl::string_view KeyHeader(absl::string_view key);
// Returns the positions in the key of the 64-bit integers that a size hole may
// name, in the order of srg::ForEachInteger() over the key's graph.
std::vector<uint32_t> FindKeyIntegers(absl::string_view key);

// Returns the kind of a slot whose first use is a touch with this access. If
// the touch creates the storage zero-filled, `created_bytes` points to its
// size; otherwise it is null.
srg::Slot KindOfFirstTouch(uint8_t access, const uint64_t* created_bytes);

// Returns whether the calls depend on the storage's contents before the first
// touch.
bool ReadsBefore(const srg::Slot& kind, uint8_t first_access);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_GRAPH_BUILDER_H_
