// Describes the kept messages for operators.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/call_sites.h"
#include "common/base/error.h"
#include "common/base/plain_text.h"

namespace djinn::replica {
namespace {

using Node = Lineage::Node;

// Values of a device that are described, and the nodes that lead to them.
constexpr size_t kMaxValues = 100;
constexpr size_t kMaxNodes = 300;
// Nodes of one value that are counted, as ValueLineage says.
constexpr size_t kMaxCounted = 10'000;
// Nodes that are counted in all, and bytes of graphs that are parsed in all.
// They bound the time under the lock, beside a pass over the live values.
constexpr size_t kMaxCountedInAll = 200'000;
constexpr size_t kMaxParsedInAll = size_t{2} << 20;
// Bytes of an answer, as LineageAnswer says.
constexpr size_t kMaxAnswer = size_t{48} << 10;
constexpr size_t kMaxText = 200;

// Returns whether the message brings the bytes of an upload.
bool IsUpload(const Node& node) {
  const KeptMessage* const kept = KeptOf(node);
  return !node.anchor && kept != nullptr && kept->request != nullptr &&
         kept->request->ordered().has_install() &&
         !kept->request->ordered().install().has_seed() &&
         !kept->request->ordered().install().has_pull() &&
         !kept->request->ordered().install().has_copy();
}

// The part of a graph that the description of a run names.
struct GraphSummary {
  int nodes = 0;
  // The operators of the first and the last node.
  std::string first, last;
};

GraphSummary ReadSummary(const GraphDefinition& definition) {
  v1::DefineGraph define;
  (void)define.ParseFromString(definition.message);
  const v1::Graph& graph = define.graph();
  const auto operator_of = [&graph](int node) -> std::string {
    const uint32_t op = graph.nodes(node).operator_index();
    if (op >= static_cast<uint32_t>(graph.operators_size())) return "";
    const v1::Operator& called = graph.operators(static_cast<int>(op));
    return absl::StrCat(called.name(), called.overload().empty() ? "" : ".",
                        called.overload());
  };
  GraphSummary summary;
  summary.nodes = graph.nodes_size();
  if (summary.nodes > 0) {
    summary.first = operator_of(0);
    summary.last = operator_of(summary.nodes - 1);
  }
  return summary;
}

// Returns where the run's node was called, or an empty string.
std::string SiteOf(const KeptMessage& kept, int node) {
  const auto i = static_cast<size_t>(node);
  const std::vector<uint32_t>& sites = kept.extras().sites;
  if (i >= sites.size() || sites[i] == 0) return "";
  return djinn::Describe(CallSiteTable::Global().Get(sites[i]));
}

std::string Text(const GraphSummary& graph, const KeptMessage& kept) {
  std::string text = absl::StrCat("a run of ", graph.nodes,
                                  graph.nodes == 1 ? " call, " : " calls, ");
  if (graph.nodes > 0) absl::StrAppend(&text, graph.first, SiteOf(kept, 0));
  if (graph.nodes > 1) {
    absl::StrAppend(&text, " to ", graph.last, SiteOf(kept, graph.nodes - 1));
  }
  return text;
}

// Describes the runs of one answer. Parses each graph once, and no more than
// kMaxParsedInAll bytes.
class RunTexts {
 public:
  std::string Describe(const KeptMessage& kept) {
    const GraphDefinition& definition = *kept.run->graph;
    auto found = summaries_.find(&definition);
    if (found == summaries_.end()) {
      if (definition.message.size() > bytes_left_) return "a run";
      bytes_left_ -= definition.message.size();
      found = summaries_.emplace(&definition, ReadSummary(definition)).first;
    }
    return Text(found->second, kept);
  }

