#include "scheduler/placement/stages/micro_batches.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/srg/stage_cut.h"
#include "scheduler/placement/stages/row_cost.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::scheduler {
namespace {

// Relative gain that justifies the messages of one more micro-batch, which the
// cost model does not include.
constexpr double kNearly = 0.05;

// The times of the stages by rows, and the costs that belong to no stage.
struct Pipeline {
  struct Stage {
    RowCost compute;
    RowCost transfer;

    RowCost all() const { return compute + transfer; }
  };
  std::vector<Stage> stages;
  // Cost that occurs once for all micro-batches: bringing whole inputs to their
  // stages, and outputs to the first worker.
  RowCost once;

  // Returns the time of `rows` in `count` micro-batches; the largest one sets
  // the pace.
  double Seconds(int64_t rows, int64_t count) const {
    const int64_t most = (rows + count - 1) / count;
    double sum = 0;
    double slowest = 0;
    for (const Stage& stage : stages) {
      const double seconds = stage.all().At(most);
      sum += seconds;
      slowest = std::max(slowest, seconds);
    }
    return sum + static_cast<double>(count - 1) * slowest + once.At(rows);
  }
};

Pipeline PipelineOf(const semantics::Frame& frame, const CallCosts& costs,
                    const StagePlan& plan, const RowWork& work) {
  Pipeline pipeline;
  pipeline.stages.resize(plan.stages.size());
  const auto worker_of = [&](uint32_t stage) -> const StageWorker& {
    return work.workers[plan.stages[stage].worker];
  };
  std::vector<std::vector<bool>> takes(
      plan.stages.size(), std::vector<bool>(frame.graph().slots.size()));
  std::vector<uint32_t> made_by(frame.graph().slots.size(), 0);
  for (int node = 0; node < frame.node_count(); ++node) {
    const uint32_t stage = plan.stage_of_node[node];
    pipeline.stages[stage].compute =
        pipeline.stages[stage].compute + costs.OfNode(node, worker_of(stage));
    for (const semantics::Frame::Operand& operand : frame.operands(node)) {
      const uint32_t slot = operand.view->slot;
      const int producer = frame.value(operand.value).producer;
      const bool from_first = producer < 0 && plan.stages[stage].worker != 0 &&
                              absl::c_linear_search(work.given, slot);
      const bool from_other =
          producer >= 0 && plan.stage_of_node[producer] != stage;
      if (from_first || from_other) takes[stage][slot] = true;
    }
    for (const semantics::Frame::Output& output : frame.outputs(node)) {
      made_by[frame.value(output.value).slot] = stage;
    }
  }
  for (uint32_t stage = 0; stage < takes.size(); ++stage) {
    for (uint32_t slot = 0; slot < takes[stage].size(); ++slot) {
      if (!takes[stage][slot]) continue;
      const RowCost cost = costs.BytesOf(slot) / LinkOf(worker_of(stage));
      const bool is_whole =
          cost.row == 0 && absl::c_linear_search(work.given, slot);
      RowCost& transfer =
          is_whole ? pipeline.once : pipeline.stages[stage].transfer;
      transfer = transfer + cost;
    }
  }
  for (const uint32_t slot : work.outputs) {
    if (plan.stages[made_by[slot]].worker == 0) continue;
    pipeline.once =
        pipeline.once + costs.BytesOf(slot) / LinkOf(work.workers[0]);
  }
  return pipeline;
}

// Returns the least number of micro-batches whose time is nearly the best.
int64_t FindCount(const Pipeline& pipeline, int64_t rows) {
  const int64_t most = std::min(rows, kMaxMicroBatches);
  double least = pipeline.Seconds(rows, 1);
  for (int64_t count = 2; count <= most; ++count) {
    least = std::min(least, pipeline.Seconds(rows, count));
  }
  int64_t count = 1;
  while (pipeline.Seconds(rows, count) > (1 + kNearly) * least) ++count;
  return count;
}

// Returns the time of the fastest single worker; 0 if none has room.
double AloneSeconds(const CallCosts& costs, const RowWork& work,
                    uint64_t weight_bytes) {
  double least = 0;
  for (size_t i = 0; i < work.workers.size(); ++i) {
    const StageWorker& worker = work.workers[i];
    if (weight_bytes > worker.available_bytes) continue;
    RowCost cost = costs.OfAll(worker);
    if (i > 0) {
      for (const uint32_t slot : work.given) {
        cost = cost + costs.BytesOf(slot) / LinkOf(worker);
      }
      for (const uint32_t slot : work.outputs) {
        cost = cost + costs.BytesOf(slot) / LinkOf(work.workers[0]);
      }
    }
    const double seconds = cost.At(work.cut.rows);
    if (least == 0 || seconds < least) least = seconds;
  }
  return least;
}

}  // namespace

MicroBatches PlanMicroBatches(const RowWork& work) {
  MicroBatches found;
  if (!work.stages.ok() || work.stages->stages.size() < 2) {
    found.problem = work.stages.ok()
                        ? "stages do not pay"
                        : std::string(work.stages.status().message());
    return found;
  }
  found.stages = *work.stages;
  const absl::Status in_order =
      srg::CheckStageOrder(work.graph, found.stages.stage_of_node);
  if (!in_order.ok()) {
    found.problem = std::string(in_order.message());
    return found;
  }
  const semantics::Frame frame(work.graph);
  const CallCosts costs(frame, work);
  const Pipeline pipeline = PipelineOf(frame, costs, found.stages, work);
  uint64_t weight_bytes = 0;
  for (const StagePlan::Stage& stage : found.stages.stages) {
    weight_bytes += stage.weight_bytes;
  }
  found.whole_seconds = pipeline.Seconds(work.cut.rows, 1);
  found.alone_seconds = AloneSeconds(costs, work, weight_bytes);
  const int64_t count = FindCount(pipeline, work.cut.rows);
  found.seconds = pipeline.Seconds(work.cut.rows, count);
  const double other = found.alone_seconds > 0
                           ? std::min(found.alone_seconds, found.whole_seconds)
                           : found.whole_seconds;
  if (found.seconds > (1 - kCutMargin) * other) {
    found.problem = absl::StrCat(
        SecondsText(found.seconds), " in micro-batches through ",
        found.stages.stages.size(), " stages gains too little over ",
        SecondsText(other),
        other == found.alone_seconds ? " on one worker" : " in one piece");
    return found;
  }
  for (int64_t i = 0; i < count; ++i) {
    MicroBatches::Part& part = found.parts.emplace_back();
    part.rows = work.cut.rows / count + (i < work.cut.rows % count ? 1 : 0);
    for (const Pipeline::Stage& stage : pipeline.stages) {
      part.compute_seconds += stage.compute.At(part.rows);
      part.transfer_seconds += stage.transfer.At(part.rows);
    }
  }
  return found;
}

}  // namespace djinn::scheduler
