#include "scheduler/semantics/patterns/rotation.h"

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

bool Joins(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  return (op == "cat" || op == "stack") && frame.operands(node).size() == 2 &&
         IsFloating(frame.operands(node)[0].view->data_type);
}

bool IsProduct(const Frame& frame, int node) {
  return frame.op(node) == "mul" && frame.operands(node).size() == 2;
}

// Returns whether a row of the view is part of a row in memory: one half, or
// every second number.
bool IsPartOfRows(const srg::TensorView& view) {
  const size_t rank = view.sizes.size();
  return rank >= 4 && (view.strides[rank - 1] > 1 ||
                       view.strides[rank - 2] > view.sizes[rank - 1]);
}

// Returns whether a piece begins with the node, which joins a part with another
// part that was negated in the previous piece. The result is multiplied by
// numbers that several heads share, and added.
bool IsBeginning(const Frame& frame, int node) {
  const auto operands = frame.operands(node);
  if (!frame.IsFromElsewhere(operands[0]) ||
      operands[0].view->sizes != operands[1].view->sizes ||
      !IsPartOfRows(*operands[1].view)) {
    return false;
  }
  const int64_t elements = Elements(frame.outputs(node)[0].view);
  return absl::c_any_of(frame.Consumers(node), [&](int product) {
    if (!IsProduct(frame, product)) return false;
    const auto factors = frame.operands(product);
    return (Elements(factors[0].view) < elements) !=
               (Elements(factors[1].view) < elements) &&
           absl::c_any_of(frame.Consumers(product), [&](int sum) {
             return frame.op(sum) == "add" && frame.operands(sum).size() == 2;
           });
  });
}

// Returns the value whose halves the node joins, one of them negated; -1 when
// it does not.
int TurnedValue(const Frame& frame, int node) {
  const int negated = frame.Producer(node, 0);
  const int value = frame.operands(node)[1].value;
  if (negated < 0) return IsBeginning(frame, node) ? value : -1;
  if (frame.op(negated) != "neg") return -1;
  return frame.operands(negated)[0].value == value ? value : -1;
}

// Returns the products whose difference and sum the node joins; empty when it
// does not, or when they are not products of one value's parts.
std::vector<int> MixedProducts(const Frame& frame, int node) {
  std::vector<int> products;
  absl::string_view ops[2];
  for (int k = 0; k < 2; ++k) {
    const int mixed = frame.Producer(node, k);
    if (mixed < 0) return {};
    ops[k] = frame.op(mixed);
    for (const int product : frame.Producers(mixed)) {
      if (!IsProduct(frame, product)) return {};
      products.push_back(product);
    }
  }
  const bool mixes = (ops[0] == "sub" && ops[1] == "add") ||
                     (ops[0] == "add" && ops[1] == "sub");
  if (!mixes || products.size() != 4) return {};
  const auto is_in_all = [&](const Frame::Operand& operand) {
    return absl::c_all_of(products, [&](int product) {
      return absl::c_any_of(frame.operands(product),
                            [&](const Frame::Operand& other) {
                              return other.value == operand.value;
                            });
    });
  };
  const auto operands = frame.operands(products[0]);
  if (!absl::c_any_of(operands, is_in_all)) return {};
  return products;
}

class Collector {
 public:
  Collector(const Frame& frame, const Regions& regions)
      : frame_(frame), regions_(regions) {}

  std::vector<int> Around(int node) {
    Take(node);
    const int turned = TurnedValue(frame_, node);
    if (turned < 0) {
      for (const int product : MixedProducts(frame_, node)) {
        TakeProduct(product);
        for (const int mixed : frame_.Consumers(product)) Take(mixed);
      }
      return taken_;
    }
    if (frame_.Producer(node, 0) >= 0) Take(frame_.Producer(node, 0));
    for (const int product : frame_.Consumers(node)) {
      if (!IsProduct(frame_, product)) continue;
      TakeProduct(product);
      for (const int sum : frame_.Consumers(product)) {
        if (frame_.op(sum) == "add" || frame_.op(sum) == "add_") Take(sum);
      }
    }
    // Takes the products of the original heads and the cosines.
    for (const int product : frame_.value(turned).readers) {
      if (IsProduct(frame_, product)) TakeProduct(product);
    }
    return taken_;
  }

 private:
  void Take(int node) {
    if (regions_.IsFree(node) && !absl::c_linear_search(taken_, node)) {
      taken_.push_back(node);
    }
  }

  void TakeProduct(int product) {
    Take(product);
    for (const int factor : frame_.Producers(product)) TakeCopies(factor);
  }

  // Takes the look-up of angles in a table, and the repetition of each angle.
  // The nodes that made the angles belong to the positions.
  void TakeCopies(int factor) {
    const auto copies = [this](int node) {
      const absl::string_view op = frame_.op(node);
      return regions_.IsFree(node) &&
             (op == "clone" || op == "repeat" || op == "repeat_interleave" ||
              op == "index" || op == "index_select" || op == "gather");
    };
    if (!copies(factor) || LeadsFromHeads(factor)) return;
    Take(factor);
    for (const Frame::Operand& operand : frame_.operands(factor)) {
      for (const int other : frame_.value(operand.value).readers) {
        // The other factor is in the next piece.
        if (frame_.op(other) == frame_.op(factor) && copies(other)) Take(other);
      }
    }
    for (const int before : Upstream(frame_, factor, copies, 8)) Take(before);
  }

  bool LeadsFromHeads(int node) const {
    const auto copies = [this](int before) {
      return IsElementwise(frame_, before) ||
             frame_.op_class(before) == OpClass::kIndexing;
    };
    return FindUpstream(
               frame_, node, copies,
               [this](int before) { return IsProjection(frame_, before); },
               16) >= 0;
  }

  const Frame& frame_;
  const Regions& regions_;
  std::vector<int> taken_;
};

}  // namespace

bool TurnsHeads(const Frame& frame, int node) {
  return Joins(frame, node) &&
         (TurnedValue(frame, node) >= 0 || !MixedProducts(frame, node).empty());
}

std::vector<int> RotationAround(const Frame& frame, const Regions& regions,
                                int node) {
  return Collector(frame, regions).Around(node);
}

}  // namespace djinn::semantics
