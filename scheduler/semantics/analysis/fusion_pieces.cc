#include "scheduler/semantics/analysis/fusion_pieces.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether no node of its own graph reads the value, except to compute
// squares that are left as well. In that case the next piece computes the
// length of its rows.
bool IsLeft(const Frame& frame, int value) {
  return absl::c_all_of(frame.value(value).readers, [&](int reader) {
    return (frame.op(reader) == "pow" || frame.op(reader) == "square") &&
           frame.Consumers(reader).empty();
  });
}

// Returns the projection of which the node leaves only the rows that a mask
// selects; nothing for other nodes.
std::optional<Projection> PartLeftBy(const Frame& frame, const Regions& regions,
                                     int node) {
  if (frame.op(node) != "index" || frame.operands(node).size() != 2 ||
      frame.outputs(node)[0].view != nullptr ||
      !frame.Consumers(node).empty()) {
    return std::nullopt;
  }
  const int rows = frame.Producer(node, 0);
  const int made = rows < 0 ? -1 : ProjectionBehind(frame, regions, rows);
  if (made < 0 || frame.operands(made).empty()) return std::nullopt;
  const srg::TensorView& whole = *frame.operands(node)[0].view;
  const std::optional<Context::Key> key = Context::KeyOf(&whole);
  const auto in = frame.Sizes(made, RowsOperand(frame, made));
  if (!key.has_value() || in.empty()) return std::nullopt;
  return Projection{*key, whole.sizes, in.back(), false, true};
}

// Returns the projection whose rows the node leaves.
int MakerOf(const Frame& frame, const Regions& regions, int node,
            const Projection& left) {
  if (left.unit) return node;
  return ProjectionBehind(frame, regions,
                          left.part ? frame.Producer(node, 0) : node);
}

// Returns the projection whose rows the node makes, or the rows of length one
// that it makes, if no node of its own graph reads them; otherwise nothing.
std::optional<Projection> LeftBy(const Frame& frame, const Regions& regions,
                                 int node) {
  if (frame.outputs(node).empty() || frame.operands(node).empty()) {
    return std::nullopt;
  }
  const std::optional<Projection> part = PartLeftBy(frame, regions, node);
  if (part.has_value()) return part;
  const bool unit = MakesUnitRows(frame, node);
  const int projection = unit ? node : ProjectionBehind(frame, regions, node);
  if (projection < 0) return std::nullopt;
  const Frame::Output& output = frame.outputs(node)[0];
  if (output.view == nullptr || !IsLeft(frame, output.value)) {
    return std::nullopt;
  }
  const std::optional<Context::Key> key = Context::KeyOf(output.view);
  const auto in = frame.Sizes(projection, RowsOperand(frame, projection));
  if (!key.has_value() || in.empty()) return std::nullopt;
  return Projection{*key, output.view->sizes, in.back(), unit};
}

// Returns whether the region is a projection that looks like a query's, with a
// norm before it and nothing behind it. It may belong to a projector.
bool IsLoneProjection(const Region& region) {
  return region.pattern == "attention" && region.HasTrait("piece") &&
         region.members.size() == 1 &&
         region.members[0].role == "attention.projection";
}

// Returns whether the node projects one token's vector per row, picked from all
// vectors that a text encoder made.
bool ReadsPickedTokens(const Frame& frame, int node) {
  if (!IsProjection(frame, node)) return false;
  const int input = RowsOperand(frame, node);
  const srg::TensorView& rows = *frame.operands(node)[input].view;
  const int made = frame.Producer(node, input);
  return rows.sizes.size() == 2 && (rows.strides[0] > rows.sizes[1] ||
                                    (made >= 0 && frame.op(made) == "index" &&
                                     frame.operands(made).size() == 3));
}

// Returns whether the node copies rows to a storage of their own, or squares
// them to compute their length.
bool CopiesRows(const Frame& frame, int node, Context::Key key) {
  return (frame.op_class(node) == OpClass::kLayout || frame.op(node) == "pow" ||
          frame.op(node) == "square") &&
         absl::c_any_of(frame.operands(node), [&](const auto& operand) {
           return Context::KeyOf(operand.view) == key;
         });
}

