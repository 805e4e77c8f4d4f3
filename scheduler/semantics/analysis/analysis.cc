#include "scheduler/semantics/analysis/analysis.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "scheduler/semantics/analysis/embedding_pieces.h"
#include "scheduler/semantics/analysis/flow.h"
#include "scheduler/semantics/analysis/fusion_pieces.h"
#include "scheduler/semantics/analysis/phases.h"
#include "scheduler/semantics/analysis/towers.h"
#include "scheduler/semantics/cost/cost.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"
#include "scheduler/semantics/rows/batch_cut.h"

namespace djinn::semantics {
namespace {

// Returns whether the rows of the first dimension are independent: the node
// uses no batch statistics, and its result has as many rows as its first
// operand.
bool IsByRows(const Frame& frame, int node) {
  const auto in = frame.Sizes(node, 0), out = frame.OutputSizes(node);
  if (in.empty() || out.empty() || in[0] != out[0] || in[0] < 2) return false;
  switch (frame.op_class(node)) {
    case OpClass::kMatmul:
      return frame.op(node) == "linear" || in.size() >= 3;
    case OpClass::kConvolution:
    case OpClass::kAttention:
    case OpClass::kActivation:
    case OpClass::kPooling:
    case OpClass::kResampling:
      return true;
    case OpClass::kNormalization:
      return !absl::StrContains(frame.op(node), "batch_norm");
    case OpClass::kPointwise:
      return in.size() == out.size();
    default:
      return false;
  }
}

WorkloadClass FindWorkload(const Frame& frame, const Meaning& meaning) {
  bool attention = false, convolution = false, recurrent = false, bag = false;
  bool fusion = false, text = false, pixels = false, sound = false;
  for (const Region& region : meaning.regions) {
    attention |= region.pattern == "attention" || region.pattern == "kv_cache";
    convolution |= region.pattern == "conv";
    recurrent |= region.pattern == "recurrent";
    bag |= region.HasTrait("bag");
    fusion |= region.pattern == "fusion" && !region.HasTrait("interaction");
  }
  for (int i = 0; i < frame.node_count(); ++i) {
    if (frame.op_class(i) == OpClass::kBackward) {
      convolution |= absl::StrContains(frame.op(i), "convolution");
      attention |= absl::StrContains(frame.op(i), "dot_product");
      bag |= absl::StrContains(frame.op(i), "embedding_bag");
    }
    const Modality modality = meaning.nodes[i].modality;
    text |= modality == Modality::kText;
    pixels |= modality == Modality::kVision;
    sound |= modality == Modality::kAudio;
  }
  if (fusion || (text && pixels) || (text && sound)) {
    return WorkloadClass::kMultimodal;
  }
  if (attention) return WorkloadClass::kTransformer;
  if (bag) return WorkloadClass::kRecommender;
  if (recurrent) return WorkloadClass::kRnn;
  if (convolution) return WorkloadClass::kCnn;
  return WorkloadClass::kUnspecified;
}

bool IsOfLanguageModel(Phase phase) {
  return phase == Phase::kLlmPrefill || phase == Phase::kLlmDecode;
}

bool IsScatter(const Meaning& meaning, int node) {
  const int region = meaning.nodes[node].region;
  return region >= 0 && meaning.regions[region].pattern == "fusion" &&
         meaning.regions[region].HasTrait("scatter");
}

// Returns the origin that the producers of the node's operands get from it as
// their reader. Behind a join, the reader may be a language model that
// continues. If the join scatters rows among tokens, the reader is one, and a
// later piece shows its phase.
Origin ReaderOf(const Frame& frame, const Meaning& meaning, int node) {
  Origin origin = {meaning.nodes[node].phase, meaning.nodes[node].modality};
  if (origin.phase != Phase::kMultimodalFusion) return origin;
  if (IsScatter(meaning, node)) {
    origin.phase = Phase::kUnspecified;
    for (const NodeMeaning& other : meaning.nodes) {
      if (IsOfLanguageModel(other.phase)) origin.phase = other.phase;
    }
  }
  for (const int consumer : frame.Consumers(node)) {
    const Phase phase = meaning.nodes[consumer].phase;
    if (IsOfLanguageModel(phase)) origin.phase = phase;
  }
  return origin;
}

// Returns whether an unknown phase or modality was found. A projection that
// turns out to belong to a fusion instead of an image is no news, because it
// says nothing about its readers.
bool IsNews(const Origin& known, const Origin& found) {
  return (known.phase == Phase::kUnspecified && found.phase != known.phase) ||
         (known.modality == Modality::kUnspecified &&
          found.modality != known.modality);
}

// Returns whether a language model's phase was found where none was known.
bool ShowsLanguageModelNow(const Known& known, const Meaning& meaning) {
  return absl::c_none_of(known.nodes,
                         [](const Origin& origin) {
                           return IsOfLanguageModel(origin.phase);
                         }) &&
         absl::c_any_of(meaning.nodes, [](const NodeMeaning& node) {
           return IsOfLanguageModel(node.phase);
         });
}

// Updates the context with what was not known before. The rest is no news, and
// may be older than what the context has learned since.
void Learn(const Frame& frame, const Meaning& meaning, const Known* known,
           Context* context) {
  for (int i = 0; i < frame.node_count(); ++i) {
    const int region = meaning.nodes[i].region;
    const bool embedding =
        region >= 0 && meaning.regions[region].pattern == "embedding";
    const Origin maker = {meaning.nodes[i].phase, meaning.nodes[i].modality};
    if (maker.modality == Modality::kText && IsTokenLookUp(frame, i)) {
      context->RememberTokens(frame.operands(i)[1].view->sizes, maker);
    }
    const bool unspecified = maker.phase == Phase::kUnspecified &&
                             maker.modality == Modality::kUnspecified;
    if (unspecified && !embedding) continue;
    const bool news = known == nullptr || IsNews(known->nodes[i], maker);
    // The nodes before a join need to know that a language model continues
    // behind it.
    const bool goes_on = !news && IsScatter(meaning, i) &&
                         ShowsLanguageModelNow(*known, meaning);
    if (!news && !goes_on) continue;
    const Origin reader = ReaderOf(frame, meaning, i);
    for (const Frame::Operand& operand : frame.operands(i)) {
      if (!frame.IsFromElsewhere(operand)) continue;
      const auto key = Context::KeyOf(operand.view);
      if (key.has_value() && !unspecified) context->RememberRead(*key, reader);
    }
    if (!news) continue;
    for (const Frame::Output& output : frame.outputs(i)) {
      const auto key = Context::KeyOf(output.view);
      if (!key.has_value()) continue;
      const bool left = frame.value(output.value).readers.empty();
      if (unspecified) {
        if (left) context->RememberEmbedding(*key, *output.view);
      } else if (left) {
        context->RememberLeft(*key, maker, *output.view, embedding);
      } else {
        context->RememberMade(*key, maker);
      }
    }
  }
  if (known == nullptr && meaning.phase != Phase::kUnspecified) {
    context->RememberLast(meaning.phase);
  }
}

BatchMeaning DescribeBatch(const Frame& frame,
                           const std::vector<SlotMeaning>& slots) {
  const srg::Graph& graph = frame.graph();
  std::vector<uint32_t> candidates;
  std::vector<uint32_t> outputs;
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    if (graph.slots[slot].kind == srg::Slot::Kind::kBound &&
        slots[slot].residency == Residency::kEphemeralActivation) {
      candidates.push_back(slot);
    }
  }
  // A value that no node reads most likely leaves the graph.
  for (int value = 0; value < frame.value_count(); ++value) {
    const Frame::Value& made = frame.value(value);
    if (made.producer >= 0 && made.readers.empty() &&
        graph.slots[made.slot].kind == srg::Slot::Kind::kResult &&
        !absl::c_linear_search(outputs, made.slot)) {
      outputs.push_back(made.slot);
    }
  }
  BatchMeaning found;
  const absl::StatusOr<BatchCut> cut = FindBatch(graph, candidates, outputs);
  if (!cut.ok()) {
    found.problem = std::string(cut.status().message());
    return found;
  }
  found.rows = cut->rows;
  for (const uint32_t slot : candidates) {
    if (cut->row_bytes[slot] > 0) found.input_slots.push_back(slot);
  }
  found.output_slots = std::move(outputs);
  return found;
}

}  // namespace

