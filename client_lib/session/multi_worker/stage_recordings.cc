#include "client_lib/session/multi_worker/stage_recordings.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/srg/size_hole.h"
#include "common/srg/stage_cut.h"
#include "common/srg/validate.h"

namespace djinn {
namespace {

using Source = RecordingPart::Slot::Source;

constexpr uint32_t kNoStage = 0xffffffff;

// The first and the last stage that name a slot of the whole. `first` is
// kNoStage if no node names the slot.
struct Span {
  uint32_t first = kNoStage;
  uint32_t last = 0;
};

std::vector<Span> SpansOf(const std::vector<srg::StageCut>& cuts,
                          size_t slots) {
  std::vector<Span> spans(slots);
  for (uint32_t stage = 0; stage < cuts.size(); ++stage) {
    for (const uint32_t slot : cuts[stage].slots) {
      if (spans[slot].first == kNoStage) spans[slot].first = stage;
      spans[slot].last = stage;
    }
  }
  return spans;
}

// Returns the bytes of a slot that the whole creates.
uint64_t MadeBytes(const srg::Graph& whole, const srg::GraphFacts& facts,
                   uint32_t slot) {
  return whole.slots[slot].kind == srg::Slot::Kind::kCreated
             ? whole.slots[slot].created_bytes
             : facts.slots[slot].required_bytes;
}

}  // namespace

absl::StatusOr<std::vector<StageRecording>> CutIntoStages(
    const Recording& recording, const RowShares& shares, uint64_t rows) {
  const RecordingPart& all = recording.parts[0];
  DJINN_ASSIGN_OR_RETURN(const srg::Graph whole,
                         srg::AtSize(shares.graph.graph, shares.SizeOf(rows)));
  DJINN_ASSIGN_OR_RETURN(const srg::GraphFacts whole_facts,
                         srg::Validate(whole, {}));
  std::vector<srg::StageCut> cuts;
  for (uint32_t stage = 0; stage < shares.stages.size(); ++stage) {
    cuts.push_back(srg::CutStage(whole, shares.stage_of_node, stage));
  }
  const std::vector<Span> spans = SpansOf(cuts, whole.slots.size());

  std::vector<StageRecording> stages;
  for (uint32_t number = 0; number < cuts.size(); ++number) {
    srg::StageCut& cut = cuts[number];
    DJINN_ASSIGN_OR_RETURN(const srg::GraphFacts facts,
                           srg::Validate(cut.graph, {}));
    StageRecording stage;
    stage.member = shares.stages[number];
    auto piece = std::make_shared<Recording>();
    piece->number = recording.number;
    RecordingPart& part = piece->parts.emplace_back();
    for (size_t i = 0; i < cut.slots.size(); ++i) {
      const uint32_t slot = cut.slots[i];
      const RecordingPart::Slot& of_whole = all.slots[slot];
      RecordingPart::Slot& out = part.slots.emplace_back();
      out.writes = facts.slots[i].writes;
      out.reads = facts.slots[i].reads;
      if (of_whole.source == Source::kKept) {
        out.source = Source::kKept;
        out.index = static_cast<uint32_t>(stage.kept.size());
        stage.kept.push_back(slot);
      } else if (of_whole.source == Source::kGiven ||
                 spans[slot].first < number) {
        out.source = Source::kGiven;
        out.index = static_cast<uint32_t>(stage.given.size());
        stage.given.push_back(slot);
      } else {
        out.index = piece->made++;
        out.born = true;
        const bool leaves = spans[slot].last > number ||
                            of_whole.output != RecordingPart::kNoOutput;
        out.dies = !leaves;
        if (!leaves) continue;
        out.output = static_cast<uint32_t>(stage.outputs.size());
        stage.outputs.push_back(slot);
        piece->output_bytes.push_back(MadeBytes(whole, whole_facts, slot));
      }
    }
    piece->given = stage.given.size();
    for (const uint32_t hole : cut.float_holes) {
      part.floats.push_back(all.floats[hole]);
    }
    for (const uint32_t hole : cut.scalar_tensor_holes) {
      part.scalar_tensors.push_back(all.scalar_tensors[hole]);
    }
    for (size_t node = 0; node < all.sites.size(); ++node) {
      if (shares.stage_of_node[node] == number) {
        part.sites.push_back(all.sites[node]);
      }
    }
    auto graph = std::make_shared<SizedGraph>();
    graph->key = absl::StrCat(shares.stages_key, rows, ",", number);
    part.graph = cut.graph;
    graph->graph = std::move(cut.graph);
    stage.recording = std::move(piece);
    stage.graph = std::move(graph);
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace djinn