// Returns the width of the rows of one side of a product, which may be
// transposed.
int64_t WidthOf(const srg::TensorView& side) {
  const size_t rank = side.sizes.size();
  const bool turned =
      rank >= 2 && side.strides[rank - 1] != 1 && side.strides[rank - 2] == 1;
  return side.sizes[turned ? rank - 2 : rank - 1];
}

// Returns whether the side consists of rows of length one, which this graph
// computed or an earlier piece left.
bool IsUnitSide(const Frame& frame, const Context& context,
                const Frame::Operand& side) {
  const int made = frame.value(side.value).producer;
  if (made >= 0) return MakesScaledUnitRows(frame, made);
  const std::optional<Context::Key> key = Context::KeyOf(side.view);
  return key.has_value() && context.IsUnitLeft(*key, WidthOf(*side.view));
}

// Returns the operands from before the run that a layout node, and the layout
// nodes before it, move.
std::vector<const srg::TensorView*> MovedFrom(const Frame& frame, int node) {
  const auto moves = [&](int other) {
    return frame.op_class(other) == OpClass::kLayout;
  };
  std::vector<int> layouts = Upstream(frame, node, moves, 16);
  layouts.push_back(node);
  std::vector<const srg::TensorView*> found;
  for (const int layout : layouts) {
    for (const Frame::Operand& operand : frame.operands(layout)) {
      if (frame.IsFromElsewhere(operand)) found.push_back(operand.view);
    }
  }
  return found;
}

struct Moved {
  Context::Key key;
  int64_t width;
  Projection made;
};

// Returns the values that projections of other pieces left and that layout
// nodes reorder and leave.
std::vector<Moved> FindMoved(const Frame& frame, const Context& context) {
  std::vector<Moved> moved;
  for (int i = 0; i < frame.node_count(); ++i) {
    if (frame.op_class(i) != OpClass::kLayout || frame.outputs(i).empty() ||
        !frame.Consumers(i).empty()) {
      continue;
    }
    const srg::TensorView* const view = frame.outputs(i)[0].view;
    const std::optional<Context::Key> key = Context::KeyOf(view);
    if (!key.has_value() || CopiesRows(frame, i, *key)) continue;
    for (const srg::TensorView* const from : MovedFrom(frame, i)) {
      const std::optional<Context::Key> source = Context::KeyOf(from);
      if (!source.has_value()) continue;
      for (Projection& made : context.ProjectionsIn(*source)) {
        moved.push_back({*key, view->sizes.back(), std::move(made)});
      }
    }
  }
  return moved;
}

void LearnWhatIsJoined(const Frame& frame, const Region& region,
                       Context* context) {
  const bool scatter = region.HasTrait("scatter");
  const bool sources = region.HasTrait("sources");
  const bool comparison = region.HasTrait("comparison");
  if (!scatter && !sources && !comparison) return;
  for (const Member& member : region.members) {
    if ((scatter || sources) && member.role != "fusion.join") continue;
    if (sources && frame.op_class(member.node) != OpClass::kLayout) continue;
    // The input of a side's projection belongs to the side's encoder.
    if (comparison && member.role == "fusion.projection" &&
        IsProjection(frame, member.node)) {
      continue;
    }
    auto operands = frame.operands(member.node);
    // Only the scattered rows count, not the rows among which they are put.
    if (scatter) operands.remove_prefix(operands.size() - 1);
    for (const Frame::Operand& operand : operands) {
      const int made = frame.value(operand.value).producer;
      if (scatter && made >= 0 && frame.op_class(made) == OpClass::kLayout) {
        for (const srg::TensorView* const from : MovedFrom(frame, made)) {
          const std::optional<Context::Key> key = Context::KeyOf(from);
          if (key.has_value()) context->RememberJoined(*key, -1);
        }
      }
      // Transposed rows look like a weight.
      const bool side = comparison && member.role == "fusion.join" &&
                        frame.op_class(member.node) == OpClass::kMatmul &&
                        frame.value(operand.value).producer < 0;
      if (!side && !frame.IsFromElsewhere(operand)) continue;
      const std::optional<Context::Key> key = Context::KeyOf(operand.view);
      if (key.has_value()) {
        context->RememberJoined(*key, WidthOf(*operand.view));
      }
    }
  }
}

}  // namespace

