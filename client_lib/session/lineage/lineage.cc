#include "client_lib/session/lineage/lineage.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace djinn {

void Lineage::Add(uint64_t sequence, Message message,
                  absl::Span<const uint64_t> freed) {
  Node& node = nodes_.emplace_back();
  node.self = std::prev(nodes_.end());
  node.sequence = sequence;
  node.uses = std::move(message.uses);
  node.payload = std::move(message.payload);
  node.awaits_answer = message.awaits_answer;
  node.bytes = kNodeBytes + message.bytes + node.uses.capacity() * sizeof(Use);
  bytes_ += node.bytes;
  bool incomplete = node.payload == nullptr;
  for (const Use& use : node.uses) {
    if (!use.depends()) continue;
    const auto found = live_.find(use.storage);
    if (found == live_.end()) continue;
    Node* const operand = found->second;
    incomplete |= operand->incomplete;
    if (tainted_ && node.error.ok()) node.error = operand->error;
    node.operands.push_back(operand);
  }
  std::sort(node.operands.begin(), node.operands.end());
  node.operands.erase(std::unique(node.operands.begin(), node.operands.end()),
                      node.operands.end());
  for (Node* const operand : node.operands) ++operand->references;
  for (const Use& use : node.uses) {
    if (use.writes == 0) continue;
    Node*& producer = live_[use.storage];
    ++node.references;
    Node* const before = std::exchange(producer, &node);
    if (before != nullptr) Release(before);
  }
  unexecuted_.push_back(&node);
  if (node.awaits_answer) awaited_[sequence] = &node;
  if (incomplete) Strip(&node);
  Free(freed);
  if (bytes_ > budget_) Shed();
}

void Lineage::Free(absl::Span<const uint64_t> storages) {
  for (const uint64_t storage : storages) {
    const auto found = live_.extract(storage);
    if (!found.empty()) Release(found.mapped());
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
    bytes_ -= dropped->bytes;
    if (dropped->incomplete) --incomplete_nodes_;
    nodes_.erase(dropped->self);
  }
}

void Lineage::Strip(Node* node) {
  if (std::exchange(node->incomplete, true)) return;
  ++incomplete_nodes_;
  node->payload = nullptr;
  // Its value is not computed again, so it needs its operands no more.
  for (Node* const operand : std::exchange(node->operands, {})) {
    Release(operand);
  }
  node->uses.clear();
  node->uses.shrink_to_fit();
  bytes_ -= node->bytes - kNodeBytes;
  node->bytes = kNodeBytes;
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
  // A dependent node must still name this one when Spread() looks at it, and
  // this one must exist until then.
  ++node->references;
  Strip(node);
  Spread(
      node, [](const Node& other) { return other.incomplete; },
      [this](Node* other) { Strip(other); });
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
  auto next = nodes_.begin();
  while (bytes_ > enough && next != nodes_.end()) {
    if (next->incomplete) {
      ++next;
      continue;
    }
    Node* const node = &*next;
    ++node->references;  // keeps the position
    MakeIncomplete(node);
    ++next;
    Release(node);
  }
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
  for (const auto& [storage, producer] : live_) count += producer->incomplete;
  return count;
}

void Lineage::Clear() {
  unexecuted_.clear();
  awaited_.clear();
  live_.clear();
  nodes_.clear();
  bytes_ = 0;
  incomplete_nodes_ = 0;
}

}  // namespace djinn
