#include "client_lib/session/recording/graph_builder.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/session/model/operator_table.h"

namespace djinn {
namespace {

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Get(absl::string_view key, size_t position) {
  T value;
  std::memcpy(&value, key.data() + position, sizeof(value));
  return value;
}

// Bytes of a key per call: its operator and the ends of its template bytes and
// touches. A key begins with the number of calls.
constexpr size_t kCallBytes = 3 * sizeof(uint32_t);
// Bytes of a key per touch: a slot and an access.
constexpr size_t kTouchBytes = sizeof(uint32_t) + sizeof(uint8_t);

}  // namespace

void BuildGraphKey(const Segment& segment,
                   absl::Span<const uint32_t> slot_of_touch,
                   absl::Span<const srg::Slot> kinds, std::string* key) {
  key->clear();
  Put(static_cast<uint32_t>(segment.calls().size()), key);
  for (const Segment::Mark& mark : segment.calls()) {
    Put(mark.operator_id, key);
    Put(mark.bytes_end, key);
    Put(mark.touches_end, key);
  }
  key->append(segment.bytes().data(), segment.bytes().size());
  for (size_t i = 0; i < slot_of_touch.size(); ++i) {
    Put(slot_of_touch[i], key);
    Put(segment.touches()[i].access, key);
  }
  for (const srg::Slot& kind : kinds) {
    Put(kind.kind, key);
    if (kind.kind == srg::Slot::Kind::kCreated) Put(kind.created_bytes, key);
  }
}

absl::string_view KeyHeader(absl::string_view key) {
  const size_t calls = Get<uint32_t>(key, 0);
  return key.substr(0, sizeof(uint32_t) + calls * kCallBytes);
}

std::vector<uint32_t> FindKeyIntegers(absl::string_view key) {
  std::vector<uint32_t> positions;
  const absl::string_view header = KeyHeader(key);
  uint32_t begin = 0;
  uint32_t touches = 0;
  for (size_t at = sizeof(uint32_t); at < header.size(); at += kCallBytes) {
    const auto end = Get<uint32_t>(header, at + sizeof(uint32_t));
    touches = Get<uint32_t>(header, at + 2 * sizeof(uint32_t));
    const size_t first = positions.size();
    FindIntegers(key.substr(header.size() + begin, end - begin), &positions);
    for (size_t i = first; i < positions.size(); ++i) {
      positions[i] += header.size() + begin;
    }
    begin = end;
  }
  size_t at = header.size() + begin + touches * kTouchBytes;
  while (at < key.size()) {
    const auto kind = static_cast<srg::Slot::Kind>(Get<uint8_t>(key, at++));
    if (kind != srg::Slot::Kind::kCreated) continue;
    positions.push_back(static_cast<uint32_t>(at));
    at += sizeof(uint64_t);
  }
  return positions;
}

srg::Graph BuildGraph(const Segment& segment,
                      absl::Span<const uint32_t> slot_of_touch,
                      absl::Span<const srg::Slot> kinds) {
  srg::Graph graph;
  graph.slots.assign(kinds.begin(), kinds.end());
  absl::flat_hash_map<uint32_t, uint32_t> operator_indices;
  std::vector<uint8_t> accesses;
  for (const Touch& touch : segment.touches()) {
    accesses.push_back(touch.access);
  }
  HoleCounters counters;
  Segment::Mark begin;
  for (const Segment::Mark& end : segment.calls()) {
    const size_t touches = end.touches_end - begin.touches_end;
    srg::Node node = DecodeCall(
        segment.bytes().substr(begin.bytes_end,
                               end.bytes_end - begin.bytes_end),
        slot_of_touch.subspan(begin.touches_end, touches),
        absl::MakeConstSpan(accesses).subspan(begin.touches_end, touches),
        &counters);
    const auto [index, is_new] = operator_indices.try_emplace(
        end.operator_id, static_cast<uint32_t>(graph.operators.size()));
    if (is_new) {
      graph.operators.push_back(OperatorTable::Global().Get(end.operator_id));
    }
    node.operator_index = index->second;
    graph.nodes.push_back(std::move(node));
    begin = end;
  }
  graph.float_hole_count = counters.floats;
  graph.scalar_tensor_hole_count = counters.scalar_tensors;
  return graph;
}

srg::Slot KindOfFirstTouch(uint8_t access, const uint64_t* created_bytes) {
  if (created_bytes != nullptr) {
    return {srg::Slot::Kind::kCreated, *created_bytes};
  }
  if ((access & kBirth) != 0) return {srg::Slot::Kind::kResult, 0};
  if ((access & kDraws) != 0) return {srg::Slot::Kind::kGenerator, 0};
  return {srg::Slot::Kind::kBound, 0};
}

bool ReadsBefore(const srg::Slot& kind, uint8_t first_access) {
  switch (kind.kind) {
    case srg::Slot::Kind::kGenerator:
      return true;
    case srg::Slot::Kind::kBound:
      return (first_access & kOverwrites) == 0 ||
             !IgnoresContents(first_access);
    default:
      return false;
  }
}

}  // namespace djinn
