// Finds embeddings: rows of a table, patches of an image, and positions.
// Positions are added, or are rotary: the sine and the cosine of one angle.
#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether the node is a convolution whose windows do not overlap.
bool IsPatches(const Frame& frame, int node) {
  if (frame.op_class(node) != OpClass::kConvolution) return false;
  const auto weight = frame.Sizes(node, 1);
  const auto* const argument = frame.argument(node, 3);
  const auto* const strides = argument == nullptr
                                  ? nullptr
                                  : std::get_if<std::vector<int64_t>>(argument);
  // An image has few channels; features have more.
  if (weight.size() < 4 || weight[1] > 4 || strides == nullptr ||
      strides->empty()) {
    return false;
  }
  for (size_t k = 2; k < weight.size(); ++k) {
    const size_t at = std::min(k - 2, strides->size() - 1);
    if (weight[k] < 4 || (*strides)[at] != weight[k]) return false;
  }
  return true;
}

class Embedding : public Pattern {
 public:
  absl::string_view name() const override { return "embedding"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.operands(i).empty()) continue;
      if (frame.op(i) == "cos" || frame.op(i) == "sin") {
        AddRotary(frame, i, regions);
      } else if (IsPatches(frame, i)) {
        AddPatches(frame, i, regions);
      } else if (frame.op_class(i) == OpClass::kEmbedding) {
        AddLookUp(frame, i, regions);
      } else if (frame.op_class(i) == OpClass::kResampling) {
        AddResampled(frame, i, regions);
      }
    }
    for (int i = 0; i < frame.node_count(); ++i) {
      if (regions->IsFree(i)) AddTableRows(frame, i, regions);
      if (regions->IsFree(i) && JoinsLookUps(frame, *regions, i)) {
        regions->Add({"embedding", {{i, "embedding.sum"}}, {}});
      }
    }
    for (int i = 0; i < frame.node_count(); ++i) {
      const absl::string_view role = regions->role(i);
      if (role == "embedding.look_up" || role == "embedding.sum") {
        AddDropout(frame, i, regions);
      }
    }
  }

 private:
  // Returns whether the node puts rows of several tables side by side, or adds
  // them.
  static bool JoinsLookUps(const Frame& frame, const Regions& regions,
                           int node) {
    const absl::string_view op = frame.op(node);
    if (op != "cat" && op != "add" && op != "add_") return false;
    const auto operands = frame.operands(node);
    return operands.size() > 1 &&
           absl::c_all_of(operands, [&](const Frame::Operand& operand) {
             const int made = frame.value(operand.value).producer;
             if (made < 0) return false;
             const absl::string_view role = regions.role(made);
             return role == "embedding.look_up" || role == "embedding.sum" ||
                    role == "embedding.scale";
           });
  }

  // Adds the sum of look-ups with rows that were indexed from a table.
  static void AddTableRows(const Frame& frame, int node, Regions* regions) {
    if (frame.op(node) != "add" || frame.operands(node).size() != 2) return;
    for (int k = 0; k < 2; ++k) {
      const int rows = frame.Producer(node, k);
      const int others = frame.Producer(node, 1 - k);
      if (rows < 0 || others < 0 || !regions->IsFree(rows) ||
          !IsTableIndex(frame, rows) ||
          regions->pattern(others) != "embedding") {
        continue;
      }
      Region region{"embedding",
                    {{rows, "embedding.look_up"}, {node, "embedding.sum"}},
                    {}};
      AddRows(frame, *regions, rows, &region);
      regions->Add(std::move(region));
      return;
    }
  }

  // Adds the dropout behind the norm of an embedding's rows, before any reader
  // begins.
  static void AddDropout(const Frame& frame, int node, Regions* regions) {
    for (const int norm : frame.Consumers(node)) {
      if (frame.op_class(norm) != OpClass::kNormalization) continue;
      Region region{"embedding", {}, {}};
      for (const int next : DropoutBehind(frame, *regions, norm)) {
        region.members.push_back({next, "embedding.dropout"});
      }
      regions->Add(std::move(region));
    }
  }

  // Returns whether the node computes integers from integers, or from the
  // position of a fraction among others.
  static bool Counts(const Frame& frame, int node) {
    const OpClass op_class = frame.op_class(node);
    if (!IsElementwise(frame, node) && op_class != OpClass::kFactory &&
        frame.op(node) != "cumsum" && frame.op(node) != "gather" &&
        frame.op(node) != "bucketize") {
      return false;
    }
    const auto outputs = frame.outputs(node);
    return !outputs.empty() && outputs[0].view != nullptr &&
           !IsFloating(outputs[0].view->data_type) &&
           (frame.op(node) == "bucketize" ||
            absl::c_none_of(frame.operands(node),
                            [](const Frame::Operand& operand) {
                              return IsFloating(operand.view->data_type);
                            }));
  }

  // Adds the arithmetic that computes a look-up's indices from tokens, a mask
  // or positions. Excludes ranges of consecutive numbers, which masks may
  // share.
  static void AddRows(const Frame& frame, const Regions& regions, int node,
                      Region* region) {
    std::vector<int> before = Upstream(frame, node, [&](int other) {
      return regions.IsFree(other) && Counts(frame, other);
    });
    std::sort(before.begin(), before.end());
    absl::flat_hash_set<int> from_data;
    for (const int other : before) {
      for (const Frame::Operand& operand : frame.operands(other)) {
        const int made = frame.value(operand.value).producer;
        if (made >= 0 ? !from_data.contains(made)
                      : operand.written || operand.view->sizes.size() < 2) {
          continue;
        }
        if (from_data.insert(other).second) {
          region->members.push_back({other, "embedding.rows"});
        }
      }
    }
    for (const int other : before) {
      if (frame.op(other) == "bucketize")
        AddShares(frame, regions, node, region);
    }
  }

  // Adds positions that are computed from fractions of an image's sides. The
  // intermediate numbers, of any type, must serve only the look-up.
  static void AddShares(const Frame& frame, const Regions& regions, int node,
                        Region* region) {
    std::vector<int> before = Upstream(frame, node, [&](int other) {
      const OpClass op_class = frame.op_class(other);
      return regions.IsFree(other) &&
             (IsElementwise(frame, other) || op_class == OpClass::kFactory ||
              op_class == OpClass::kReduction ||
              frame.op(other) == "bucketize");
    });
    std::sort(before.rbegin(), before.rend());
    absl::flat_hash_set<int> taken = {node};
    for (const int other : before) {
      const std::vector<int> readers = frame.Consumers(other);
      const bool alone = absl::c_all_of(
          readers, [&](int reader) { return taken.contains(reader); });
      if (alone && taken.insert(other).second) {
        region->members.push_back({other, "embedding.rows"});
      }
    }
  }

  static void AddLookUp(const Frame& frame, int node, Regions* regions) {
    Region region{"embedding", {{node, "embedding.look_up"}}, {}};
    if (frame.op(node) != "embedding") {
      region.traits.push_back("bag");
      const auto bags = [&](int before) {
        return regions->IsFree(before) &&
               (frame.op_class(before) == OpClass::kFactory ||
                frame.op_class(before) == OpClass::kLayout);
      };
      for (const int before : Upstream(frame, node, bags, 8)) {
        region.members.push_back({before, "embedding.bags"});
      }
    } else {
      AddRows(frame, *regions, node, &region);
    }
    // Several look-ups may be added: tokens, positions, kinds.
    for (const int sum : frame.Consumers(node)) {
      if (regions->IsFree(sum) && IsScaling(frame, sum)) {
        region.members.push_back({sum, "embedding.scale"});
        continue;
      }
      if (!regions->IsFree(sum) ||
          (frame.op(sum) != "add" && frame.op(sum) != "add_")) {
        continue;
      }
      bool all = true;
      for (const int term : frame.Producers(sum)) {
        all &= frame.op_class(term) == OpClass::kEmbedding ||
               regions->pattern(term) == "embedding" || term == sum;
      }
      if (all) region.members.push_back({sum, "embedding.sum"});
    }
    regions->Add(std::move(region));
  }

  static void AddRotary(const Frame& frame, int node, Regions* regions) {
    // Both functions are applied to one value.
    const char* const other = frame.op(node) == "cos" ? "sin" : "cos";
    int pair = -1;
    for (const int reader :
         frame.value(frame.operands(node)[0].value).readers) {
      if (frame.op(reader) == other) pair = reader;
    }
    Region region{"embedding", {{node, "embedding.rotary"}}, {"rotary"}};
    if (pair >= 0) region.members.push_back({pair, "embedding.rotary"});
    const auto angle = [&](int before) {
      const auto outputs = frame.outputs(before);
      return regions->IsFree(before) && !outputs.empty() &&
             outputs[0].view != nullptr &&
             IsFloating(outputs[0].view->data_type) &&
             (IsElementwise(frame, before) || IsBatchedProduct(frame, before));
    };
    for (const int before : Upstream(frame, node, angle, 12)) {
      region.members.push_back({before, "embedding.rotary"});
    }
    for (const int half : {node, pair}) {
      if (half < 0) continue;
      // Takes the scaling and the cast.
      for (const int after : frame.Consumers(half)) {
        const bool scales =
            frame.op(after) == "mul" && frame.operands(after).size() == 1;
        if (regions->IsFree(after) && (scales || frame.op(after) == "copy_")) {
          region.members.push_back({after, "embedding.rotary"});
        }
      }
    }
    regions->Add(std::move(region));
  }

  // Adds the resampling of positions in a table, without the first one, viewed
  // as an image; or of the mask of an image's pixels, which is reduced to the
  // patches and counted.
  static void AddResampled(const Frame& frame, int node, Regions* regions) {
    if (frame.Sizes(node, 0).size() != 4) return;
    const srg::TensorView& in = *frame.operands(node)[0].view;
    if (frame.IsBound(node, 0) && in.sizes[0] == 1 && in.sizes[1] > 1 &&
        in.strides[1] == 1 && in.storage_offset > 0) {
      regions->Add({"embedding", {{node, "embedding.positions"}}, {}});
      return;
    }
    if (in.sizes[1] != 1) return;
    const auto counts = [&](int next) {
      const auto outputs = frame.outputs(next);
      return regions->IsFree(next) && !outputs.empty() &&
             outputs[0].view != nullptr &&
             !IsFloating(outputs[0].view->data_type) &&
             (IsElementwise(frame, next) ||
              frame.op_class(next) == OpClass::kReduction);
    };
    const std::vector<int> counted = Downstream(frame, node, counts, 16);
    if (counted.empty()) return;
    Region region{"embedding", {{node, "embedding.places"}}, {}};
    for (const int next : counted) {
      region.members.push_back({next, "embedding.places"});
    }
    regions->Add(std::move(region));
  }

  static void AddPatches(const Frame& frame, int node, Regions* regions) {
    Region region{"embedding", {{node, "embedding.patches"}}, {"patches"}};
    const auto moves = [&](int next) {
      if (!regions->IsFree(next)) return false;
      if (frame.op_class(next) == OpClass::kLayout) return true;
      if (frame.op(next) != "add" && frame.op(next) != "add_") return false;
      // The other operand must be a table of positions, or be looked up in one.
      bool positions = false;
      const auto operands = frame.operands(next);
      for (size_t k = 0; k < operands.size(); ++k) {
        const int made = frame.value(operands[k].value).producer;
        positions |= made < 0 || frame.op_class(made) == OpClass::kEmbedding ||
                     frame.op_class(made) == OpClass::kResampling;
      }
      return positions;
    };
    for (const int next : Downstream(frame, node, moves, 8)) {
      region.members.push_back({next, "embedding.positions"});
    }
    regions->Add(std::move(region));
  }
};

}  // namespace

const Pattern& EmbeddingPattern() {
  static const Embedding pattern;
  return pattern;
}

}  // namespace djinn::semantics
