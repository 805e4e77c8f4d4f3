#include "scheduler/placement/stages/batch_split.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "scheduler/placement/stages/row_cost.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::scheduler {
namespace {

// Number of halvings in the search for the least time, which exhausts the
// precision of a double.
constexpr int kHalvings = 100;

// The times of a worker by rows.
struct Times {
  RowCost compute;
  RowCost transfer;
  bool has_room = true;

  RowCost all() const { return compute + transfer; }
};

// Returns the greatest number of rows that the worker executes in `seconds`.
int64_t RowsWithin(const Times& times, double seconds, int64_t rows) {
  const RowCost cost = times.all();
  if (!times.has_room || cost.fixed > seconds) return 0;
  if (cost.At(rows) <= seconds) return rows;
  return static_cast<int64_t>((seconds - cost.fixed) / cost.row);
}

// Returns the number of rows for each worker so that the slowest finishes as
// early as possible.
std::vector<int64_t> Share(const std::vector<Times>& workers, int64_t rows,
                           double at_most) {
  double least = 0;
  double most = at_most;
  const auto rows_within = [&](double seconds) {
    int64_t sum = 0;
    for (const Times& times : workers) {
      sum = std::min(rows, sum + RowsWithin(times, seconds, rows));
    }
    return sum;
  };
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (rows_within(middle) == rows ? most : least) = middle;
  }
  std::vector<int64_t> shares;
  int64_t surplus = -rows;
  for (const Times& times : workers) {
    shares.push_back(RowsWithin(times, most, rows));
    surplus += shares.back();
  }
  while (surplus > 0) {
    size_t slowest = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[slowest] == 0 ||
          (shares[i] > 0 && workers[i].all().At(shares[i]) >
                                workers[slowest].all().At(shares[slowest]))) {
        slowest = i;
      }
    }
    const int64_t taken = std::min(surplus, shares[slowest]);
    shares[slowest] -= taken;
    surplus -= taken;
  }
  return shares;
}

}  // namespace

double BatchSplit::slowest_seconds() const {
  double most = 0;
  for (const Part& part : parts) most = std::max(most, part.seconds());
  return most;
}

BatchSplit SplitBatch(const RowWork& work) {
  const semantics::Frame frame(work.graph);
  BatchSplit split;
  for (uint32_t slot = 0; slot < work.graph.slots.size(); ++slot) {
    if (work.graph.slots[slot].kind == srg::Slot::Kind::kBound &&
        !absl::c_linear_search(work.given, slot)) {
      split.weight_bytes += work.meaning.slots[slot].size_bytes;
    }
  }
  const CallCosts costs(frame, work);
  RowCost input;
  RowCost output;
  for (const uint32_t slot : work.given) input = input + costs.BytesOf(slot);
  for (const uint32_t slot : work.outputs)
    output = output + costs.BytesOf(slot);

  std::vector<Times> times;
  for (size_t i = 0; i < work.workers.size(); ++i) {
    Times& worker = times.emplace_back();
    worker.compute = costs.OfAll(work.workers[i]);
    if (i == 0) continue;
    worker.transfer =
        input / LinkOf(work.workers[i]) + output / LinkOf(work.workers[0]);
    worker.has_room = split.weight_bytes <= work.workers[i].available_bytes;
  }
  split.alone_seconds = times[0].all().At(work.cut.rows);
  double best_alone = split.alone_seconds;
  for (const Times& worker : times) {
    if (worker.has_room) {
      best_alone = std::min(best_alone, worker.all().At(work.cut.rows));
    }
  }
  if (work.stages.ok() && work.stages->stages.size() > 1) {
    split.stage_seconds = work.stages->bottleneck_seconds();
  }

  const std::vector<int64_t> shares = Share(times, work.cut.rows, best_alone);
  for (size_t i = 0; i < work.workers.size(); ++i) {
    if (shares[i] == 0) continue;
    BatchSplit::Part& part = split.parts.emplace_back();
    part.worker = static_cast<uint32_t>(i);
    part.rows = shares[i];
    part.compute_seconds = times[i].compute.At(part.rows);
    part.transfer_seconds = times[i].transfer.At(part.rows);
    if (i == 0) continue;
    part.input_bytes = static_cast<uint64_t>(input.At(part.rows));
    part.output_bytes = static_cast<uint64_t>(output.At(part.rows));
  }
  const double slowest = split.slowest_seconds();
  if (split.parts.size() < 2) {
    split.problem =
        absl::StrCat("a part of it is not done sooner than ",
                     SecondsText(best_alone), " on one worker alone");
    if (absl::c_count_if(
            times, [](const Times& worker) { return worker.has_room; }) < 2) {
      split.problem = absl::StrCat("no other worker has room for its ",
                                   split.weight_bytes, " bytes of weights");
    }
    split.parts.clear();
  } else if (slowest > (1 - kCutMargin) * best_alone) {
    split.problem =
        absl::StrCat(SecondsText(slowest), " in parts gains too little over ",
                     SecondsText(best_alone), " on one worker alone");
    split.parts.clear();
  } else if (split.stage_seconds > 0 &&
             slowest > (1 - kCutMargin) * split.stage_seconds) {
    split.problem =
        absl::StrCat(SecondsText(slowest), " in parts gains too little over ",
                     SecondsText(split.stage_seconds), " a run in stages");
  }
  return split;
}

}  // namespace djinn::scheduler
