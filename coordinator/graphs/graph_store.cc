#include "coordinator/graphs/graph_store.h"

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "coordinator/graphs/graph_meaning.h"
#include "scheduler/semantics/analysis/analysis.h"

namespace djinn::coordinator {
namespace {

constexpr size_t kMinPrefix = 8;

absl::Status CheckNotes(const v1::GraphNotes& notes, size_t nodes) {
  bool fits = notes.note_of_node_size() == 0 ||
              static_cast<size_t>(notes.note_of_node_size()) == nodes;
  for (const uint32_t note : notes.note_of_node()) {
    fits &= note <= static_cast<uint32_t>(notes.notes_size());
  }
  if (fits) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_NOTES",
                   absl::StrCat(notes.notes_size(), " notes for ",
                                notes.note_of_node_size(), " of ", nodes,
                                " nodes: one is named that is not there, or "
                                "not every node is"));
}

}  // namespace

absl::StatusOr<std::string> GraphStore::Add(absl::string_view tenant,
                                            const v1::Graph& message,
                                            const v1::GraphNotes& notes,
                                            semantics::Program* program) {
  auto graph = std::make_shared<srg::Graph>();
  DJINN_ASSIGN_OR_RETURN(*graph, srg::FromProto(message));
  DJINN_RETURN_IF_ERROR(srg::Validate(*graph, caps_).status());
  DJINN_RETURN_IF_ERROR(CheckNotes(notes, graph->nodes.size()));
  std::string fingerprint = srg::Fingerprint(*graph);
  const std::string hex = absl::BytesToHexString(fingerprint);
  const Unknown unknown =
      Insert(tenant, hex, *graph, message.SerializeAsString(), notes);
  if (unknown.shown) KeepShown(hex, *graph);
  if (!unknown.own) return fingerprint;
  semantics::Program alone;
  for (const semantics::Program::Finding& finding :
       (program == nullptr ? &alone : program)
           ->Add(hex, graph, message.ByteSizeLong())) {
    KeepMeaning(tenant, finding);
  }
  return fingerprint;
}

GraphStore::Unknown GraphStore::Insert(absl::string_view tenant,
                                       const std::string& hex,
                                       const srg::Graph& graph,
                                       std::string encoding,
                                       const v1::GraphNotes& notes) {
  MutexLock lock(&mu_);
  const auto [it, added] = entries_.try_emplace(hex);
  Entry& entry = it->second;
  if (added) {
    bytes_ += encoding.size();
    entry.encoding = std::move(encoding);
    entry.node_count = static_cast<uint32_t>(graph.nodes.size());
    entry.slot_count = static_cast<uint32_t>(graph.slots.size());
    entry.ordinal = ++ordinal_;
    entry.hex = hex;
  }
  entry.shared |= !added && !entry.holders.contains(tenant);
  // The tenant's meaning must be looked up before the store may remove it for
  // lack of room.
  const auto own = entry.found.find(tenant);
  const Unknown unknown = {
      .own = own == entry.found.end() || !own->second.complete,
      .shown = entry.shared && entry.shown.work == nullptr};
  order_.Take(tenant, &entry, entry.BytesFor(tenant));
  if (notes.note_of_node_size() > 0) {
    DropNotes(&entry);
    entry.notes = notes.SerializeAsString();
    entry.notes_by = std::string(tenant);
    bytes_ += entry.notes.size();
    CountAnew(&entry);
  }
  MakeRoom();
  return unknown;
}

GraphStore::Found GraphStore::ToFound(const srg::Graph& graph,
                                      const semantics::Meaning& meaning,
                                      const v1::GraphMeaning& message) {
  return {.meaning = {},
          .summary = Summary(message),
          .complete = IsComplete(meaning),
          .work = std::make_shared<const scheduler::Work>(graph, meaning)};
}

