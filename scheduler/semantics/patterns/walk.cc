#include "scheduler/semantics/patterns/walk.h"

#include <algorithm>
#include <deque>

#include "absl/container/flat_hash_set.h"

namespace djinn::semantics {
namespace {

// Most nodes that a walk looks at, whatever its limit.
constexpr size_t kMaxSeen = 4096;

using Neighbours = std::vector<int> (Frame::*)(int) const;

// Walks breadth first. Stops at the first node that `wanted` accepts and
// returns it.
int Walk(const Frame& frame, int start, Neighbours neighbours,
         const NodePredicate& through, const NodePredicate& wanted, int limit,
         std::vector<int>* passed) {
  absl::flat_hash_set<int> seen = {start};
  std::deque<int> open = {start};
  while (!open.empty()) {
    const int node = open.front();
    open.pop_front();
    for (const int next : (frame.*neighbours)(node)) {
      if (!seen.insert(next).second) continue;
      if (seen.size() > kMaxSeen) return -1;
      if (wanted != nullptr && wanted(next)) return next;
      if (static_cast<int>(seen.size()) > limit || !through(next)) continue;
      if (passed != nullptr) passed->push_back(next);
      open.push_back(next);
    }
  }
  return -1;
}

}  // namespace

bool IsElementwise(const Frame& frame, int node) {
  switch (frame.op_class(node)) {
    case OpClass::kPointwise:
    case OpClass::kLayout:
    case OpClass::kRandom:
      return true;
    default:
      return false;
  }
}

bool IsTableIndex(const Frame& frame, int node) {
  if (frame.operands(node).size() != 2 ||
      (frame.op(node) != "index" && (frame.op(node) != "index_select" ||
                                     IntegerArgument(frame, node, 1) != 0))) {
    return false;
  }
  const srg::TensorView& table = *frame.operands(node)[0].view;
  const srg::TensorView& rows = *frame.operands(node)[1].view;
  return frame.IsBound(node, 0) && table.sizes.size() == 2 &&
         IsFloating(table.data_type) && rows.data_type == srg::DataType::kInt64;
}

bool IsTokenLookUp(const Frame& frame, int node) {
  if (frame.op(node) != "embedding") return false;
  const auto tokens = frame.Sizes(node, 1);
  return tokens.size() == 2 && tokens[1] > 1;
}

bool IsScaling(const Frame& frame, int node) {
  if (frame.op(node) != "mul" && frame.op(node) != "mul_") return false;
  const auto operands = frame.operands(node);
  return operands.size() == 1 ||
         (operands.size() == 2 && operands[1].view->sizes.empty());
}

bool IsSoftCap(const Frame& frame, int node) {
  const auto scales = [&](int other) {
    return IsScaling(frame, other) ||
           (frame.op(other) == "div" && frame.operands(other).size() == 1);
  };
  if (frame.op(node) != "tanh") return false;
  const int share = frame.Producer(node, 0);
  const std::vector<int> readers = frame.Consumers(node);
  return share >= 0 && scales(share) && !readers.empty() &&
         std::all_of(readers.begin(), readers.end(), scales);
}

bool RaisesWeight(const Frame& frame, int node) {
  return frame.op(node) == "add" && frame.operands(node).size() == 1 &&
         frame.OutputSizes(node).size() == 1 && frame.IsBound(node, 0) &&
         IsFloating(frame.operands(node)[0].view->data_type);
}

bool IsColumnWeight(const Frame& frame, int node, int k) {
  if (frame.Sizes(node, k).size() != 1) return false;
  const int producer = frame.Producer(node, k);
  return producer < 0 || RaisesWeight(frame, producer);
}

std::vector<int> Upstream(const Frame& frame, int node,
                          const NodePredicate& through, int limit) {
  std::vector<int> passed;
  Walk(frame, node, &Frame::Producers, through, nullptr, limit, &passed);
  return passed;
}

std::vector<int> Downstream(const Frame& frame, int node,
                            const NodePredicate& through, int limit) {
  std::vector<int> passed;
  Walk(frame, node, &Frame::Consumers, through, nullptr, limit, &passed);
  return passed;
}

int FindUpstream(const Frame& frame, int node, const NodePredicate& through,
                 const NodePredicate& wanted, int limit) {
  return Walk(frame, node, &Frame::Producers, through, wanted, limit, nullptr);
}

int FindDownstream(const Frame& frame, int node, const NodePredicate& through,
                   const NodePredicate& wanted, int limit) {
  return Walk(frame, node, &Frame::Consumers, through, wanted, limit, nullptr);
}

std::optional<int64_t> IntegerArgument(const Frame& frame, int node,
                                       int index) {
  const srg::Argument* const argument = frame.argument(node, index);
  if (argument == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<int64_t>(argument)) return *value;
  if (const auto* list = std::get_if<std::vector<int64_t>>(argument)) {
    if (list->size() == 1) return list->front();
  }
  return std::nullopt;
}

std::vector<int> DropoutBehind(const Frame& frame, const Regions& regions,
                               int node) {
  std::vector<int> dropout;
  for (const int consumer : frame.Consumers(node)) {
    if (!regions.IsFree(consumer)) continue;
    if (frame.op_class(consumer) == OpClass::kRandom) {
      dropout.push_back(consumer);
      continue;
    }
    if (frame.op(consumer) != "mul") continue;
    const auto draws = [&](int other) {
      return regions.IsFree(other) && other != node &&
             (frame.op_class(other) == OpClass::kRandom ||
              frame.op(other) == "div_" || frame.op(other) == "empty_like");
    };
    const std::vector<int> mask = Upstream(frame, consumer, draws, 8);
    if (mask.empty()) continue;
    dropout.push_back(consumer);
    dropout.insert(dropout.end(), mask.begin(), mask.end());
  }
  return dropout;
}

}  // namespace djinn::semantics
