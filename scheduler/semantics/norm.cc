// Normalization: in one call, or as a root mean square: the mean of squares,
// the reciprocal of its root, a product with it and one with a weight. A piece
// may hold either half.
#include "scheduler/semantics/patterns.h"
#include "scheduler/semantics/walk.h"

namespace djinn::semantics {
namespace {

// One number for each row.
bool IsPerRow(const Frame& frame, int node) {
  const auto sizes = frame.OutputSizes(node);
  return !sizes.empty() && sizes.back() == 1;
}

class Norm : public Pattern {
 public:
  absl::string_view name() const override { return "norm"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op_class(i) == OpClass::kNormalization) {
        regions->Add({"norm", {{i, "norm.whole"}}, {}});
      } else if (frame.op(i) == "rsqrt" && IsPerRow(frame, i)) {
        Region region{"norm", {{i, "norm.scale"}}, {"root_mean_square"}};
        AddStatistics(frame, *regions, i, &region);
        AddProducts(frame, *regions, i, &region);
        regions->Add(std::move(region));
      }
    }
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op(i) == "mean" && IsPerRow(frame, i)) {
        // The rest is in the next piece.
        const int squares = frame.Producer(i, 0);
        if (squares < 0 || frame.op(squares) != "pow") continue;
        Region region{"norm", {{i, "norm.statistics"}}, {"piece"}};
        region.members.push_back({squares, "norm.statistics"});
        for (const int next : frame.Consumers(i)) {
          if (regions->IsFree(next) && frame.op(next) == "add") {
            region.members.push_back({next, "norm.statistics"});
          }
        }
        regions->Add(std::move(region));
      } else if (frame.op(i) == "pow" && frame.Consumers(i).empty()) {
        regions->Add({"norm", {{i, "norm.statistics"}}, {"piece"}});
      } else if (ScalesBoundRows(frame, i)) {
        // The statistics are in the piece before.
        Region region{"norm", {{i, "norm.products"}}, {"piece"}};
        AddWeight(frame, *regions, i, &region);
        regions->Add(std::move(region));
      }
    }
  }

 private:
  static void AddStatistics(const Frame& frame, const Regions& regions,
                            int node, Region* region) {
    const auto statistics = [&](int before) {
      if (!regions.IsFree(before)) return false;
      const absl::string_view op = frame.op(before);
      return (op == "add" && IsPerRow(frame, before)) || op == "mean" ||
             op == "pow" || op == "copy_" || op == "square" || op == "var";
    };
    for (const int before : Upstream(frame, node, statistics, 8)) {
      region->members.push_back({before, "norm.statistics"});
    }
  }

  static void AddProducts(const Frame& frame, const Regions& regions, int node,
                          Region* region) {
    for (const int product : frame.Consumers(node)) {
      if (!regions.IsFree(product) || frame.op(product) != "mul") continue;
      region->members.push_back({product, "norm.products"});
      AddWeight(frame, regions, product, region);
    }
  }

  // The product with the weight: one number for each column, there before.
  static void AddWeight(const Frame& frame, const Regions& regions, int node,
                        Region* region) {
    for (const int next : frame.Consumers(node)) {
      if (!regions.IsFree(next)) continue;
      if (frame.op(next) == "copy_") {
        region->members.push_back({next, "norm.products"});
        AddWeight(frame, regions, next, region);
      } else if (frame.op(next) == "mul" && HasWeight(frame, next)) {
        region->members.push_back({next, "norm.products"});
      }
    }
  }

  static bool HasWeight(const Frame& frame, int node) {
    for (int k = 0; k < 2; ++k) {
      if (frame.Sizes(node, k).size() == 1 && frame.Producer(node, k) < 0) {
        return true;
      }
    }
    return false;
  }

  static bool ScalesBoundRows(const Frame& frame, int node) {
    if (frame.op(node) != "mul" || frame.operands(node).size() != 2) {
      return false;
    }
    const auto left = frame.Sizes(node, 0), right = frame.Sizes(node, 1);
    if (left.size() != 3 || left.size() != right.size() || left.back() == 1 ||
        right.back() != 1 || !frame.IsBound(node, 1)) {
      return false;
    }
    for (const int next : frame.Consumers(node)) {
      if (frame.op(next) == "mul" && HasWeight(frame, next)) return true;
    }
    return false;
  }
};

}  // namespace

const Pattern& NormPattern() {
  static const Norm pattern;
  return pattern;
}

}  // namespace djinn::semantics
