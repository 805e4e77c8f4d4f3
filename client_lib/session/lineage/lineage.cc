#include "client_lib/session/lineage/lineage.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace djinn {

void Lineage::Add(uint64_t sequence, Message message,
                  absl::Span<const uint64_t> freed) {
  Node& node = nodes_.emplace_back();
  node.self = std::prev(nodes_.end());
  node.place = ++last_place_;
  node.sequence = sequence;
  node.uses = Uses(message.uses);
  node.payload = std::move(message.payload);
  node.awaits_answer = message.awaits_answer;
  node.bytes = kNodeBytes + message.bytes + node.uses.size() * sizeof(Use);
  bytes_ += node.bytes;
  bool incomplete = node.payload == nullptr;
  if (incomplete) {
    node.lack = "it cannot be sent again, like a copy between devices";
  }
  for (const Use& use : node.uses) {
    if (!use.depends()) continue;
    const auto found = live_.find(use.storage);
    if (found == live_.end()) continue;
    Node* const operand = found->second.producer;
    incomplete |= operand->incomplete;
    if (operand->incomplete) node.lack = operand->lack;
    if (tainted_ && node.error.ok()) node.error = operand->error;
    node.operands.push_back(operand);
  }
  std::sort(node.operands.begin(), node.operands.end());
  node.operands.erase(std::unique(node.operands.begin(), node.operands.end()),
                      node.operands.end());
  for (Node* const operand : node.operands) ++operand->references;
  for (Use& use : node.uses) Note(&use, &node);
  unexecuted_.push_back(&node);
  if (node.awaits_answer) awaited_[sequence] = &node;
  NoteBytes(&node);
  if (incomplete) Strip(&node);
  Free(freed);
  if (bytes_ > budget_) Shed();
}

void Lineage::Note(Use* use, Node* node) {
  if (use->writes == 0) {
    const auto found = live_.find(use->storage);
    if (found != live_.end() && use->size_bytes > 0) {
      found->second.size_bytes = use->size_bytes;
    }
    return;
  }
  Live& live = live_[use->storage];
  live.version = use->base_version + use->writes;
  if (use->size_bytes > 0) live.size_bytes = use->size_bytes;
  live.generator |= use->generator;
  use->generator = live.generator;
  ++node->references;
  Node* const before = std::exchange(live.producer, node);
  if (before != nullptr) Release(before);
}

void Lineage::Free(absl::Span<const uint64_t> storages) {
  for (const uint64_t storage : storages) {
    const auto found = live_.extract(storage);
    if (!found.empty()) Release(found.mapped().producer);
  }
}

void Lineage::Executed(uint64_t sequence) {
  while (!unexecuted_.empty() && unexecuted_.front()->sequence <= sequence) {
    Node* const node = unexecuted_.front();
    unexecuted_.pop_front();
    node->executed = true;
    DropIfUnused(node);
  }
}

void Lineage::Answered(uint64_t sequence) {
  const auto found = awaited_.extract(sequence);
  if (found.empty()) return;
  found.mapped()->awaits_answer = false;
  DropIfUnused(found.mapped());
}

Lineage::Node* Lineage::FindPending(uint64_t sequence) {
  const auto awaited = awaited_.find(sequence);
  if (awaited != awaited_.end()) return awaited->second;
  const auto found = std::lower_bound(
      unexecuted_.begin(), unexecuted_.end(), sequence,
      [](const Node* node, uint64_t at) { return node->sequence < at; });
  return found != unexecuted_.end() && (*found)->sequence == sequence ? *found
                                                                      : nullptr;
}

Lineage::Node* Lineage::ReadFrom(uint64_t sequence) {
  const auto found = awaited_.find(sequence);
  if (found == awaited_.end() || found->second->operands.size() != 1) {
    return nullptr;
  }
  return found->second->operands.front();
}

void Lineage::Charge(Node* node, uint64_t bytes) {
  node->bytes += bytes;
  bytes_ += bytes;
  if (bytes_ > budget_) Shed();
}

void Lineage::Release(Node* node) {
  --node->references;
  DropIfUnused(node);
}

void Lineage::DropIfUnused(Node* node) {
  if (node->references > 0 || IsPinned(*node)) return;
  // Not recursive, because chains may be long.
  unused_.push_back(node);
  while (!unused_.empty()) {
    Node* const dropped = unused_.back();
    unused_.pop_back();
    for (Node* const operand : dropped->operands) {
      if (--operand->references == 0 && !IsPinned(*operand)) {
        unused_.push_back(operand);
      }
    }
    (dropped->anchor ? anchored_bytes_ : bytes_) -= dropped->bytes;
    if (dropped->incomplete) --incomplete_nodes_;
    if (dropped->hash_only) --hash_only_nodes_;
    nodes_.erase(dropped->self);
  }
}

