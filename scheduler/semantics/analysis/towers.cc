#include "scheduler/semantics/analysis/towers.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// The sources of a value, as bits.
constexpr int kText = 1;
constexpr int kPixels = 2;
constexpr int kSound = 4;

int SourceOf(const Frame& frame, const Regions& regions, int node) {
  if (frame.op_class(node) == OpClass::kEmbedding) {
    const auto table = frame.Sizes(node, 0), rows = frame.Sizes(node, 1);
    // Only a plain look-up by tokens is text.
    return table.empty() || rows.empty() || frame.op(node) != "embedding"
               ? 0
               : kText;
  }
  if (frame.op_class(node) != OpClass::kConvolution) return 0;
  const size_t rank = frame.Sizes(node, 0).size();
  if (regions.role(node) == "embedding.patches" || rank >= 4) return kPixels;
  return rank == 3 ? kSound : 0;
}

int BitsOf(Modality modality) {
  switch (modality) {
    case Modality::kText:
      return kText;
    case Modality::kVision:
      return kPixels;
    case Modality::kAudio:
      return kSound;
    case Modality::kFusion:
      return kText | kPixels;
    case Modality::kUnspecified:
      break;
  }
  return 0;
}

bool MakesFloats(const Frame& frame, int node) {
  for (const Frame::Output& output : frame.outputs(node)) {
    if (output.view == nullptr || IsFloating(output.view->data_type)) {
      return true;
    }
  }
  return false;
}

bool IsPower(int bits) { return bits != 0 && (bits & (bits - 1)) == 0; }

Modality ModalityOf(int sources) {
  switch (sources) {
    case 0:
      return Modality::kUnspecified;
    case kText:
      return Modality::kText;
    case kPixels:
      return Modality::kVision;
    case kSound:
      return Modality::kAudio;
    default:
      return Modality::kFusion;
  }
}

class UnionFind {
 public:
  explicit UnionFind(int count) : parents_(count) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }
  int Find(int item) {
    while (parents_[item] != item) {
      item = parents_[item] = parents_[parents_[item]];
    }
    return item;
  }
  void Join(int a, int b) { parents_[Find(b)] = Find(a); }

 private:
  std::vector<int> parents_;
};

bool IsFusion(const Regions& regions, int node) {
  return regions.pattern(node) == "fusion";
}

void AddUnitRows(const Frame& frame, const Regions& regions, int node,
                 Region* region) {
  region->members.push_back({node, "fusion.projection"});
  for (const int before : ComparedBefore(frame, regions, node)) {
    region->members.push_back({before, "fusion.projection"});
  }
}

// Adds both sides of a comparison that a later piece makes: rows of length one
// and of equal width, of text on one side and of images or sound on the other.
void AddSidesOfComparison(const Frame& frame, const std::vector<int>& sources,
                          Regions* regions) {
  std::vector<int> sides;
  for (int i = 0; i < frame.node_count(); ++i) {
    if (regions->IsFree(i) && IsPower(sources[i]) && MakesUnitRows(frame, i) &&
        !frame.OutputSizes(i).empty() && frame.Consumers(i).empty()) {
      sides.push_back(i);
    }
  }
  for (const int text : sides) {
    if (sources[text] != kText) continue;
    for (const int other : sides) {
      if (sources[other] == kText ||
          frame.OutputSizes(other).back() != frame.OutputSizes(text).back()) {
        continue;
      }
      Region region{"fusion", {}, {"comparison"}};
      AddUnitRows(frame, *regions, text, &region);
      AddUnitRows(frame, *regions, other, &region);
      regions->Add(std::move(region));
    }
  }
}

// Returns whether the operand's value continues behind the node.
bool Continues(const Frame& frame, const Regions& regions, int node, int k) {
  const int region = regions.region_of(node);
  if (region < 0) return true;
  if (regions.all()[region].memory >= 0) {
    return frame.operands(node)[k].value != regions.all()[region].memory;
  }
  if (IsFusion(regions, node)) {
    return regions.all()[region].HasTrait("scatter") &&
           regions.role(node) == "fusion.join" && k == 0;
  }
  return true;
}

}  // namespace

