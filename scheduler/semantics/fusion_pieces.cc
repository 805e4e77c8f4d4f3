#include "scheduler/semantics/fusion_pieces.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns.h"
#include "scheduler/semantics/walk.h"

namespace djinn::semantics {
namespace {

// Of a projection whose result nothing in its own structure reads.
std::optional<Projection> LeftBy(const Frame& frame, int node) {
  if (!IsProjection(frame, node)) return std::nullopt;
  const Frame::Output& output = frame.outputs(node)[0];
  if (output.view == nullptr || !frame.value(output.value).readers.empty()) {
    return std::nullopt;
  }
  const std::optional<Context::Key> key = Context::KeyOf(output.view);
  const auto in = frame.Sizes(node, frame.op(node) == "addmm" ? 1 : 0);
  if (!key.has_value() || in.empty()) return std::nullopt;
  return Projection{*key, output.view->sizes, in.back()};
}

// A projection that looks like a query's, since a norm is before it and nothing
// behind: it may be a projector's.
bool IsLoneProjection(const Region& region) {
  return region.pattern == "attention" && region.HasTrait("piece") &&
         region.members.size() == 1 &&
         region.members[0].role == "attention.projection";
}

// Rows stay what they are in a storage of their own.
bool CopiesRows(const Frame& frame, int node, Context::Key key) {
  return frame.op_class(node) == OpClass::kLayout &&
         absl::c_any_of(frame.operands(node), [&](const auto& operand) {
           return Context::KeyOf(operand.view) == key;
         });
}

void LearnWhatIsJoined(const Frame& frame, const Region& region,
                       Context* context) {
  const bool scatter = region.HasTrait("scatter");
  const bool sources = region.HasTrait("sources");
  if (!scatter && !sources && !region.HasTrait("comparison")) return;
  for (const Member& member : region.members) {
    if ((scatter || sources) && member.role != "fusion.join") continue;
    if (sources && frame.op_class(member.node) != OpClass::kLayout) continue;
    auto operands = frame.operands(member.node);
    // The rows that are put in, and not those among which they are.
    if (scatter) operands.remove_prefix(operands.size() - 1);
    for (const Frame::Operand& operand : operands) {
      if (!frame.IsFromElsewhere(operand)) continue;
      const std::optional<Context::Key> key = Context::KeyOf(operand.view);
      if (key.has_value()) {
        context->RememberJoined(*key, operand.view->sizes.back());
      }
    }
  }
}

}  // namespace

void AddJoinedProjections(const Frame& frame, const Context& context,
                          Regions* regions) {
  for (int i = 0; i < frame.node_count(); ++i) {
    const int index = regions->region_of(i);
    const bool lone = index >= 0 && IsLoneProjection(regions->all()[index]);
    if (!regions->IsFree(i) && !lone) continue;
    const std::optional<Projection> left = LeftBy(frame, i);
    if (!left.has_value() || !context.IsJoined(*left)) continue;
    if (lone) regions->Rename(index, "fusion");
    Region region{"fusion", {{i, "fusion.projection"}}, {"piece"}};
    for (const int before : ProjectorBefore(frame, *regions, i)) {
      region.members.push_back({before, "fusion.projection"});
    }
    regions->Add(std::move(region));
  }
}

std::vector<Projection> FindLeftProjections(const Frame& frame,
                                            const Meaning& meaning) {
  std::vector<Projection> found;
  for (int i = 0; i < frame.node_count(); ++i) {
    const NodeMeaning& node = meaning.nodes[i];
    if (node.modality != Modality::kVision &&
        node.modality != Modality::kAudio) {
      continue;
    }
    if (node.region >= 0 && meaning.regions[node.region].pattern != "mlp" &&
        !IsLoneProjection(meaning.regions[node.region])) {
      continue;
    }
    std::optional<Projection> left = LeftBy(frame, i);
    if (left.has_value()) found.push_back(*std::move(left));
  }
  return found;
}

void LearnJoins(const Frame& frame, const Meaning& meaning, Context* context) {
  for (const Region& region : meaning.regions) {
    if (region.pattern == "fusion") LearnWhatIsJoined(frame, region, context);
  }
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const Frame::Output& output : frame.outputs(i)) {
      const std::optional<Context::Key> key = Context::KeyOf(output.view);
      if (key.has_value() && !CopiesRows(frame, i, *key)) {
        context->RememberProjection(*key, std::nullopt);
      }
    }
  }
  for (const Projection& left : meaning.left_projections) {
    context->RememberProjection(left.key, left);
  }
}

}  // namespace djinn::semantics
