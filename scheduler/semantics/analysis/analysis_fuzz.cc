// Fuzzes the analysis with graphs that Validate() accepts. Analyzes each graph
// by itself and after itself, and checks that the findings are consistent.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/fuzz/mutate_message.h"
#include "common/fuzz/require.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"
#include "scheduler/semantics/analysis/program.h"

namespace djinn::semantics {
namespace {

using fuzz::Require;

void Check(const srg::Graph& graph, const Meaning& meaning) {
  const size_t nodes = graph.nodes.size();
  Require(meaning.nodes.size() == nodes, "a meaning for each node");
  Require(meaning.slots.size() == graph.slots.size(), "and each slot");
  std::vector<bool> taken(nodes, false);
  for (const Region& region : meaning.regions) {
    Require(!region.members.empty(), "no empty regions");
    for (const Member& member : region.members) {
      const auto node = static_cast<size_t>(member.node);
      Require(node < nodes && !taken[node], "a node has one region at most");
      taken[node] = true;
      Require(member.role.find('.') != std::string::npos, "and a role");
    }
  }
  Require((meaning.batch.rows == 0) != meaning.batch.problem.empty(),
          "it has rows, or there is a reason");
  for (const Edge& edge : meaning.edges) {
    Require(edge.producer < edge.consumer && edge.consumer < nodes,
            "edges lead forward");
    Require(edge.criticality >= 0 && edge.criticality < 1.0001,
            "no path is longer than the longest");
  }
  uint32_t next = 0;
  for (const Stage& stage : meaning.stages) {
    Require(stage.first_node == next && stage.node_count > 0,
            "stages follow each other");
    next += stage.node_count;
  }
  Require(next == nodes, "and cover all nodes");
}

void TestOne(const v1::Graph& message) {
  auto graph = srg::FromProto(message);
  if (!graph.ok() || !srg::Validate(*graph, {}).ok()) return;
  const auto shared = std::make_shared<const srg::Graph>(*std::move(graph));
  Program program;
  for (const char* const name : {"first", "again"}) {
    for (const Program::Finding& finding : program.Add(name, shared, 1)) {
      Check(*finding.graph, finding.meaning);
    }
  }
}

// The operators that rules mention.
constexpr absl::string_view kOperators[] = {"abs",
                                            "add",
                                            "add_",
                                            "addbmm",
                                            "addmm",
                                            "addmv",
                                            "amax",
                                            "baddbmm",
                                            "batch_norm",
                                            "bmm",
                                            "cat",
                                            "clone",
                                            "copy_",
                                            "cos",
                                            "div",
                                            "div_",
                                            "dropout",
                                            "einsum",
                                            "embedding",
                                            "eq",
                                            "expand",
                                            "fill_",
                                            "full",
                                            "gather",
                                            "ge",
                                            "gelu",
                                            "group_norm",
                                            "index",
                                            "index_copy",
                                            "index_add_",
                                            "layer_norm",
                                            "linear",
                                            "masked_fill",
                                            "matmul",
                                            "mean",
                                            "mm",
                                            "mul",
                                            "mv",
                                            "neg",
                                            "nonzero",
                                            "pow",
                                            "relu",
                                            "repeat",
                                            "rms_norm",
                                            "rsqrt",
                                            "scatter",
                                            "sigmoid",
                                            "sigmoid_",
                                            "silu",
                                            "sin",
                                            "slice",
                                            "softmax",
                                            "sort",
                                            "stack",
                                            "sub",
                                            "sum",
                                            "tanh",
                                            "tanh_",
                                            "topk",
                                            "tril",
                                            "where",
                                            "convolution",
                                            "zero_",
                                            "zeros_like",
                                            "masked_scatter",
                                            "_softmax",
                                            "native_layer_norm",
                                            "native_batch_norm",
                                            "_fused_rms_norm",
                                            "scaled_dot_product_attention",
                                            "native_layer_norm_backward",
                                            "embedding_dense_backward",
                                            "convolution_backward",
                                            "nll_loss_forward"};

template <typename Visitor>
void ForEachView(srg::Graph* graph, Visitor&& visit) {
  for (srg::Node& node : graph->nodes) {
    for (srg::Argument& argument : node.arguments) {
      if (auto* const view = std::get_if<srg::TensorView>(&argument)) {
        visit(view);
      } else if (auto* const list =
                     std::get_if<std::vector<srg::TensorListEntry>>(
                         &argument)) {
        for (srg::TensorListEntry& entry : *list) {
          if (auto* const of_list = std::get_if<srg::TensorView>(&entry)) {
            visit(of_list);
          }
        }
      }
    }
    for (srg::Result& result : node.results) {
      if (auto* const view = std::get_if<srg::TensorView>(&result)) visit(view);
    }
  }
}

// Gives all views of a storage, or one view, another number of dimensions,
// possibly none.
void ChangeRank(fuzz::Random* random, srg::Graph* graph) {
  std::vector<srg::TensorView*> views;
  ForEachView(graph, [&](srg::TensorView* view) { views.push_back(view); });
  if (views.empty()) return;
  srg::TensorView changed = *views[(*random)() % views.size()];
  changed.storage_offset = 0;
  if ((*random)() % 4 == 0 && !changed.sizes.empty()) {
    changed.sizes.pop_back();
  } else {
    constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 4, 64};
    changed.sizes.assign((*random)() % 5, 0);
    for (int64_t& size : changed.sizes) size = kSizes[(*random)() % 7];
  }
  changed.strides.assign(changed.sizes.size(), 1);
  for (size_t i = changed.sizes.size(); i > 1; --i) {
    changed.strides[i - 2] =
        changed.strides[i - 1] * std::max<int64_t>(changed.sizes[i - 1], 1);
  }
  const bool all = (*random)() % 4 != 0;
  for (srg::TensorView* const view : views) {
    if (view->slot == changed.slot && (all || (*random)() % 2 == 0)) {
      *view = changed;
    }
  }
}

// Makes the graph into a possible one that no program creates: with operands of
// other ranks, calls of other operators, or too few arguments.
void Distort(fuzz::Random* random, srg::Graph* graph) {
  if (graph->nodes.empty()) return;
  srg::Node& node = graph->nodes[(*random)() % graph->nodes.size()];
  switch ((*random)() % 6) {
    case 0: {
      const size_t op = (*random)() % std::size(kOperators);
      graph->operators[node.operator_index].name =
          absl::StrCat("aten::", kOperators[op]);
      return;
    }
    case 1:
      node.operator_index =
          static_cast<uint32_t>((*random)() % graph->operators.size());
      return;
    case 2:
      if (!node.arguments.empty()) node.arguments.pop_back();
      return;
    default:
      ChangeRank(random, graph);
  }
}

// Returns the new size, or 0 when the input has to be mutated in another way.
size_t DistortEncoded(uint8_t* data, size_t size, size_t max_size,
                      unsigned int seed) {
  v1::Graph message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  auto graph = srg::FromProto(message);
  if (!graph.ok() || !srg::Validate(*graph, {}).ok()) return 0;
  fuzz::Random random(seed);
  for (int left = 1 + random() % 8; left > 0; --left) {
    Distort(&random, &*graph);
  }
  const std::string bytes = srg::ToProto(*graph).SerializeAsString();
  if (bytes.size() > max_size) return 0;
  bytes.copy(reinterpret_cast<char*>(data), bytes.size());
  return bytes.size();
}

}  // namespace
}  // namespace djinn::semantics

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  djinn::v1::Graph message;
  if (message.ParseFromArray(data, static_cast<int>(size))) {
    djinn::semantics::TestOne(message);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  if (seed % 4 != 0) {
    const size_t distorted =
        djinn::semantics::DistortEncoded(data, size, max_size, seed);
    if (distorted > 0) return distorted;
  }
  return djinn::fuzz::MutateEncoded<djinn::v1::Graph>(data, size, max_size,
                                                      seed);
}