std::vector<Modality> FindSources(const Frame& frame, const Context& context) {
  std::vector<Modality> sources(frame.graph().slots.size());
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const Frame::Operand& operand : frame.operands(i)) {
      Modality& source = sources[operand.view->slot];
      if (source != Modality::kUnspecified || !frame.IsFromElsewhere(operand)) {
        continue;
      }
      const std::optional<Origin> origin = context.LeftBy(*operand.view);
      if (origin.has_value()) source = origin->modality;
    }
  }
  return sources;
}

std::vector<Modality> AddJoins(const Frame& frame,
                               absl::Span<const Modality> left,
                               Regions* regions) {
  std::vector<int> sources(frame.node_count(), 0);
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!MakesFloats(frame, i)) continue;
    sources[i] = SourceOf(frame, *regions, i);
    const bool own = sources[i] != 0;
    bool pure = true, elsewhere = false;
    int joined = 0;
    for (const Frame::Operand& operand : frame.operands(i)) {
      const int producer = frame.value(operand.value).producer;
      int source = producer < 0 ? 0 : sources[producer];
      if (frame.IsFromElsewhere(operand)) {
        source = BitsOf(left[operand.view->slot]);
        elsewhere |= source != 0;
      }
      joined |= source;
      pure &= source == 0 || IsPower(source);
    }
    const OpClass op_class = frame.op_class(i);
    // Positions are also looked up in a table, and then added.
    if (op_class == OpClass::kPointwise && !IsPower(joined)) joined &= ~kText;
    if (!own) sources[i] = joined;
    if (own || IsPower(joined) || joined == 0 || !pure) continue;
    if (!regions->IsFree(i)) continue;
    // A piece of cross attention may show only one product.
    if (elsewhere && IsBatchedProduct(frame, i)) continue;
    if (op_class == OpClass::kLayout || op_class == OpClass::kMatmul ||
        op_class == OpClass::kIndexing) {
      Region region{"fusion", {{i, "fusion.join"}}, {"sources"}};
      // Adds each side's projection to the common space, or its rows of length
      // one.
      for (const int before : frame.Producers(i)) {
        if (!regions->IsFree(before)) continue;
        if (op_class == OpClass::kLayout && IsProjection(frame, before)) {
          region.members.push_back({before, "fusion.projection"});
        }
        if (op_class == OpClass::kMatmul &&
            MakesScaledUnitRows(frame, before)) {
          AddUnitRows(frame, *regions, before, &region);
        }
      }
      regions->Add(std::move(region));
    }
  }
  AddSidesOfComparison(frame, sources, regions);
  std::vector<Modality> modalities(frame.node_count());
  for (int i = 0; i < frame.node_count(); ++i) {
    modalities[i] = ModalityOf(sources[i]);
  }
  return modalities;
}

std::vector<int> FindTowers(const Frame& frame, const Regions& regions) {
  const int count = frame.node_count();
  UnionFind joined(count);
  std::vector<bool> floats(count);
  for (int i = 0; i < count; ++i) floats[i] = MakesFloats(frame, i);
  for (int i = 0; i < count; ++i) {
    if (!floats[i]) continue;
    const auto operands = frame.operands(i);
    for (size_t k = 0; k < operands.size(); ++k) {
      const int producer = frame.value(operands[k].value).producer;
      if (producer < 0 || !floats[producer] ||
          !IsFloating(operands[k].view->data_type)) {
        continue;
      }
      const bool same_region =
          regions.region_of(i) >= 0 &&
          regions.region_of(i) == regions.region_of(producer);
      if (same_region || Continues(frame, regions, i, static_cast<int>(k))) {
        joined.Join(producer, i);
      }
    }
  }
  std::vector<int> towers(count, -1), number(count, -1);
  int next = 0;
  for (int i = 0; i < count; ++i) {
    if (!floats[i]) continue;
    int& tower = number[joined.Find(i)];
    if (tower < 0) tower = next++;
    towers[i] = tower;
  }
  return towers;
}

}  // namespace djinn::semantics
