// Executes captured graphs whose rows pass through the replicas in
// micro-batches: a replica executes its stage of one micro-batch while the
// previous replica executes the previous stage of the next one.
//
// This process waits for no run. Every replica gets its runs in the order of
// the micro-batches, and its worker fetches the results of the previous stage.
// The rows of the inputs leave before the first run, and the outputs are put
// together after all runs, so that no replica waits for another stage before
// its next micro-batch.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/session/multi_worker/row_replayer.h"
#include "client_lib/session/multi_worker/row_shares.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

using Source = CapturedPart::Slot::Source;

// Limit on graphs whose stages are remembered.
constexpr size_t kMaxStaged = 64;

}  // namespace

struct RowReplayer::StagedGraph {
  // The stages are dropped once the graph is gone.
  std::weak_ptr<const CapturedGraph> captured_graph;
  std::map<uint64_t, std::vector<StageGraph>> by_rows;
};

absl::StatusOr<std::shared_ptr<const RowReplayer::StagedGraph>>
RowReplayer::StagesOf(
    const std::shared_ptr<const CapturedGraph>& captured_graph,
    const RowShares& shares) {
  const auto found = staged_.find(captured_graph->number);
  if (found != staged_.end()) return found->second;
  const auto staged = std::make_shared<StagedGraph>();
  staged->captured_graph = captured_graph;
  for (const RowShares::Part& part : shares.parts) {
    if (staged->by_rows.contains(part.rows)) continue;
    DJINN_ASSIGN_OR_RETURN(staged->by_rows[part.rows],
                           CutIntoStages(*captured_graph, shares, part.rows));
  }
  absl::erase_if(staged_, [](const auto& entry) {
    return entry.second->captured_graph.expired();
  });
  if (staged_.size() >= kMaxStaged) staged_.clear();
  staged_[captured_graph->number] = staged;
  return staged;
}

