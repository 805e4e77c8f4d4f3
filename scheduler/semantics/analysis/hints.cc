#include "scheduler/semantics/analysis/hints.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/analysis/flow.h"
#include "scheduler/semantics/analysis/phases.h"
#include "scheduler/semantics/analysis/towers.h"
#include "scheduler/semantics/patterns/patterns.h"

namespace djinn::semantics {
namespace {

// Returns each node's phase if the graph alone shows it. Otherwise, the phase
// is unspecified: the graph shows none, or another one than `meaning`.
std::vector<Phase> CertainPhases(const Frame& frame, const Meaning& meaning) {
  Regions regions(frame.node_count());
  for (const Pattern* const pattern : AllPatterns()) {
    pattern->Match(frame, &regions);
  }
  const std::vector<Modality> nothing_left(frame.graph().slots.size());
  const auto sources = AddJoins(frame, nothing_left, &regions);
  const std::vector<Origin> shown = ShownPhases(frame, regions, sources);
  std::vector<Phase> certain(frame.node_count());
  for (int i = 0; i < frame.node_count(); ++i) {
    if (shown[i].phase == meaning.nodes[i].phase) certain[i] = shown[i].phase;
  }
  return certain;
}

// A scope around several models gives all of them one phase.
bool Fits(Phase phase, Modality modality) {
  switch (phase) {
    case Phase::kVisionEncoding:
    case Phase::kVisionDecoding:
      return modality != Modality::kText && modality != Modality::kAudio;
    case Phase::kLlmPrefill:
    case Phase::kLlmDecode:
      return modality != Modality::kVision && modality != Modality::kAudio;
    default:
      return phase != Phase::kUnspecified;
  }
}

// Returns, by module, the phase that its nodes show; unspecified when they
// differ.
absl::flat_hash_map<absl::string_view, Phase> PhasesOfModules(
    absl::Span<const Hint> hints, const std::vector<Phase>& certain) {
  absl::flat_hash_map<absl::string_view, Phase> phases;
  for (size_t i = 0; i < hints.size(); ++i) {
    if (hints[i].module_path.empty() || certain[i] == Phase::kUnspecified) {
      continue;
    }
    const auto [it, added] =
        phases.try_emplace(hints[i].module_path, certain[i]);
    if (!added && it->second != certain[i]) it->second = Phase::kUnspecified;
  }
  return phases;
}

}  // namespace

void ApplyHints(const srg::Graph& graph, absl::Span<const Hint> hints,
                Meaning* meaning) {
  const Frame frame(graph);
  const std::vector<Phase> certain = CertainPhases(frame, *meaning);
  const auto modules = PhasesOfModules(hints, certain);
  for (size_t i = 0; i < hints.size(); ++i) {
    NodeMeaning& node = meaning->nodes[i];
    if (certain[i] != Phase::kUnspecified) continue;
    if (Fits(hints[i].phase, node.modality)) {
      node.phase = hints[i].phase;
    } else if (node.phase == Phase::kUnspecified) {
      const auto found = modules.find(hints[i].module_path);
      if (found != modules.end() && Fits(found->second, node.modality)) {
        node.phase = found->second;
      }
    }
  }
  Conclude(frame, meaning);
}

}  // namespace djinn::semantics
