#include "coordinator/graphs/graph_meaning.h"

#include <algorithm>
#include <vector>

#include "common/srg/proto_codec.h"
#include "scheduler/semantics/analysis/hints.h"

namespace djinn::coordinator {
namespace {

using semantics::Meaning;

// The enumerators have the same numbers in the analysis and in the proto.
static_assert(static_cast<int>(semantics::Phase::kTraining) ==
              v1::PHASE_TRAINING);
static_assert(static_cast<int>(semantics::Residency::kGradient) ==
              v1::RESIDENCY_GRADIENT);
static_assert(static_cast<int>(semantics::Modality::kFusion) ==
              v1::MODALITY_FUSION);
static_assert(static_cast<int>(semantics::WorkloadClass::kMultimodal) ==
              v1::WORKLOAD_CLASS_MULTIMODAL);
static_assert(static_cast<int>(semantics::TaskType::kTraining) ==
              v1::TASK_TYPE_TRAINING);

v1::Phase Convert(semantics::Phase phase) {
  return static_cast<v1::Phase>(phase);
}

v1::Modality Convert(semantics::Modality modality) {
  return static_cast<v1::Modality>(modality);
}

void Convert(const semantics::Cost& cost, v1::Cost* out) {
  out->set_flops(cost.flops);
  out->set_read_bytes(cost.read_bytes);
  out->set_written_bytes(cost.written_bytes);
}

void Convert(const semantics::NodeMeaning& node, v1::NodeMeaning* out) {
  out->set_phase(Convert(node.phase));
  out->set_role(node.role);
  out->set_modality(Convert(node.modality));
  Convert(node.cost, out->mutable_cost());
  out->set_stage(node.stage);
  out->set_region(static_cast<uint32_t>(node.region + 1));
  out->set_parallelizable(node.parallelizable);
}

void Convert(const semantics::SlotMeaning& slot, v1::SlotMeaning* out) {
  out->set_residency(static_cast<v1::Residency>(slot.residency));
  out->set_size_bytes(slot.size_bytes);
  out->set_first_node(slot.first_node);
  out->set_last_node(slot.last_node);
}

void Convert(const semantics::Edge& edge, v1::GraphEdge* out) {
  out->set_producer(edge.producer);
  out->set_consumer(edge.consumer);
  out->set_slot(edge.view->slot);
  out->set_data_type(static_cast<v1::DataType>(edge.view->data_type));
  out->mutable_sizes()->Assign(edge.view->sizes.begin(),
                               edge.view->sizes.end());
  out->set_size_bytes(edge.size_bytes);
  out->set_rate(edge.rate);
  out->set_criticality(edge.criticality);
}

void Convert(const semantics::Region& region, v1::GraphRegion* out) {
  out->set_pattern(region.pattern);
  for (const semantics::Member& member : region.members) {
    out->add_nodes(static_cast<uint32_t>(member.node));
  }
  out->mutable_traits()->Assign(region.traits.begin(), region.traits.end());
}

void Convert(const semantics::Stage& stage, v1::GraphStage* out) {
  out->set_first_node(stage.first_node);
  out->set_node_count(stage.node_count);
  out->set_phase(Convert(stage.phase));
  out->set_modality(Convert(stage.modality));
  Convert(stage.cost, out->mutable_cost());
  out->set_weight_bytes(stage.weight_bytes);
  out->set_kv_cache_bytes(stage.kv_cache_bytes);
  out->mutable_inputs()->Assign(stage.inputs.begin(), stage.inputs.end());
  out->set_input_bytes(stage.input_bytes);
}

void Convert(const std::vector<semantics::Stage>& stages,
             v1::GraphMeaning* out) {
  for (const auto& stage : stages) Convert(stage, out->add_stages());
}

// Returns the nodes and storage lifetimes, to which hints are applied.
Meaning NodesAndSlots(const v1::GraphMeaning& message) {
  Meaning meaning;
  for (const v1::NodeMeaning& from : message.nodes()) {
    semantics::NodeMeaning& node = meaning.nodes.emplace_back();
    node.phase = static_cast<semantics::Phase>(from.phase());
    node.modality = static_cast<semantics::Modality>(from.modality());
    node.cost = {from.cost().flops(), from.cost().read_bytes(),
                 from.cost().written_bytes()};
  }
  for (const v1::SlotMeaning& from : message.slots()) {
    semantics::SlotMeaning& slot = meaning.slots.emplace_back();
    slot.residency = static_cast<semantics::Residency>(from.residency());
    slot.size_bytes = from.size_bytes();
  }
  return meaning;
}

std::vector<semantics::Hint> HintsOf(const v1::GraphNotes& notes) {
  std::vector<semantics::Hint> hints;
  for (const uint32_t index : notes.note_of_node()) {
    semantics::Hint& hint = hints.emplace_back();
    if (index == 0) continue;
    const v1::CallNote& note = notes.notes(static_cast<int>(index) - 1);
    // A phase that is not known here is no hint.
    if (v1::Phase_IsValid(note.phase())) {
      hint.phase = static_cast<semantics::Phase>(note.phase());
    }
    hint.module_path = note.module_path();
  }
  return hints;
}

}  // namespace

v1::GraphMeaning ToProto(const Meaning& meaning) {
  v1::GraphMeaning out;
  for (const auto& node : meaning.nodes) Convert(node, out.add_nodes());
  for (const auto& slot : meaning.slots) Convert(slot, out.add_slots());
  for (const auto& edge : meaning.edges) Convert(edge, out.add_edges());
  for (const auto& region : meaning.regions) Convert(region, out.add_regions());
  Convert(meaning.stages, &out);
  out.set_workload_class(
      static_cast<v1::WorkloadClass>(meaning.workload_class));
  out.set_task_type(static_cast<v1::TaskType>(meaning.task_type));
  out.set_phase(Convert(meaning.phase));
  out.set_modality(Convert(meaning.modality));
  Convert(meaning.cost, out.mutable_cost());
  out.set_peak_bytes(meaning.peak_bytes);
  out.set_weight_bytes(meaning.weight_bytes);
  out.set_kv_cache_bytes(meaning.kv_cache_bytes);
  v1::BatchIndependence* const batch = out.mutable_batch();
  batch->set_rows(static_cast<uint64_t>(meaning.batch.rows));
  batch->mutable_input_slots()->Assign(meaning.batch.input_slots.begin(),
                                       meaning.batch.input_slots.end());
  batch->mutable_output_slots()->Assign(meaning.batch.output_slots.begin(),
                                        meaning.batch.output_slots.end());
  batch->set_problem(meaning.batch.problem);
  return out;
}

v1::GraphMeaning Summary(const v1::GraphMeaning& meaning) {
  v1::GraphMeaning out = meaning;
  out.clear_nodes();
  out.clear_slots();
  out.clear_edges();
  out.clear_regions();
  out.clear_stages();
  out.clear_batch();
  return out;
}

void ApplyHints(const v1::Graph& graph, const v1::GraphNotes& notes,
                v1::GraphMeaning* meaning) {
  const std::vector<semantics::Hint> hints = HintsOf(notes);
  const auto decoded = srg::FromProto(graph);
  if (hints.empty() || !decoded.ok()) return;
  Meaning found = NodesAndSlots(*meaning);
  if (found.nodes.size() != hints.size()) return;  // not analysed yet
  semantics::ApplyHints(*decoded, hints, &found);
  for (int i = 0; i < meaning->nodes_size(); ++i) {
    meaning->mutable_nodes(i)->set_phase(Convert(found.nodes[i].phase));
    meaning->mutable_nodes(i)->set_stage(found.nodes[i].stage);
  }
  meaning->clear_stages();
  Convert(found.stages, meaning);
  meaning->set_phase(Convert(found.phase));
  meaning->set_task_type(static_cast<v1::TaskType>(found.task_type));
}

bool IsComplete(const Meaning& meaning) {
  return std::all_of(meaning.nodes.begin(), meaning.nodes.end(),
                     [](const semantics::NodeMeaning& node) {
                       return node.phase != semantics::Phase::kUnspecified &&
                              node.modality !=
                                  semantics::Modality::kUnspecified;
                     });
}

}  // namespace djinn::coordinator
