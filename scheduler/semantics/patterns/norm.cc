// Finds normalization, in one call or in several: the mean of the squares of
// rows, with or without their own mean subtracted; the reciprocal of its root;
// the product with it; the product with a weight, to which one may be added;
// and a bias. A piece may hold either half.
#include <utility>

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether the output has one number per row.
bool IsPerRow(const Frame& frame, int node) {
  const auto sizes = frame.OutputSizes(node);
  return !sizes.empty() && sizes.back() == 1;
}

// Returns whether the node subtracts their mean from rows.
bool Centres(const Frame& frame, int node) {
  if (frame.op(node) != "sub") return false;
  const int mean = frame.Producer(node, 1);
  return mean >= 0 && frame.op(mean) == "mean" && IsPerRow(frame, mean);
}

bool HasWeight(const Frame& frame, int node) {
  return IsColumnWeight(frame, node, 0) || IsColumnWeight(frame, node, 1);
}

class Finder {
 public:
  Finder(const Frame& frame, Regions* regions)
      : frame_(frame), regions_(regions) {}

  void Find() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (!regions_->IsFree(i) || !IsPerRow(frame_, i)) continue;
      if (frame_.op(i) == "rsqrt" || frame_.op(i) == "sqrt") AddWhole(i);
    }
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (regions_->IsFree(i)) AddHalf(i);
    }
  }

 private:
  void Take(int node, const char* role) {
    if (regions_->IsFree(node)) region_.members.push_back({node, role});
  }

  // Adds the norm around the root of each row's statistic.
  void AddWhole(int root) {
    region_ = {"norm", {{root, "norm.scale"}}, {"root_mean_square"}};
    const bool mean = AddStatistics(root);
    if (frame_.op(root) == "sqrt" && !mean) return;
    for (const int product : frame_.Consumers(root)) {
      const bool divides = frame_.op(product) == "div" &&
                           frame_.Producer(product, 1) == root &&
                           frame_.op(root) == "sqrt";
      if (frame_.op(product) != "mul" && !divides) continue;
      Take(product, "norm.products");
      for (const int centred : frame_.Producers(product)) {
        if (Centres(frame_, centred)) Take(centred, "norm.products");
      }
      AddWeight(product);
    }
    regions_->Add(std::move(region_));
  }

  // Adds the half of a norm whose rest is in the previous or the next piece.
  void AddHalf(int node) {
    region_ = {"norm", {}, {"piece"}};
    if (frame_.op(node) == "mean" && IsPerRow(frame_, node)) {
      const int squares = frame_.Producer(node, 0);
      if (squares < 0 || frame_.op(squares) != "pow") return;
      Take(node, "norm.statistics");
      AddStatistics(node);
      for (const int next : frame_.Consumers(node)) {
        if (frame_.op(next) == "add") Take(next, "norm.statistics");
      }
    } else if ((frame_.op(node) == "pow" || Centres(frame_, node)) &&
               frame_.Consumers(node).empty()) {
      Take(node, "norm.statistics");
      AddStatistics(node);
    } else if (ScalesBoundRows(node)) {
      Take(node, "norm.products");
      AddWeight(node);
    } else {
      return;
    }
    regions_->Add(std::move(region_));
  }

  // Takes the statistics before the root; returns whether a mean is among them.
  bool AddStatistics(int node) {
    const auto statistics = [&](int before) {
      if (!regions_->IsFree(before)) return false;
      const absl::string_view op = frame_.op(before);
      return (op == "add" && IsPerRow(frame_, before)) || op == "mean" ||
             op == "pow" || op == "copy_" || op == "square" || op == "var" ||
             Centres(frame_, before);
    };
    bool mean = false;
    for (const int before : Upstream(frame_, node, statistics, 8)) {
      Take(before, "norm.statistics");
      const absl::string_view op = frame_.op(before);
      mean |= op == "mean" || op == "var";
      if (op != "mean") continue;
      // The program may subtract the mean a second time, for the rows that the
      // root scales.
      for (const int next : frame_.Consumers(before)) {
        if (Centres(frame_, next)) Take(next, "norm.statistics");
      }
    }
    return mean;
  }

  // Takes the product with the weight, and the sum with the bias.
  void AddWeight(int node) {
    for (const int next : frame_.Consumers(node)) {
      if (!regions_->IsFree(next)) continue;
      if (frame_.op(next) == "copy_") {
        Take(next, "norm.products");
        AddWeight(next);
      } else if (frame_.op(next) == "mul" && HasWeight(frame_, next)) {
        Take(next, "norm.products");
        for (const int raised : frame_.Producers(next)) {
          if (RaisesWeight(frame_, raised)) Take(raised, "norm.products");
        }
        for (const int biased : frame_.Consumers(next)) {
          if (frame_.op(biased) == "add" && HasWeight(frame_, biased)) {
            Take(biased, "norm.products");
          }
        }
      }
    }
  }

  bool ScalesBoundRows(int node) const {
    if (frame_.op(node) != "mul" || frame_.operands(node).size() != 2) {
      return false;
    }
    const auto left = frame_.Sizes(node, 0), right = frame_.Sizes(node, 1);
    if (left.size() < 3 || left.size() != right.size() || left.back() == 1 ||
        right.back() != 1 || !frame_.IsBound(node, 1)) {
      return false;
    }
    return absl::c_any_of(frame_.Consumers(node), [this](int next) {
      return frame_.op(next) == "mul" && HasWeight(frame_, next);
    });
  }

  const Frame& frame_;
  Regions* const regions_;
  Region region_;  // being built
};

class SpelledNorm : public Pattern {
 public:
  absl::string_view name() const override { return "spelled_norm"; }
  void Match(const Frame& frame, Regions* regions) const override {
    Finder(frame, regions).Find();
  }
};

class Norm : public Pattern {
 public:
  absl::string_view name() const override { return "norm"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i) || frame.op_class(i) != OpClass::kNormalization) {
        continue;
      }
      Region region{"norm", {{i, "norm.whole"}}, {}};
      for (const int raised : frame.Producers(i)) {
        if (RaisesWeight(frame, raised)) {
          region.members.push_back({raised, "norm.products"});
        }
      }
      regions->Add(std::move(region));
    }
  }
};

}  // namespace

const Pattern& SpelledNormPattern() {
  static const SpelledNorm pattern;
  return pattern;
}

const Pattern& NormPattern() {
  static const Norm pattern;
  return pattern;
}

}  // namespace djinn::semantics
