#include "client_lib/session/multi_worker/row_shares.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"
#include "common/srg/stage_cut.h"
#include "common/srg/validate.h"

namespace djinn {
namespace {

using Source = CapturedPart::Slot::Source;

// These bytes mark the start of a graph's name. In a key, they would be the
// number of calls; no graph has so many, so no key equals a name.
constexpr absl::string_view kMark("\xff\xff\xff\xfe", 4);
constexpr absl::string_view kStageMark("\xff\xff\xff\xfd", 4);

absl::Status NotShared(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_SHARED", why);
}

absl::Status Wrong(absl::string_view why) { return absl::InternalError(why); }

absl::Status BadPlan(absl::string_view why) {
  return MakeError(absl::StatusCode::kInternal, "BAD_BATCH_PLAN",
                   absl::StrCat("the coordinator's plan of a batch: ", why));
}

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Returns the bytes that the graph needs of each slot, or writes.
absl::StatusOr<std::vector<uint64_t>> BytesOfSlots(const srg::Graph& graph) {
  DJINN_ASSIGN_OR_RETURN(const srg::GraphFacts facts, srg::Validate(graph, {}));
  std::vector<uint64_t> bytes;
  for (size_t slot = 0; slot < graph.slots.size(); ++slot) {
    bytes.push_back(graph.slots[slot].kind == srg::Slot::Kind::kCreated
                        ? graph.slots[slot].created_bytes
                        : facts.slots[slot].required_bytes);
  }
  return bytes;
}

// Checks that each member occurs once.
class Members {
 public:
  explicit Members(int count) : count_(static_cast<uint32_t>(count)) {}

  absl::Status Take(uint32_t member) {
    if (member >= count_ || (seen_ >> member & 1) != 0) {
      return Wrong(absl::StrCat("member ", member));
    }
    seen_ |= 1u << member;
    return absl::OkStatus();
  }

