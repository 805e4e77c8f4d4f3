#include "scheduler/placement/stages/stage_transfers.h"

#include <algorithm>

#include "absl/container/btree_map.h"
#include "scheduler/placement/stages/transfer_order.h"

namespace djinn::scheduler {

std::vector<double> RemainingSeconds(absl::Span<const semantics::Edge> edges,
                                     const CutNodes& cut) {
  std::vector<double> remaining(cut.seconds.begin(), cut.seconds.end());
  // Goes backwards: consumers ascend, so the time behind each is known when it
  // is looked at.
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    const uint32_t to = cut.stage[edge->consumer];
    const double crossing =
        cut.stage[edge->producer] == to
            ? 0
            : static_cast<double>(edge->size_bytes) / cut.link[to];
    remaining[edge->producer] = std::max(
        remaining[edge->producer],
        cut.seconds[edge->producer] + crossing + remaining[edge->consumer]);
  }
  return remaining;
}

std::vector<StageTransfer> FindTransfers(
    const semantics::Frame& frame,
    absl::Span<const semantics::SlotMeaning> slots, const CutNodes& cut,
    absl::Span<const double> remaining) {
  std::vector<StageTransfer> transfers;
  for (int number = 0; number < frame.value_count(); ++number) {
    const semantics::Frame::Value& value = frame.value(number);
    if (value.producer < 0) continue;
    const uint32_t from = cut.stage[value.producer];
    absl::btree_map<uint32_t, double> needed;  // by stage
    for (const int reader : value.readers) {
      const uint32_t to = cut.stage[reader];
      if (to == from) continue;
      double& longest = needed[to];
      longest = std::max(longest, remaining[reader]);
    }
    const uint64_t bytes = slots[value.slot].size_bytes;
    for (const auto& [to, longest] : needed) {
      transfers.push_back({from, to, value.slot, bytes,
                           static_cast<double>(bytes) / cut.link[to], longest});
    }
  }
  const auto rank = [](const StageTransfer& transfer) {
    return TransferRank{.remaining_seconds = transfer.remaining_seconds};
  };
  std::stable_sort(transfers.begin(), transfers.end(),
                   [&](const StageTransfer& a, const StageTransfer& b) {
                     return MovesBefore(rank(a), rank(b));
                   });
  return transfers;
}

}  // namespace djinn::scheduler