void AddCutComparisons(const Frame& frame, const Context& context,
                       Regions* regions) {
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!regions->IsFree(i) || frame.op_class(i) != OpClass::kMatmul) continue;
    const auto operands = frame.operands(i);
    if (operands.size() == 2 && IsUnitSide(frame, context, operands[0]) &&
        IsUnitSide(frame, context, operands[1])) {
      AddComparison(frame, i, regions);
    }
  }
}

void AddJoinedProjections(const Frame& frame, const Context& context,
                          Regions* regions) {
  for (int i = 0; i < frame.node_count(); ++i) {
    const std::optional<Projection> left = LeftBy(frame, *regions, i);
    if (!left.has_value() || !context.IsJoined(*left)) continue;
    const int made = MakerOf(frame, *regions, i, *left);
    const int index = regions->region_of(made);
    const bool lone = index >= 0 && IsLoneProjection(regions->all()[index]);
    if (!regions->IsFree(made) && !lone) continue;
    if (lone) regions->Rename(index, "fusion");
    Region region{"fusion", {{made, "fusion.projection"}}, {"piece"}};
    for (const int before : left->unit
                                ? ComparedBefore(frame, *regions, made)
                                : ProjectorBefore(frame, *regions, made)) {
      region.members.push_back({before, "fusion.projection"});
    }
    for (const int squares : frame.Consumers(i)) {
      region.members.push_back({squares, "fusion.projection"});
    }
    regions->Add(std::move(region));
  }
}

std::vector<Projection> FindLeftProjections(const Frame& frame,
                                            const Regions& regions,
                                            const Meaning& meaning) {
  std::vector<Projection> found;
  for (int i = 0; i < frame.node_count(); ++i) {
    const NodeMeaning& node = meaning.nodes[i];
    // Rows of length one, and values that become such rows, may belong to
    // either side.
    if (node.modality != Modality::kVision &&
        node.modality != Modality::kAudio &&
        (node.modality == Modality::kFusion ||
         (!MakesUnitRows(frame, i) && frame.Consumers(i).empty() &&
          !ReadsPickedTokens(frame, i)))) {
      continue;
    }
    std::optional<Projection> left = LeftBy(frame, regions, i);
    if (!left.has_value()) continue;
    const int made = MakerOf(frame, regions, i, *left);
    const int region = meaning.nodes[made].region;
    if (region >= 0 && meaning.regions[region].pattern != "mlp" &&
        !IsLoneProjection(meaning.regions[region])) {
      continue;
    }
    found.push_back(*std::move(left));
  }
  return found;
}

void LearnJoins(const Frame& frame, const Regions& regions,
                const Meaning& meaning, Context* context) {
  for (const Region& region : meaning.regions) {
    if (region.pattern == "fusion") LearnWhatIsJoined(frame, region, context);
  }
  // Moved projections continue under the key of the moved value.
  const std::vector<Moved> moved = FindMoved(frame, *context);
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const Frame::Output& output : frame.outputs(i)) {
      const std::optional<Context::Key> key = Context::KeyOf(output.view);
      if (key.has_value() && !CopiesRows(frame, i, *key)) {
        context->ForgetProjections(*key);
      }
    }
  }
  for (const Moved& one : moved) {
    context->RememberMoved(one.key, one.width, one.made);
  }
  for (const Projection& left : meaning.left_projections) {
    context->RememberProjection(left);
  }
  // A comparison in a later piece is recognized by what it reads, even where a
  // part of it was found already.
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!MakesUnitRows(frame, i)) continue;
    const std::optional<Projection> left = LeftBy(frame, regions, i);
    if (left.has_value()) context->RememberProjection(*left);
  }
}

}  // namespace djinn::semantics
