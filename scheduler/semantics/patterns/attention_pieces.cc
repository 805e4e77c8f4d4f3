#include "scheduler/semantics/patterns/attention_pieces.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {

bool AttentionPieces::Passes(int node) const {
  return regions_->IsFree(node) && IsElementwise(frame_, node);
}

bool AttentionPieces::IsTableLookUp(int node) const {
  return frame_.op(node) == "embedding" || IsTableIndex(frame_, node);
}

bool AttentionPieces::MeasuresDistance(int node) const {
  return regions_->IsFree(node) && (IsElementwise(frame_, node) ||
                                    frame_.op_class(node) == OpClass::kFactory);
}

bool AttentionPieces::IsNorm(int node) const {
  return frame_.op_class(node) == OpClass::kNormalization ||
         regions_->pattern(node) == "norm";
}

void AttentionPieces::AddOutputs() {
  const auto onward = [this](int node) {
    return IsNorm(node) || Passes(node) ||
           (regions_->IsFree(node) &&
            frame_.op_class(node) == OpClass::kReduction);
  };
  const auto projection = [this](int node) {
    return IsProjection(frame_, node);
  };
  for (int i = 0; i < frame_.node_count(); ++i) {
    if (!regions_->IsFree(i) || !projection(i)) continue;
    const int before = frame_.Producer(i, RowsOperand(frame_, i));
    const bool joined = before >= 0 && JoinsHeads(before);
    const bool made = frame_.value(ProjectedValue(frame_, i)).producer >= 0;
    if ((made && !joined) || HasActivation(i)) continue;
    const auto sums = frame_.Consumers(i);
    if (sums.empty()) continue;
    const int next = FindDownstream(frame_, i, onward, projection);
    if (next < 0 || !regions_->IsFree(next) || !HasActivation(next)) continue;
    // A pooler keeps the width; an MLP does not.
    const auto out = frame_.OutputSizes(i), wide = frame_.OutputSizes(next);
    if (out.empty() || wide.empty() || out.back() == wide.back()) continue;
    Region region{"attention", {{i, "attention.output"}}, {"piece"}};
    if (joined) region.members.push_back({before, "attention.heads"});
    for (const int dropped : DropoutBehind(frame_, *regions_, i)) {
      region.members.push_back({dropped, "attention.dropout"});
    }
    regions_->Add(std::move(region));
  }
}

// Returns whether the node, with which a piece begins, puts the results of
// all heads for a token side by side.
bool AttentionPieces::JoinsHeads(int node) const {
  if (frame_.op(node) != "clone" || !regions_->IsFree(node) ||
      !frame_.IsFromElsewhere(frame_.operands(node)[0])) {
    return false;
  }
  const srg::TensorView& heads = *frame_.operands(node)[0].view;
  return heads.sizes.size() == 4 && heads.sizes[2] > 1 &&
         heads.strides[1] == heads.sizes[3] &&
         heads.strides[2] == heads.sizes[1] * heads.sizes[3];
}

bool AttentionPieces::HasActivation(int node) const {
  // A sum with a value that was made before the node is the one around a
  // block; other sums belong to an activation.
  const auto passes = [this, node](int next) {
    if (!regions_->IsFree(next) || !IsElementwise(frame_, next)) return false;
    return frame_.op(next) != "add" ||
           absl::c_all_of(frame_.operands(next),
                          [this, node](const Frame::Operand& operand) {
                            return frame_.value(operand.value).producer >= node;
                          });
  };
  return FindDownstream(frame_, node, passes, [this](int next) {
           return frame_.op_class(next) == OpClass::kActivation;
         }) >= 0;
}

void AttentionPieces::AddDistances() {
  for (int i = 0; i < frame_.node_count(); ++i) {
    if (!regions_->IsFree(i) || !IsDistance(i)) continue;
    Region region{"attention", {{i, "attention.bias"}}, {"piece"}};
    const auto measures = [this](int next) {
      return MeasuresDistance(next) ||
             (regions_->IsFree(next) && frame_.op(next) == "index" &&
              IsTableLookUp(next));
    };
    for (const int next : Upstream(frame_, i, measures)) {
      region.members.push_back({next, "attention.bias"});
    }
    for (const int next : Downstream(frame_, i, measures)) {
      region.members.push_back({next, "attention.bias"});
    }
    regions_->Add(std::move(region));
  }
}