void Lineage::NoteBytes(Node* node) {
  const bool hash_only =
      node->payload != nullptr && !node->payload->has_bytes();
  hash_only_nodes_ += hash_only;
  hash_only_nodes_ -= node->hash_only;
  node->hash_only = hash_only;
}

void Lineage::Strip(Node* node) {
  if (node->incomplete) return;
  node->incomplete = true;
  ++incomplete_nodes_;
  node->payload = nullptr;
  NoteBytes(node);
  // Its value is not computed again, so it needs its operands no more.
  const Operands operands = std::move(node->operands);
  node->operands.clear();
  for (Node* const operand : operands) Release(operand);
  node->uses = Uses();
  (node->anchor ? anchored_bytes_ : bytes_) -= std::exchange(node->bytes, 0);
}

template <typename IsMarked, typename Mark>
void Lineage::Spread(Node* first, IsMarked is_marked, Mark mark) {
  for (auto next = std::next(first->self); next != nodes_.end();) {
    Node& node = *next;
    const bool depends =
        std::any_of(node.operands.begin(), node.operands.end(),
                    [&](const Node* operand) { return is_marked(*operand); });
    // Marking may drop earlier nodes, and never this one.
    if (depends && !is_marked(node)) mark(&node);
    ++next;
  }
}

void Lineage::MakeIncomplete(Node* node) {
  if (node->incomplete) return;
  if (*node->lack == 0) node->lack = "its worker refused the bytes";
  const char* const lack = node->lack;
  // A dependent node must still name this one when Spread() looks at it, and
  // this one must exist until then.
  ++node->references;
  Strip(node);
  Spread(
      node, [](const Node& other) { return other.incomplete; },
      [this, lack](Node* other) {
        other->lack = lack;
        Strip(other);
      });
  Release(node);
}

void Lineage::Taint(Node* node, const absl::Status& error) {
  tainted_ = true;
  node->error = error;
  Spread(
      node, [](const Node& other) { return !other.error.ok(); },
      [&](Node* other) { other->error = error; });
}

void Lineage::Shed() {
  // A part of the budget is freed at once, because each search visits all
  // nodes.
  const uint64_t enough = budget_ / 4 * 3;
  for (Node& node : nodes_) {
    if (bytes_ <= enough) return;
    if (node.payload == nullptr || node.anchor || !node.executed) continue;
    const uint64_t freed = node.payload->Shrink();
    NoteBytes(&node);
    node.bytes -= freed;
    bytes_ -= freed;
  }
  auto next = nodes_.begin();
  while (bytes_ > enough && next != nodes_.end()) {
    // Anchors have no chains, and their bytes have a limit of their own.
    if (next->incomplete || next->anchor) {
      ++next;
      continue;
    }
    Node* const node = &*next;
    ++node->references;  // keeps the position
    node->lack = "replay_memory was full";
    MakeIncomplete(node);
    ++next;
    Release(node);
  }
}

std::vector<Lineage::Value> Lineage::ToBeRead() const {
  std::vector<Value> values;
  for (const auto& [storage, live] : live_) {
    const Value value = Find(storage);
    if (value.WorthReading()) values.push_back(value);
  }
  std::sort(values.begin(), values.end(), [](const Value& a, const Value& b) {
    return std::pair(a.producer->place, a.storage) <
           std::pair(b.producer->place, b.storage);
  });
  return values;
}

Lineage::Value Lineage::Find(uint64_t storage) const {
  const auto found = live_.find(storage);
  if (found == live_.end()) return {};
  const Live& live = found->second;
  return {storage, live.version, live.size_bytes, live.generator,
          live.producer};
}

std::vector<Lineage::Value> Lineage::Values() const {
  std::vector<Value> values;
  for (const auto& [storage, live] : live_) values.push_back(Find(storage));
  std::sort(values.begin(), values.end(), [](const Value& a, const Value& b) {
    return a.storage < b.storage;
  });
  return values;
}

