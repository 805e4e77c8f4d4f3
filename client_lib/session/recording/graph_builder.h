// A segment's calls as a graph, and the key under which the graph is
// found again: everything but the varying values, i.e. operators and call
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

// The start of a key that keys of the same operators, with as many operands and
// dimensions each, have in common.
absl::string_view KeyHeader(absl::string_view key);
// Where in the key the 64-bit integers lie that a size hole may name, in the
// order of srg::ForEachInteger() over its graph.
std::vector<uint32_t> FindKeyIntegers(absl::string_view key);

// How a slot begins whose first use is this touch. `created_bytes` is what the
// segment says of the touch: null where it creates nothing.
srg::Slot KindOfFirstTouch(uint8_t access, const uint64_t* created_bytes);

// Whether what the storage held before the first touch matters to the calls.
bool ReadsBefore(const srg::Slot& kind, uint8_t first_access);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_GRAPH_BUILDER_H_