// Returns whether the node subtracts columns of integers from rows of
// integers, and the size of the difference matters. A mask only compares it.
bool AttentionPieces::IsDistance(int node) const {
  if (frame_.op(node) != "sub" || frame_.operands(node).size() != 2) {
    return false;
  }
  const auto left = frame_.Sizes(node, 0), right = frame_.Sizes(node, 1);
  if (left.size() < 2 || left.size() != right.size() ||
      frame_.operands(node)[0].view->data_type != srg::DataType::kInt64) {
    return false;
  }
  const bool across = (left[left.size() - 2] == 1 && right.back() == 1) ||
                      (right[right.size() - 2] == 1 && left.back() == 1);
  const std::vector<int> next = frame_.Consumers(node);
  return across && absl::c_any_of(next, [this](int reader) {
           const absl::string_view op = frame_.op(reader);
           return (op == "abs" && !IsOnlyCompared(reader)) || op == "neg" ||
                  op == "minimum";
         });
}

// Returns whether the distances are only compared, as for a mask's window.
bool AttentionPieces::IsOnlyCompared(int node) const {
  const std::vector<int> readers = frame_.Consumers(node);
  return !readers.empty() && absl::c_all_of(readers, [this](int reader) {
    return Compares(reader);
  });
}

void AttentionPieces::AddProjections() {
  std::map<int, std::vector<int>> by_input;
  for (int i = 0; i < frame_.node_count(); ++i) {
    if (!regions_->IsFree(i) || !IsProjection(frame_, i)) continue;
    by_input[ProjectedValue(frame_, i)].push_back(i);
  }
  for (const auto& [value, nodes] : by_input) {
    if (nodes.size() < 2 ||
        std::any_of(nodes.begin(), nodes.end(),
                    [this](int node) { return HasActivation(node); })) {
      continue;
    }
    Region region{"attention", {}, {"piece"}};
    for (const int node : nodes) {
      region.members.push_back({node, "attention.projection"});
      AddScale(node, &region);
      for (const int next : Downstream(
               frame_, node, [this](int other) { return Passes(other); }, 32)) {
        if (frame_.OutputSizes(next).size() == 4) {
          region.members.push_back({next, "attention.heads"});
        }
      }
    }
    regions_->Add(std::move(region));
  }
}

// Adds the scaling of queries before they become heads.
void AttentionPieces::AddScale(int projection, Region* region) const {
  for (const int next : frame_.Consumers(projection)) {
    if (regions_->IsFree(next) && IsScaling(frame_, next)) {
      region->members.push_back({next, "attention.projection"});
    }
  }
}

void AttentionPieces::AddLastProjections() {
  for (int i = 0; i < frame_.node_count(); ++i) {
    if (!regions_->IsFree(i) || !IsProjection(frame_, i)) continue;
    const int norm = frame_.value(ProjectedValue(frame_, i)).producer;
    const srg::TensorView* const in =
        frame_.operands(i)[RowsOperand(frame_, i)].view;
    const auto out = frame_.OutputSizes(i);
    if (norm < 0 || in->sizes.empty() || out.empty() || !EndsNorm(norm) ||
        Elements(in) != Elements(frame_.outputs(norm)[0].view)) {
      continue;
    }
    const int64_t width = in->sizes.back();
    // Computes no multiple of the width, which could overflow.
    if (out.back() != width &&
        (out.back() % 3 != 0 || out.back() / 3 != width)) {
      continue;
    }
    Region region{"attention", {{i, "attention.projection"}}, {"piece"}};
    AddScale(i, &region);
    const std::vector<int> next = frame_.Consumers(i);
    const bool last = absl::c_all_of(next, [&](int consumer) {
      return IsScaling(frame_, consumer) && frame_.Consumers(consumer).empty();
    });
    if (last) regions_->Add(std::move(region));
  }
}

// Returns whether the node is a norm in one call, or the product with a
// norm's weight.
bool AttentionPieces::EndsNorm(int node) const {
  return frame_.op_class(node) == OpClass::kNormalization ||
         (frame_.op(node) == "mul" && frame_.operands(node).size() == 2 &&
          (IsColumnWeight(frame_, node, 0) || IsColumnWeight(frame_, node, 1)));
}

bool AttentionPieces::Compares(int node) const {
  const absl::string_view op = frame_.op(node);
  return op == "le" || op == "ge" || op == "lt" || op == "gt" || op == "tril" ||
         op == "triu";
}

}  // namespace djinn::semantics