 private:
  const uint32_t count_;
  uint32_t seen_ = 0;
};

absl::Status TakeStages(const v1::StagePlan& plan, const srg::Graph& graph,
                        int members, RowShares* shares) {
  constexpr uint32_t kNone = 0xffffffff;
  Members seen(members);
  shares->stage_of_node.assign(graph.nodes.size(), kNone);
  size_t nodes = 0;
  for (const v1::StagePlan::Stage& stage : plan.stages()) {
    DJINN_RETURN_IF_ERROR(seen.Take(stage.member()));
    const auto number = static_cast<uint32_t>(shares->stages.size());
    if (stage.nodes().empty()) {
      return Wrong(absl::StrCat("nothing in stage ", number));
    }
    shares->stages.push_back(static_cast<int>(stage.member()));
    for (const uint32_t node : stage.nodes()) {
      if (node >= graph.nodes.size() || shares->stage_of_node[node] != kNone) {
        return Wrong(absl::StrCat("node ", node, " in stage ", number));
      }
      shares->stage_of_node[node] = number;
      ++nodes;
    }
  }
  if (nodes != graph.nodes.size()) {
    return Wrong(absl::StrCat("stages of ", nodes, " nodes together"));
  }
  for (const v1::StagePlan::Transfer& transfer : plan.transfers()) {
    const auto member = static_cast<int>(transfer.to_member());
    double& remaining = shares->remaining_seconds[{transfer.slot(), member}];
    // If a slot is written several times, the first value counts.
    remaining = std::max(remaining, transfer.remaining_seconds());
  }
  return srg::CheckStageOrder(graph, shares->stage_of_node);
}

absl::Status TakeParts(const v1::BatchPlan& plan, int members,
                       RowShares* shares) {
  Members seen(members);
  for (const v1::BatchPlan::Part& part : plan.parts()) {
    if (shares->stages.empty()) {
      DJINN_RETURN_IF_ERROR(seen.Take(part.member()));
    } else if (part.member() != static_cast<uint32_t>(shares->stages[0])) {
      return Wrong(
          absl::StrCat("a micro-batch begins at member ", part.member()));
    }
    const uint64_t left = plan.rows() - shares->rows;
    if (part.rows() == 0 || part.rows() > left) {
      return Wrong(absl::StrCat(part.rows(), " rows of ", plan.rows()));
    }
    shares->parts.push_back(
        {static_cast<int>(part.member()), shares->rows, part.rows()});
    shares->rows += part.rows();
  }
  if (shares->rows != plan.rows() || shares->parts.size() < 2) {
    return Wrong(absl::StrCat("parts of ", shares->rows, " rows together"));
  }
  return absl::OkStatus();
}

// Returns the bytes of a row in each slot that has rows; 0 for the others.
absl::StatusOr<std::vector<uint64_t>> FindRowBytes(
    const CapturedPart& part, const v1::StageAnswer& answer,
    const RowShares& shares) {
  DJINN_ASSIGN_OR_RETURN(const std::vector<uint64_t> whole,
                         BytesOfSlots(part.graph));
  std::vector<uint64_t> row_bytes(whole.size(), 0);
  const auto cut = [&](size_t slot) {
    if (whole[slot] == 0 || whole[slot] % shares.rows != 0) return false;
    row_bytes[slot] = whole[slot] / shares.rows;
    return true;
  };
  for (const uint32_t slot : answer.cut_slots()) {
    if (slot >= part.slots.size() ||
        part.slots[slot].source != Source::kGiven || !cut(slot)) {
      return Wrong(absl::StrCat("slot ", slot, " is not cut by rows"));
    }
  }
  for (size_t slot = 0; slot < part.slots.size(); ++slot) {
    if (part.slots[slot].output != CapturedPart::kNoOutput && !cut(slot)) {
      return Wrong(absl::StrCat("output ", slot, " has no rows"));
    }
  }
  // Each shard's graph must be valid at its size.
  for (const RowShares::Part& each : shares.parts) {
    DJINN_ASSIGN_OR_RETURN(
        const srg::Graph at_size,
        srg::AtSize(shares.graph.graph, shares.SizeOf(each.rows)));
    DJINN_ASSIGN_OR_RETURN(const std::vector<uint64_t> bytes,
                           BytesOfSlots(at_size));
    for (size_t slot = 0; slot < bytes.size(); ++slot) {
      const bool made = part.slots[slot].source == Source::kMade &&
                        part.slots[slot].output == CapturedPart::kNoOutput;
      const uint64_t due =
          row_bytes[slot] > 0 ? each.rows * row_bytes[slot] : whole[slot];
      if (!made && bytes[slot] != due) {
        return Wrong(absl::StrCat("slot ", slot, " of a part has ", bytes[slot],
                                  " bytes, not ", due));
      }
    }
  }
  return row_bytes;
}

absl::StatusOr<std::shared_ptr<const RowShares>> TakeAnswer(
    const CapturedGraph& captured_graph, const v1::StageAnswer& answer,
    int members) {
  const v1::BatchPlan& plan = answer.batch();
  const CapturedPart& part = captured_graph.parts[0];
  auto shares = std::make_shared<RowShares>();
  if (answer.has_plan()) {
    DJINN_RETURN_IF_ERROR(
        TakeStages(answer.plan(), part.graph, members, shares.get()));
  }
  DJINN_RETURN_IF_ERROR(TakeParts(plan, members, shares.get()));
  v1::Graph message = srg::ToProto(part.graph);
  *message.mutable_size_hole() = answer.rows();
  DJINN_ASSIGN_OR_RETURN(shares->graph.graph, srg::FromProto(message));
  DJINN_RETURN_IF_ERROR(srg::CheckSizeHole(shares->graph.graph));
  DJINN_ASSIGN_OR_RETURN(const std::vector<uint64_t> row_bytes,
                         FindRowBytes(part, answer, *shares));
  shares->given_row_bytes.assign(captured_graph.given, 0);
  shares->output_row_bytes.assign(captured_graph.output_bytes.size(), 0);
  for (size_t slot = 0; slot < part.slots.size(); ++slot) {
    const CapturedPart::Slot& used = part.slots[slot];
    if (used.source == Source::kGiven) {
      shares->given_row_bytes[used.index] = row_bytes[slot];
    }
    if (used.output == CapturedPart::kNoOutput) continue;
    if (row_bytes[slot] * plan.rows() !=
        captured_graph.output_bytes[used.output]) {
      return Wrong("an output is not all rows");
    }
    shares->output_row_bytes[used.output] = row_bytes[slot];
  }
  std::string& key = shares->graph.key;
  key = absl::StrCat(kMark, part.key, answer.rows().SerializeAsString());
  if (!shares->stages.empty()) {
    std::string name = key;
    for (const uint32_t stage : shares->stage_of_node) Put(stage, &name);
    // The name is hashed because every run looks it up.
    const ContentHash hash = HashContent(name.data(), name.size());
    shares->stages_key = std::string(kStageMark);
    Put(hash, &shares->stages_key);
    uint64_t looked_at = 0;
    for (const RowShares::Part& each : shares->parts) {
      if (std::exchange(looked_at, each.rows) == each.rows) continue;
      DJINN_RETURN_IF_ERROR(
          CutIntoStages(captured_graph, *shares, each.rows).status());
    }
  }
  return shares;
}

using Source = CapturedPart::Slot::Source;

constexpr uint32_t kNoStage = 0xffffffff;

// The first and the last stage that name a slot of the whole graph. `first` is
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

absl::Status CheckShareable(const CapturedGraph& captured_graph) {
  if (captured_graph.parts.size() != 1) {
    return NotShared("it is executed in several runs");
  }
  for (const CapturedPart::Slot& slot : captured_graph.parts[0].slots) {
    if (slot.source != Source::kMade && slot.writes > 0) {
      return NotShared("it writes what was there before, or draws");
    }
  }
  return absl::OkStatus();
}

std::string SharingKey(const CapturedGraph& captured_graph) {
  std::string key = captured_graph.parts[0].key;
  for (const CapturedPart::Slot& slot : captured_graph.parts[0].slots) {
    Put(slot.source, &key);
    Put(slot.index, &key);
    Put(slot.output, &key);
  }
  for (const uint64_t bytes : captured_graph.output_bytes) Put(bytes, &key);
  return key;
}

v1::RecordingSlots SlotsOf(const CapturedGraph& captured_graph) {
  v1::RecordingSlots slots;
  const std::vector<CapturedPart::Slot>& all = captured_graph.parts[0].slots;
  for (uint32_t slot = 0; slot < all.size(); ++slot) {
    if (all[slot].source == Source::kGiven) slots.add_given(slot);
    if (all[slot].output != CapturedPart::kNoOutput) slots.add_outputs(slot);
  }
  return slots;
}

absl::StatusOr<std::shared_ptr<const RowShares>> MakeShares(
    const CapturedGraph& captured_graph, const v1::StageAnswer& answer,
    int members) {
  if (answer.batch().parts().empty()) {
    return NotShared(answer.batch().problem());
  }
  auto shares = TakeAnswer(captured_graph, answer, members);
  // Every error means that the plan is bad.
  if (!shares.ok()) return BadPlan(shares.status().message());
  return shares;
}

bool RowSharing::Asks() {
  MutexLock lock(&mu_);
  if (answered_) return false;
  uint64_t uses = ++uses_;
  while (uses % 8 == 0) uses /= 8;
  return uses == 1;
}

void RowSharing::Answer(
    absl::StatusOr<std::shared_ptr<const RowShares>> answer) {
  MutexLock lock(&mu_);
  answered_ = true;
  shares_ = std::move(answer);
}

absl::StatusOr<std::shared_ptr<const RowShares>> RowSharing::shares() const {
  MutexLock lock(&mu_);
  return shares_;
}

absl::StatusOr<std::vector<StageGraph>> CutIntoStages(
    const CapturedGraph& captured_graph, const RowShares& shares,
    uint64_t rows) {
  const CapturedPart& all = captured_graph.parts[0];
  DJINN_ASSIGN_OR_RETURN(const srg::Graph whole,
                         srg::AtSize(shares.graph.graph, shares.SizeOf(rows)));
  DJINN_ASSIGN_OR_RETURN(const srg::GraphFacts whole_facts,
                         srg::Validate(whole, {}));
  std::vector<srg::StageCut> cuts;
  for (uint32_t stage = 0; stage < shares.stages.size(); ++stage) {
    cuts.push_back(srg::CutStage(whole, shares.stage_of_node, stage));
  }
  const std::vector<Span> spans = SpansOf(cuts, whole.slots.size());

  std::vector<StageGraph> stages;
  for (uint32_t number = 0; number < cuts.size(); ++number) {
    srg::StageCut& cut = cuts[number];
    DJINN_ASSIGN_OR_RETURN(const srg::GraphFacts facts,
                           srg::Validate(cut.graph, {}));
    StageGraph stage;
    stage.member = shares.stages[number];
    auto piece = std::make_shared<CapturedGraph>();
    piece->number = captured_graph.number;
    CapturedPart& part = piece->parts.emplace_back();
    for (size_t i = 0; i < cut.slots.size(); ++i) {
      const uint32_t slot = cut.slots[i];
      const CapturedPart::Slot& of_whole = all.slots[slot];
      CapturedPart::Slot& out = part.slots.emplace_back();
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
        out.created = true;
        const bool leaves = spans[slot].last > number ||
                            of_whole.output != CapturedPart::kNoOutput;
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
    stage.captured_graph = std::move(piece);
    stage.graph = std::move(graph);
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace djinn
