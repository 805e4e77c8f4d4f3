#include "scheduler/placement/stages/row_cost.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "scheduler/placement/work.h"

namespace djinn::scheduler {
namespace {

// Returns the bytes of a call's operands that are read completely, however few
// the rows.
uint64_t WholeBytes(const semantics::Frame& frame, int node,
                    const semantics::BatchCut& cut) {
  uint64_t bytes = 0;
  std::vector<uint32_t> seen;
  for (const semantics::Frame::Operand& operand : frame.operands(node)) {
    const uint32_t slot = operand.view->slot;
    if (cut.row_bytes[slot] > 0 || absl::c_linear_search(seen, slot)) continue;
    seen.push_back(slot);
    bytes += static_cast<uint64_t>(semantics::Bytes(operand.view));
  }
  return bytes;
}

}  // namespace

CallCosts::CallCosts(const semantics::Frame& frame, const RowWork& work)
    : frame_(frame),
      work_(work),
      known_(absl::c_all_of(work.workers, [](const StageWorker& worker) {
        return IsKnown(worker.speed);
      })) {}

RowCost CallCosts::OfNode(int node, const StageWorker& worker) const {
  const semantics::DeviceSpeed& speed = known_ ? worker.speed : kReferenceSpeed;
  const semantics::NodeMeaning& found = work_.meaning.nodes[node];
  const Work::Part all{frame_.op_class(node), found.phase, found.cost, 1};
  const double factor =
      known_ ? work_.factors.Factor(all.op_class, all.phase, worker.device) : 1;
  const double seconds = RooflineSeconds(all, speed) * factor;
  if (!work_.cut.of_rows[node]) return {seconds, 0};
  Work::Part none = all;
  none.cost = {};
  none.cost.read_bytes =
      std::min(all.cost.read_bytes, WholeBytes(frame_, node, work_.cut));
  const double least = RooflineSeconds(none, speed) * factor;
  return {least, (seconds - least) / static_cast<double>(work_.cut.rows)};
}

RowCost CallCosts::OfAll(const StageWorker& worker) const {
  RowCost cost;
  for (int node = 0; node < frame_.node_count(); ++node) {
    cost = cost + OfNode(node, worker);
  }
  return cost;
}

RowCost CallCosts::BytesOf(uint32_t slot) const {
  if (work_.cut.row_bytes[slot] > 0) {
    return {0, static_cast<double>(work_.cut.row_bytes[slot])};
  }
  return {static_cast<double>(work_.meaning.slots[slot].size_bytes), 0};
}

double LinkOf(const StageWorker& worker) {
  const double told = worker.link_bytes_per_second;
  return told > 0 ? told : kReferenceLink;
}

std::string SecondsText(double seconds) {
  return absl::StrFormat("%.3gs", seconds);
}

}  // namespace djinn::scheduler