std::vector<const Lineage::Node*> Lineage::Ancestry(const Node* node,
                                                    size_t most) {
  std::vector<const Node*> found = {node};
  absl::flat_hash_set<const Node*> seen = {node};
  for (size_t i = 0; i < found.size() && found.size() < most; ++i) {
    for (const Node* const operand : found[i]->operands) {
      if (found.size() < most && seen.insert(operand).second) {
        found.push_back(operand);
      }
    }
  }
  return found;
}

void Lineage::Anchor(std::vector<Anchored> values) {
  AnchorMap anchors;
  Node* first = nullptr;
  for (Anchored& anchored : values) {
    const Value& value = anchored.value;
    Node* const producer = value.producer;
    Node& anchor = *nodes_.emplace(std::next(producer->self));
    anchor.self = std::next(producer->self);
    anchor.anchor = true;
    anchor.place = producer->place;
    anchor.sequence = producer->sequence;
    anchor.executed = true;
    const Use use = {value.storage,   value.version - 1, 1,
                     /*reads=*/false, value.size_bytes,  false,
                     value.generator};
    anchor.uses = Uses({&use, 1});
    anchor.payload = std::move(anchored.payload);
    anchor.bytes = kAnchorBytes + anchored.bytes;
    anchored_bytes_ += anchor.bytes;
    ++anchor.references;  // until the end
    anchors[{value.storage, value.version}] = {producer, &anchor};
    if (first == nullptr || producer->place < first->place) first = producer;
    const auto live = live_.find(value.storage);
    if (live == live_.end() || live->second.version != value.version) continue;
    ++anchor.references;
    Release(std::exchange(live->second.producer, &anchor));
  }
  if (first == nullptr) return;
  // Only later nodes read the values.
  for (auto next = first->self; next != nodes_.end(); ++next) {
    Rewire(&*next, anchors);
  }
  for (const auto& [version, nodes] : anchors) Release(nodes.second);
  if (bytes_ > budget_) Shed();
}

bool Lineage::Produces(const Node& node, const Use& use) {
  return std::any_of(
      node.uses.begin(), node.uses.end(), [&](const Use& effect) {
        return effect.storage == use.storage && effect.writes > 0 &&
               // A message that names no version reads the current one.
               (use.base_version == 0 ||
                effect.base_version + effect.writes == use.base_version);
      });
}

void Lineage::Rewire(Node* node, const AnchorMap& anchors) {
  Operands& operands = node->operands;
  if (operands.empty()) return;
  const auto find = [&](const Use& use) {
    return use.depends() ? anchors.find({use.storage, use.base_version})
                         : anchors.end();
  };
  std::vector<Node*> replaced;
  for (const Use& use : node->uses) {
    const auto found = find(use);
    if (found == anchors.end()) continue;
    replaced.push_back(found->second.first);
    operands.push_back(found->second.second);
    ++found->second.second->references;
  }
  if (replaced.empty()) return;
  std::sort(replaced.begin(), replaced.end());
  replaced.erase(std::unique(replaced.begin(), replaced.end()), replaced.end());
  // Returns whether an anchor, perhaps an earlier one, has the value.
  const auto is_anchored = [&](const Use& use) {
    return std::any_of(operands.begin(), operands.end(), [&](Node* operand) {
      return operand->anchor && use.base_version > 0 && Produces(*operand, use);
    });
  };
  for (Node* const producer : replaced) {
    const bool needed =
        std::any_of(node->uses.begin(), node->uses.end(), [&](const Use& use) {
          return use.depends() && Produces(*producer, use) && !is_anchored(use);
        });
    const auto reads = std::find(operands.begin(), operands.end(), producer);
    if (needed || reads == operands.end()) continue;
    operands.erase(reads);
    Release(producer);
  }
  std::sort(operands.begin(), operands.end());
}

void Lineage::BeginAnew() {
  for (Node& node : nodes_) node.sequence = 0;
  unexecuted_.clear();
  awaited_.clear();
}

void Lineage::Resent(Node* node, uint64_t sequence) {
  node->sequence = sequence;
  if (!node->executed) unexecuted_.push_back(node);
  if (node->awaits_answer) awaited_[sequence] = node;
}

size_t Lineage::incomplete_storages() const {
  size_t count = 0;
  for (const auto& [storage, live] : live_) {
    count += live.producer->incomplete;
  }
  return count;
}

void Lineage::Clear() {
  unexecuted_.clear();
  awaited_.clear();
  live_.clear();
  nodes_.clear();
  bytes_ = 0;
  anchored_bytes_ = 0;
  incomplete_nodes_ = 0;
  hash_only_nodes_ = 0;
}

}  // namespace djinn