absl::Status RowReplayer::CheckRoomForStages(const Execution& replay) {
  const RowShares& shares = *replay.shares;
  DJINN_ASSIGN_OR_RETURN(const auto staged,
                         StagesOf(replay.captured_graph, shares));
  const std::vector<CapturedPart::Slot>& slots =
      replay.captured_graph->parts[0].slots;
  std::vector<uint64_t> takes(WorkerSet::kMaxMembers, 0);
  takes[kHome] += 2 * replay.OutputBytes();
  // A stage's input that an earlier stage computed is as large as that stage's
  // output.
  absl::flat_hash_map<uint32_t, uint64_t> made;
  for (const RowShares::Part& part : shares.parts) {
    for (const StageGraph& stage : staged->by_rows.at(part.rows)) {
      uint64_t& bytes = takes[stage.member];
      for (const uint32_t slot : stage.given) {
        const CapturedPart::Slot& of_whole = slots[slot];
        if (of_whole.source != Source::kGiven) {
          bytes += made[slot];
        } else if (const uint64_t row_bytes =
                       shares.given_row_bytes[of_whole.index];
                   row_bytes > 0) {
          bytes += row_bytes * part.rows;
        } else if (part.first == 0) {
          bytes +=
              table_->LackedBytes(replay.given[of_whole.index], stage.member);
        }
      }
      for (size_t i = 0; i < stage.outputs.size(); ++i) {
        made[stage.outputs[i]] = stage.captured_graph->output_bytes[i];
        bytes += stage.captured_graph->output_bytes[i];
      }
      // Captured storages are needed once for all micro-batches.
      if (part.first != 0) continue;
      for (const uint32_t slot : stage.kept) {
        bytes += table_->LackedBytes(
            replay.captured_graph->kept[slots[slot].index].get(), stage.member);
      }
    }
  }
  for (int member = 0; member < workers_->count(); ++member) {
    if (takes[member] > 0 &&
        workers_->RoomLeft(member) < static_cast<int64_t>(takes[member])) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                       "a worker has no room for its stage");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoragePtr>> RowReplayer::ExecuteInStages(
    Execution* replay) {
  const std::vector<CapturedPart::Slot>& slots =
      replay->captured_graph->parts[0].slots;
  DJINN_ASSIGN_OR_RETURN(const auto staged,
                         StagesOf(replay->captured_graph, *replay->shares));
  std::vector<RowsGiven> given;
  std::vector<uint64_t> rounds;
  for (const RowShares::Part& part : replay->shares->parts) {
    // The inputs of a micro-batch move before those of the next one.
    rounds_->Begin();
    rounds.push_back(rounds_->round());
    RowsGiven& rows = given.emplace_back();
    for (const StageGraph& stage : staged->by_rows.at(part.rows)) {
      for (const uint32_t slot : stage.given) {
        if (slots[slot].source != Source::kGiven) continue;
        DJINN_ASSIGN_OR_RETURN(
            (rows[{slot, stage.member}]),
            BringOneGiven(replay, slots[slot].index,
                          {stage.member, part.first, part.rows}));
      }
    }
  }
  std::vector<std::vector<RowsAt>> made;
  for (size_t i = 0; i < replay->shares->parts.size(); ++i) {
    const RowShares::Part& part = replay->shares->parts[i];
    rounds_->set_round(rounds[i]);
    DJINN_ASSIGN_OR_RETURN(
        made.emplace_back(),
        ExecuteMicroBatch(replay, part, staged->by_rows.at(part.rows),
                          given[i]));
  }
  return PutTogether(replay, made);
}

absl::StatusOr<std::vector<RowReplayer::RowsAt>> RowReplayer::ExecuteMicroBatch(
    Execution* replay, const RowShares::Part& part,
    absl::Span<const StageGraph> stages, const RowsGiven& rows_given) {
  const CapturedGraph& captured_graph = *replay->captured_graph;
  const std::vector<CapturedPart::Slot>& slots = captured_graph.parts[0].slots;
  // Maps slots to the intermediates that stages have computed so far, on the
  // replica that wrote them last.
  absl::flat_hash_map<uint32_t, RowsAt> made;
  for (const StageGraph& stage : stages) {
    std::vector<RemoteStorage*> given;
    for (const uint32_t slot : stage.given) {
      if (slots[slot].source == Source::kGiven) {
        given.push_back(rows_given.at({slot, stage.member}));
      } else {
        const RowsAt& rows = made.at(slot);
        const auto remaining =
            replay->shares->remaining_seconds.find({slot, stage.member});
        DJINN_ASSIGN_OR_RETURN(
            given.emplace_back(),
            Send(replay, rows.storage, rows.member, stage.member,
                 remaining == replay->shares->remaining_seconds.end()
                     ? StageOrder::kUnknown
                     : remaining->second));
      }
    }
    std::vector<RemoteStorage*> kept;
    for (const uint32_t slot : stage.kept) {
      RemoteStorage* const storage =
          captured_graph.kept[slots[slot].index].get();
      DJINN_RETURN_IF_ERROR(
          mover_->BringWhole(replay->lane, storage, stage.member));
      kept.push_back(table_->CopyAt(storage, stage.member));
    }
    std::vector<StoragePtr> outputs;
    for (const uint64_t bytes : stage.captured_graph->output_bytes) {
      outputs.push_back(table_->NewPart(bytes));
      replay->Pass(stage.member, outputs.back());
    }
    // The program's calls count once, however many micro-batches there are.
    const size_t calls = part.first == 0 ? stage.graph->graph.nodes.size() : 0;
    DJINN_RETURN_IF_ERROR(
        workers_->at(stage.member)
            .ReplayShare(replay->lane,
                         {stage.captured_graph, stage.graph, /*size=*/0, calls},
                         {given, kept, outputs}));
    // A storage that nothing had written is zero-filled there.
    for (const uint32_t slot : stage.kept) {
      table_->Count(captured_graph.kept[slots[slot].index].get(), stage.member);
    }
    for (const CapturedPart::Slot& slot :
         stage.captured_graph->parts[0].slots) {
      if (slot.source != Source::kGiven) continue;
      const uint32_t of_whole = stage.given[slot.index];
      if (slot.writes > 0) {
        made[of_whole] = {stage.member, given[slot.index]};
      } else if (slots[of_whole].source == Source::kGiven &&
                 replay->shares->given_row_bytes[slots[of_whole].index] == 0) {
        table_->Count(replay->given[slots[of_whole].index], stage.member);
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      made[stage.outputs[i]] = {stage.member, outputs[i].get()};
    }
  }
  std::vector<RowsAt> rows(captured_graph.output_bytes.size());
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot].output == CapturedPart::kNoOutput) continue;
    rows[slots[slot].output] = made.at(slot);
  }
  return rows;
}

}  // namespace djinn
