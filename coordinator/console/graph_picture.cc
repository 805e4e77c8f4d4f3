// The part of pictures.h that is about graphs.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "coordinator/console/json_rows.h"
#include "coordinator/console/pictures.h"
#include "nlohmann/json.hpp"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::console {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

// Returns the time of the graph's nodes one after another, by the roofline
// without learned factors.
double PredictedSeconds(const v1::GraphMeaning& meaning,
                        const v1::DeviceSpeed& reported) {
  if (reported.flops_per_second() <= 0 || reported.bytes_per_second() <= 0) {
    return -1;
  }
  const semantics::DeviceSpeed speed = {
      .flops_per_second = reported.flops_per_second(),
      .bytes_per_second = reported.bytes_per_second(),
      .seconds_per_call = reported.seconds_per_call()};
  double seconds = 0;
  for (const v1::NodeMeaning& node : meaning.nodes()) {
    seconds += semantics::RooflineSeconds(
        {.flops = node.cost().flops(),
         .read_bytes = node.cost().read_bytes(),
         .written_bytes = node.cost().written_bytes()},
        speed);
  }
  return seconds;
}

Json Summary(const v1::GraphInfo& graph) {
  const v1::GraphMeaning& meaning = graph.meaning();
  return {{"fingerprint", graph.fingerprint()},
          {"nodes", graph.node_count()},
          {"runs", graph.run_count()},
          {"ordinal", graph.ordinal()},
          {"phase", meaning.phase()},
          {"flops", meaning.cost().flops()},
          {"read_bytes", meaning.cost().read_bytes()},
          {"written_bytes", meaning.cost().written_bytes()},
          {"peak_bytes", meaning.peak_bytes()},
          {"weight_bytes", meaning.weight_bytes()},
          {"kv_cache_bytes", meaning.kv_cache_bytes()},
          {"workers", graph.worker_ids_size()}};
}

}  // namespace

std::string GraphsJson(const Snapshot& snapshot) {
  Json graphs = Json::array();
  for (const v1::GraphInfo& graph : snapshot.graphs.graphs()) {
    graphs.push_back(Summary(graph));
  }
  return Dump({{"graphs", std::move(graphs)}});
}

std::string GraphJson(const v1::GraphInfo& graph,
                      const RunHistory::Measured& measured,
                      const v1::ListWorkersResponse& workers) {
  const v1::GraphMeaning& meaning = graph.meaning();
  Json head = Summary(graph);
  Json predicted = Json::array();
  for (const v1::WorkerInfo& worker : workers.workers()) {
    if (predicted.size() == 16) break;
    if (!absl::c_linear_search(graph.worker_ids(), worker.worker_id())) {
      continue;
    }
    const double seconds = PredictedSeconds(meaning, worker.speed());
    if (seconds >= 0) {
      predicted.push_back(
          {{"worker", worker.worker_id()}, {"micros", seconds * 1e6}});
    }
  }
  head["predicted"] = std::move(predicted);
  const double runs = static_cast<double>(std::max<uint64_t>(1, measured.runs));
  head["measured"] = {
      {"runs", measured.runs},
      {"served", absl::ToDoubleMicroseconds(measured.served) / runs},
      {"device_time", absl::ToDoubleMicroseconds(measured.device_time) / runs}};
  Json stages = Json::array();
  for (const v1::GraphStage& stage : meaning.stages()) {
    stages.push_back(
        {{"first_node", stage.first_node()},
         {"nodes", stage.node_count()},
         {"phase", stage.phase()},
         {"flops", stage.cost().flops()},
         {"bytes", stage.cost().read_bytes() + stage.cost().written_bytes()},
         {"weight_bytes", stage.weight_bytes()},
         {"kv_cache_bytes", stage.kv_cache_bytes()}});
  }
  head["stages"] = std::move(stages);
  head["node_columns"] = {"operator", "role",  "phase", "flops",
                          "bytes",    "stage", "slot"};
  head["edge_columns"] = {"producer", "consumer",        "slot",
                          "bytes",    "criticality_ppm", "residency"};
  Names names;
  Rows nodes, edges;
  const bool drawn = graph.nodes_size() <= kMaxDrawnNodes &&
                     graph.nodes_size() == meaning.nodes_size();
  for (int i = 0; drawn && i < graph.nodes_size(); ++i) {
    const v1::NodeMeaning& node = meaning.nodes(i);
    const v1::GraphNode& call = graph.nodes(i);
    nodes.Add({names.IndexOf(call.operator_name()), names.IndexOf(node.role()),
               node.phase(), static_cast<int64_t>(node.cost().flops()),
               static_cast<int64_t>(node.cost().read_bytes() +
                                    node.cost().written_bytes()),
               node.stage(),
               call.results_size() > 0
                   ? static_cast<int64_t>(call.results(0).slot())
                   : -1});
  }
  for (const v1::GraphEdge& edge : meaning.edges()) {
    if (!drawn) break;
    const auto slot = static_cast<int>(edge.slot());
    edges.Add(
        {edge.producer(), edge.consumer(), edge.slot(),
         static_cast<int64_t>(edge.size_bytes()),
         static_cast<int64_t>(edge.criticality() * 1e6),
         slot < meaning.slots_size() ? meaning.slots(slot).residency() : 0});
  }
  // Weights and caches are slots that exist before the run, so no edge has
  // them: each node lists those that it reads.
  Rows reads;
  for (int i = 0; drawn && i < graph.nodes_size(); ++i) {
    for (const v1::GraphTensor& operand : graph.nodes(i).operands()) {
      const auto slot = static_cast<int>(operand.slot());
      if (slot >= meaning.slots_size()) continue;
      const v1::SlotMeaning& what = meaning.slots(slot);
      if (what.residency() == v1::RESIDENCY_UNSPECIFIED ||
          what.residency() == v1::RESIDENCY_EPHEMERAL_ACTIVATION) {
        continue;
      }
      reads.Add(
          {i, slot, what.residency(), static_cast<int64_t>(what.size_bytes())});
    }
  }
  head["read_columns"] = {"node", "slot", "residency", "bytes"};
  std::string text = Dump(head);
  text.pop_back();
  return absl::StrCat(
      text, ",\"names\":", names.Json(), ",\"node_rows\":", nodes.Json(),
      ",\"edge_rows\":", edges.Json(), ",\"read_rows\":", reads.Json(), "}");
}

}  // namespace djinn::console