void GraphStore::KeepMeaning(absl::string_view tenant,
                             const semantics::Program::Finding& finding) {
  const v1::GraphMeaning message = ToProto(finding.meaning);
  Found found = ToFound(*finding.graph, finding.meaning, message);
  found.meaning = message.SerializeAsString();
  MutexLock lock(&mu_);
  const auto at = entries_.find(finding.name);
  // The graph was removed meanwhile, or only other tenants hold it now.
  if (at == entries_.end() || !at->second.holders.contains(tenant)) return;
  Entry& entry = at->second;
  Found& own = entry.found[std::string(tenant)];
  bytes_ -= own.meaning.size();
  own = std::move(found);
  bytes_ += own.meaning.size();
  CountAnew(&entry);
  MakeRoom();
}

void GraphStore::KeepShown(const std::string& hex, const srg::Graph& graph) {
  const semantics::Meaning meaning = semantics::Analyze(graph);
  Found shown = ToFound(graph, meaning, ToProto(meaning));
  MutexLock lock(&mu_);
  const auto at = entries_.find(hex);
  if (at != entries_.end()) at->second.shown = std::move(shown);
}

void GraphStore::DropNotes(Entry* entry) {
  bytes_ -= entry->notes.size();
  entry->notes.clear();
  entry->notes_by.clear();
}

void GraphStore::CountAnew(Entry* entry) {
  order_.Resize(entry, [entry](absl::string_view tenant) {
    return entry->BytesFor(tenant);
  });
}

void GraphStore::MakeRoom() {
  while (bytes_ > max_bytes_) {
    const auto let_go = order_.Release(nullptr);
    if (!let_go.has_value()) return;
    Entry* const entry = let_go->item;
    if (entry->notes_by == let_go->tenant) DropNotes(entry);
    const auto own = entry->found.find(let_go->tenant);
    if (own != entry->found.end()) {
      bytes_ -= own->second.meaning.size();
      entry->found.erase(own);
    }
    if (!entry->holders.empty()) continue;
    bytes_ -= entry->encoding.size();
    entries_.erase(entries_.find(entry->hex));
  }
}

GraphStore::Works GraphStore::WorksOf(absl::string_view tenant,
                                      const std::string& fingerprint) {
  MutexLock lock(&mu_);
  const auto at = entries_.find(absl::BytesToHexString(fingerprint));
  if (at == entries_.end()) return {};
  const Entry& entry = at->second;
  const auto own = entry.found.find(tenant);
  return {.own = own == entry.found.end() ? nullptr : own->second.work,
          .shown = entry.shown.work};
}

const GraphStore::Found* GraphStore::ShownOf(const Entry& entry) {
  if (entry.shared) return &entry.shown;
  // The graph has one holder at most: its meaning is shown.
  return entry.found.empty() ? nullptr : &entry.found.begin()->second;
}

void GraphStore::CountDefinition(const std::string& fingerprint) {
  MutexLock lock(&mu_);
  const auto found = entries_.find(absl::BytesToHexString(fingerprint));
  if (found != entries_.end()) ++found->second.definition_count;
}

v1::GraphInfo GraphStore::Describe(const Entries::value_type& item) {
  v1::GraphInfo info;
  info.set_fingerprint(item.first);
  info.set_node_count(item.second.node_count);
  info.set_slot_count(item.second.slot_count);
  info.set_definition_count(item.second.definition_count);
  info.set_size_bytes(item.second.encoding.size());
  info.set_ordinal(item.second.ordinal);
  const Found* const shown = ShownOf(item.second);
  info.mutable_meaning();
  if (shown != nullptr) *info.mutable_meaning() = shown->summary;
  return info;
}

Page<v1::GraphInfo> GraphStore::List(const PageRange& range) {
  MutexLock lock(&mu_);
  const auto slice = Slice(entries_, range);
  Page<v1::GraphInfo> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) page.items.push_back(Describe(*entry));
  return page;
}