Meaning Analyze(const srg::Graph& graph, Context* context, const Known* known) {
  const Frame frame(graph);
  Regions regions(frame.node_count());
  for (const Pattern* const pattern : AllPatterns()) {
    pattern->Match(frame, &regions);
    if (pattern == &FusionPattern() && context != nullptr) {
      AddCutComparisons(frame, *context, &regions);
      AddJoinedProjections(frame, *context, &regions);
    }
  }
  if (context != nullptr && HasExperts(regions)) context->RememberExperts();
  if (context != nullptr && context->has_experts()) {
    FindPiecesOfExperts(frame, &regions);
  }
  // An analysis that is repeated keeps the sources of the first one: later
  // graphs left nothing for this one.
  const std::vector<Modality> left =
      known != nullptr     ? known->sources
      : context != nullptr ? FindSources(frame, *context)
                           : std::vector<Modality>(graph.slots.size());
  const std::vector<bool> embedded =
      known != nullptr     ? known->embedded
      : context != nullptr ? FindEmbedded(frame, *context)
                           : std::vector<bool>(graph.slots.size());
  const std::vector<Modality> sources = AddJoins(frame, left, &regions);
  AddEmbeddingPieces(frame, embedded, &regions);
  if (context != nullptr && HasPatches(regions)) context->RememberPatches();
  if (context != nullptr && context->has_patches() && !context->has_experts()) {
    AddPlaces(frame, &regions);
  }
  AddFoldingCopies(frame, &regions);

  Meaning meaning;
  meaning.nodes.resize(frame.node_count());
  const auto origins = FindPhases(frame, regions, sources, context, known);
  for (int i = 0; i < frame.node_count(); ++i) {
    NodeMeaning& node = meaning.nodes[i];
    node.phase = origins[i].phase;
    node.modality = origins[i].modality;
    node.role = std::string(regions.role(i));
    node.region = regions.region_of(i);
    node.cost = CostOf(frame, i);
    node.parallelizable = IsByRows(frame, i);
    meaning.cost += node.cost;
  }
  meaning.regions = regions.all();
  meaning.slots = FindSlots(frame, regions);
  for (size_t k = 0; k < left.size(); ++k) {
    meaning.slots[k].source = left[k];
    meaning.slots[k].embedded = embedded[k];
  }
  meaning.edges = FindEdges(frame, meaning.nodes);
  meaning.peak_bytes = PeakBytes(frame, meaning.slots);
  for (const SlotMeaning& slot : meaning.slots) {
    if (slot.residency == Residency::kPersistentWeight) {
      meaning.weight_bytes += slot.size_bytes;
    } else if (slot.residency == Residency::kStatefulKvCache) {
      meaning.kv_cache_bytes += slot.size_bytes;
    }
  }
  Conclude(frame, &meaning);
  meaning.workload_class = FindWorkload(frame, meaning);
  meaning.batch = DescribeBatch(frame, meaning.slots);
  meaning.left_projections = FindLeftProjections(frame, regions, meaning);
  if (context == nullptr) return meaning;
  Learn(frame, meaning, known, context);
  if (known == nullptr) LearnJoins(frame, regions, meaning, context);
  return meaning;
}

}  // namespace djinn::semantics