 private:
  absl::flat_hash_map<const GraphDefinition*, GraphSummary> summaries_;
  size_t bytes_left_ = kMaxParsedInAll;
};

std::string DescribeNode(const Node& node, RunTexts* runs) {
  const KeptMessage* const kept = KeptOf(node);
  if (kept == nullptr) return absl::StrCat("lost: ", node.lack);
  if (kept->run != nullptr) return runs->Describe(*kept);
  if (node.anchor) return "a checkpoint's value";
  const v1::Ordered& message = kept->request->ordered();
  if (message.has_install()) {
    if (message.install().has_seed()) return "a seed";
    if (message.install().has_pull()) {
      return "a copy from another virtual device";
    }
    if (message.install().has_copy()) {
      return "kept for a copy to another virtual device";
    }
    return message.install().has_transfer()
               ? absl::StrCat("an upload of ",
                              message.install().transfer().size_bytes(),
                              " bytes")
               : "an upload within its message";
  }
  if (message.has_create_storage()) return "the creation of a storage";
  return message.has_read() ? "a read" : "a message";
}

// Returns the text; of a long one, the beginning.
std::string Short(std::string text) {
  if (text.size() <= kMaxText) return text;
  return absl::StrCat(Cut(text, kMaxText), "...");
}

v1::ValueLineage::Fate FateOf(const Node& node) {
  if (node.incomplete) return v1::ValueLineage::LOST;
  if (!node.error.ok()) return v1::ValueLineage::FAILED;
  if (node.anchor) return v1::ValueLineage::RESTORED;
  if (!IsUpload(node)) return v1::ValueLineage::REPLAYED;
  return node.hash_only ? v1::ValueLineage::HELD_BY_HASH
                        : v1::ValueLineage::UPLOADED_AGAIN;
}

// Adds the values, and returns their producers in the same order.
std::vector<const Node*> AddValues(const Lineage& lineage, uint64_t storage,
                                   RunTexts* runs, v1::DeviceLineage* out) {
  struct Listed {
    Lineage::Value value;
    size_t messages = 0;
  };
  std::vector<Listed> listed;
  size_t counted = 0;
  for (const Lineage::Value& value : lineage.Values()) {
    out->set_value_count(out->value_count() + 1);
    out->set_lost_count(out->lost_count() + value.producer->incomplete);
    if (storage != 0 && value.storage != storage) continue;
    Listed& one = listed.emplace_back(Listed{value});
    if (counted >= kMaxCountedInAll) continue;
    one.messages = Lineage::Ancestry(value.producer, kMaxCounted).size();
    counted += one.messages;
  }
  std::stable_sort(
      listed.begin(), listed.end(), [](const Listed& a, const Listed& b) {
        return std::pair(!a.value.producer->incomplete, b.messages) <
               std::pair(!b.value.producer->incomplete, a.messages);
      });
  if (listed.size() > kMaxValues) listed.resize(kMaxValues);
  std::vector<const Node*> producers;
  for (const Listed& one : listed) {
    const Node& producer = *one.value.producer;
    v1::ValueLineage* const value = out->add_values();
    value->set_storage(one.value.storage);
    value->set_version(one.value.version);
    value->set_size_bytes(one.value.size_bytes);
    value->set_fate(FateOf(producer));
    switch (value->fate()) {
      case v1::ValueLineage::LOST:
        value->set_why(producer.lack);
        break;
      case v1::ValueLineage::FAILED:
        value->set_why(Short(absl::StrCat(ErrorReason(producer.error), ": ",
                                          producer.error.message())));
        break;
      default:
        value->set_why(Short(DescribeNode(producer, runs)));
        value->set_messages(static_cast<uint32_t>(one.messages));
    }
    producers.push_back(&producer);
  }
  return producers;
}

// Adds the nodes that lead to the producers, and refers to them.
void AddGraph(const std::vector<const Node*>& producers, RunTexts* runs,
              v1::DeviceLineage* out) {
  absl::flat_hash_map<const Node*, uint32_t> numbers;
  std::vector<const Node*> nodes;
  for (const Node* const producer : producers) {
    if (nodes.size() >= kMaxNodes) break;
    for (const Node* const node : Lineage::Ancestry(producer, kMaxNodes)) {
      if (nodes.size() >= kMaxNodes) break;
      if (numbers.emplace(node, 0).second) nodes.push_back(node);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) {
    return Lineage::Precedes(*a, *b);
  });
  for (size_t i = 0; i < nodes.size(); ++i) {
    numbers[nodes[i]] = static_cast<uint32_t>(i + 1);
  }
  for (const Node* const node : nodes) {
    v1::LineageNode* const shown = out->add_graph();
    shown->set_number(numbers[node]);
    shown->set_text(Short(DescribeNode(*node, runs)));
    shown->set_anchor(node->anchor);
    shown->set_lost(node->incomplete);
    for (const Node* const operand : Lineage::OperandsOf(*node)) {
      const auto found = numbers.find(operand);
      if (found != numbers.end()) shown->add_operands(found->second);
    }
  }
  for (size_t i = 0; i < producers.size(); ++i) {
    const auto found = numbers.find(producers[i]);
    if (found == numbers.end()) continue;
    out->mutable_values(static_cast<int>(i))->set_node(found->second);
  }
}

}  // namespace

std::string DescribeRun(const KeptMessage& kept) {
  return Text(ReadSummary(*kept.run->graph), kept);
}

v1::DeviceLineage DescribeLineage(State& r, uint64_t storage) {
  const SessionOptions& options = r.context->options;
  v1::DeviceLineage out;
  out.set_virtual_device(static_cast<uint32_t>(r.index));
  out.set_member(static_cast<uint32_t>(r.role.member));
  out.set_mode(!options.recovers     ? "off"
               : options.checkpoints ? "checkpoint"
                                     : "replay");
  const ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  if (c.lineage == nullptr) {
    out.set_obstacle("recovery is off");
    return out;
  }
  out.set_obstacle(Obstacle(r));
  const size_t hash_only = c.lineage->hash_only_nodes();
  if (out.obstacle().empty() && hash_only > 0) {
    const absl::Status failure = r.context->spill->failure();
    out.set_obstacle(absl::StrCat(
        "the next worker may lack the bytes of ", hash_only,
        hash_only == 1 ? " upload" : " uploads", ", which are not kept here (",
        failure.ok() ? "replay_memory was full" : failure.message(), ")"));
  }
  out.set_nodes(c.lineage->size());
  out.set_bytes(c.lineage->bytes());
  out.set_budget_bytes(c.lineage->budget());
  out.set_anchored_bytes(c.lineage->anchored_bytes());
  RunTexts runs;
  AddGraph(AddValues(*c.lineage, storage, &runs, &out), &runs, &out);
  return out;
}

void ShrinkAnswer(v1::LineageAnswer* answer) {
  const auto too_large = [answer] {
    return answer->ByteSizeLong() > kMaxAnswer;
  };
  for (v1::DeviceLineage& device : *answer->mutable_devices()) {
    if (!too_large()) return;
    device.clear_graph();
    for (v1::ValueLineage& value : *device.mutable_values()) value.clear_node();
  }
  for (v1::DeviceLineage& device : *answer->mutable_devices()) {
    while (too_large() && device.values_size() > 0) {
      device.mutable_values()->RemoveLast();
    }
  }
  // The coordinator ends a session whose answer is too large.
  while (too_large() && answer->devices_size() > 0) {
    answer->mutable_devices()->RemoveLast();
  }
}

}  // namespace djinn::replica