absl::StatusOr<v1::GraphInfo> GraphStore::Get(absl::string_view hex) {
  Entry entry;
  DJINN_ASSIGN_OR_RETURN(v1::GraphInfo info, Find(hex, &entry));
  info.mutable_graph()->ParseFromString(entry.encoding);
  if (entry.shared) {
    const auto graph = srg::FromProto(info.graph());
    if (graph.ok()) {
      *info.mutable_meaning() = ToProto(semantics::Analyze(*graph));
    }
  } else {
    info.mutable_meaning()->ParseFromString(entry.shown.meaning);
  }
  v1::GraphNotes notes;
  notes.ParseFromString(entry.notes);
  if (!entry.shared) {
    ApplyHints(info.graph(), notes, info.mutable_meaning());
  }
  DescribeNodes(info.graph(), notes, info.mutable_nodes());
  return info;
}

absl::StatusOr<v1::GraphInfo> GraphStore::Find(absl::string_view hex,
                                               Entry* copy) {
  MutexLock lock(&mu_);
  const auto first = entries_.lower_bound(hex);
  if (hex.size() < kMinPrefix || first == entries_.end() ||
      !absl::StartsWith(first->first, hex)) {
    return MakeError(absl::StatusCode::kNotFound, "GRAPH_UNKNOWN",
                     absl::StrCat("no graph \"", hex, "\""));
  }
  const auto second = std::next(first);
  if (second != entries_.end() && absl::StartsWith(second->first, hex)) {
    return MakeError(absl::StatusCode::kInvalidArgument, "PREFIX_AMBIGUOUS",
                     absl::StrCat("several graphs begin with \"", hex, "\""));
  }
  copy->encoding = first->second.encoding;
  copy->notes = first->second.notes;
  copy->shared = first->second.shared;
  const Found* const shown = ShownOf(first->second);
  if (shown != nullptr) copy->shown.meaning = shown->meaning;
  return Describe(*first);
}

GraphStore::Stats GraphStore::stats() {
  MutexLock lock(&mu_);
  return {entries_.size(), bytes_};
}

namespace {

void Describe(const v1::TensorView& view, v1::GraphTensor* tensor) {
  tensor->set_slot(view.slot());
  tensor->set_data_type(view.data_type());
  *tensor->mutable_sizes() = view.sizes();
}

void Describe(const v1::Argument& argument, v1::GraphNode* node) {
  switch (argument.value_case()) {
    case v1::Argument::kTensor:
      Describe(argument.tensor(), node->add_operands());
      break;
    case v1::Argument::kTensors:
      for (const auto& entry : argument.tensors().entries()) {
        if (entry.has_view()) Describe(entry.view(), node->add_operands());
      }
      break;
    case v1::Argument::kGeneratorSlot:
      node->set_generator_slot(argument.generator_slot());
      break;
    default:
      break;  // a constant or a hole
  }
}

void Describe(const v1::Result& result, v1::GraphNode* node) {
  if (result.has_view()) {
    Describe(result.view(), node->add_results());
  } else if (result.has_unknown_in_slot()) {
    node->add_results()->set_slot(result.unknown_in_slot());
  }
}

}  // namespace

void DescribeNodes(const v1::Graph& graph, const v1::GraphNotes& notes,
                   google::protobuf::RepeatedPtrField<v1::GraphNode>* nodes) {
  for (int i = 0; i < graph.nodes_size(); ++i) {
    const v1::Node& call = graph.nodes(i);
    v1::GraphNode* const node = nodes->Add();
    const v1::Operator& op = graph.operators(call.operator_index());
    node->set_operator_name(op.overload().empty()
                                ? op.name()
                                : absl::StrCat(op.name(), ".", op.overload()));
    for (const v1::Argument& argument : call.arguments()) {
      Describe(argument, node);
    }
    for (const v1::Result& result : call.results()) Describe(result, node);
    *node->mutable_written_slots() = call.writes();
    if (call.has_implicit_generator_slot()) {
      node->set_generator_slot(call.implicit_generator_slot());
    }
    if (notes.note_of_node_size() == 0 || notes.note_of_node(i) == 0) continue;
    *node->mutable_note() =
        notes.notes(static_cast<int>(notes.note_of_node(i)) - 1);
  }
}

}  // namespace djinn::coordinator
