// Finds attention: softmax(Q K^T) V in one call, or as products around a
// softmax. Includes scaling and masks, the projections that make Q, K and V,
// rotations between them, and the projection of the output.
//
// A piece of a program may hold only a part: projections whose products follow
// in the next piece, or only the output's projection. Unlike an MLP's, such
// projections have no activation beside them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "scheduler/semantics/patterns/attention_pieces.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/rotation.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

struct Core {
  int scores = -1;  // the products, or the fused call
  int softmax = -1;
  int values = -1;
};

class Finder {
 public:
  Finder(const Frame& frame, Regions* regions)
      : frame_(frame), regions_(regions), pieces_(frame, regions) {}

  void Find() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (!regions_->IsFree(i)) continue;
      if (frame_.op_class(i) == OpClass::kAttention) {
        AddRegion({i, -1, i});
      } else if (frame_.op_class(i) == OpClass::kSoftmax) {
        const Core core = CoreAround(i);
        if (core.scores >= 0 || core.values >= 0) AddRegion(core);
      }
    }
    AddLoneScores();
    pieces_.AddOutputs();
    pieces_.AddProjections();
    pieces_.AddLastProjections();
    AddLoneRotations();
    pieces_.AddDistances();
  }

 private:
  // Returns whether the node may stand between the products and their softmax:
  // it scales, masks or caps them.
  bool Bounds(int node) const {
    return pieces_.Passes(node) ||
           (regions_->IsFree(node) && IsSoftCap(frame_, node));
  }

  Core CoreAround(int softmax) const {
    const auto passes = [this](int node) { return pieces_.Passes(node); };
    const auto product = [this](int node) {
      return IsBatchedProduct(frame_, node);
    };
    const auto bounds = [&](int node) { return Bounds(node); };
    if (frame_.OutputSizes(softmax).size() < 3) return {};
    return {FindUpstream(frame_, softmax, bounds, product), softmax,
            FindDownstream(frame_, softmax, passes, product)};
  }

  void Take(int node, const char* role) {
    if (taken_.insert(node).second) region_.members.push_back({node, role});
  }

  void Begin(const char* trait) {
    region_ = {"attention", {}, {trait}, -1};
    taken_.clear();
    carries_.clear();
  }

  void AddRegion(const Core& core) {
    Begin(core.softmax < 0 ? "fused" : "explicit");
    if (core.softmax < 0) {
      Take(core.scores, "attention.fused");
      AddMaskConversion(core.scores, 3);
      for (size_t k = 0; k < 3; ++k) GrowUp(core.scores, k);
    } else {
      Take(core.softmax, "attention.softmax");
      AddExplicit(core);
    }
    AddTraits(core);
    if (core.values >= 0) GrowDown(core.values);
    regions_->Add(std::move(region_));
  }

  void AddExplicit(const Core& core) {
    // A piece may begin between the products and their softmax.
    if (core.scores < 0) {
      const int64_t scores = Elements(frame_.outputs(core.softmax)[0].view);
      for (const int node : Upstream(frame_, core.softmax, [&](int before) {
             return Bounds(before) && !frame_.outputs(before).empty() &&
                    Elements(frame_.outputs(before)[0].view) == scores;
           })) {
        Take(node, "attention.mask");
        TakeBound(node);
        AddMaskConversion(node, 1);
      }
    }
    // Takes the products, their scaling and their masks.
    if (core.scores >= 0) {
      Take(core.scores, "attention.scores");
      // The largest score may be subtracted from all scores.
      std::vector<int> between =
          Upstream(frame_, core.softmax, [this](int node) {
            return Bounds(node) ||
                   (regions_->IsFree(node) && frame_.op(node) == "amax");
          });
      std::sort(between.begin(), between.end());
      for (const int node : between) {
        const std::vector<int> producers = frame_.Producers(node);
        const bool behind = std::any_of(
            producers.begin(), producers.end(),
            [this](int producer) { return taken_.contains(producer); });
        if (!behind) continue;
        Take(node, "attention.mask");
        TakeBound(node);
        AddMaskConversion(node, 1);
        for (const int producer : producers) AddPositionBias(producer);
      }
      const int left = RowsOperand(frame_, core.scores);
      GrowUp(core.scores, left);
      GrowUp(core.scores, left + 1);
    }
    if (core.values < 0) return;
    Take(core.values, "attention.values");
    const int64_t elements = Elements(frame_.outputs(core.softmax)[0].view);
    const auto alike = [&](int node) {
      return node > core.softmax && regions_->IsFree(node) &&
             (IsElementwise(frame_, node) ||
              frame_.op_class(node) == OpClass::kFactory) &&
             Elements(frame_.outputs(node).empty()
                          ? nullptr
                          : frame_.outputs(node)[0].view) == elements;
    };
    for (const int node : Upstream(frame_, core.values, alike)) {
      Take(node, "attention.weights");
    }
    // The program may ask for the mean of the weights over all heads.
    for (const int node : frame_.Consumers(core.softmax)) {
      if (regions_->IsFree(node) && frame_.op(node) == "mean") {
        Take(node, "attention.weights");
      }
    }
    GrowUp(core.values, 1);
  }

  // Takes the constant with which the node bounds the scores.
  void TakeBound(int node) {
    if (frame_.op(node) != "maximum" && frame_.op(node) != "minimum") return;
    for (const int number : frame_.Producers(node)) {
      if (regions_->IsFree(number) &&
          frame_.op_class(number) == OpClass::kFactory &&
          frame_.OutputSizes(number).empty()) {
        Take(number, "attention.mask");
      }
    }
  }

  // Takes the conversion of a boolean mask to numbers.
  void AddMaskConversion(int node, size_t first) {
    for (size_t k = first; k < frame_.operands(node).size(); ++k) {
      int made = frame_.Producer(node, static_cast<int>(k));
      if (made >= 0 && frame_.op(made) == "clone" && regions_->IsFree(made)) {
        const int before = frame_.Producer(made, 0);
        if (before < 0 || frame_.op(before) == "where" ||
            pieces_.IsTableLookUp(before)) {
          Take(made, "attention.mask");
        }
        made = before;
      }
      if (made < 0) continue;
      AddPositionBias(made);
      if (frame_.op(made) != "where" || !regions_->IsFree(made)) continue;
      Take(made, "attention.mask");
      for (const int producer : frame_.Producers(made)) {
        if (regions_->IsFree(producer) &&
            frame_.op(producer) == "scalar_tensor") {
          Take(producer, "attention.mask");
        }
      }
    }
  }

  // Takes the bias that is added to the products by distance, from the
  // distances on. `node` computes it from rows of a table. Takes nothing when
  // there is no such table.
  void AddPositionBias(int node) {
    const auto leads = [this](int next) {
      return pieces_.Passes(next) && !taken_.contains(next);
    };
    if (taken_.contains(node)) return;
    std::vector<int> tables;
    const auto look_up = [&](int next) {
      if (pieces_.IsTableLookUp(next)) tables.push_back(next);
      return leads(next);
    };
    std::vector<int> path;
    if (look_up(node)) path = Upstream(frame_, node, look_up);
    path.push_back(node);
    for (const int table : tables) {
      const std::vector<int> behind = Downstream(frame_, table, leads);
      for (const int next : path) {
        if (absl::c_linear_search(behind, next)) Take(next, "attention.bias");
      }
      if (frame_.op(table) == "index" && regions_->IsFree(table)) {
        Take(table, "attention.bias");
      }
      for (const int next : Upstream(frame_, table, [this](int before) {
             return pieces_.MeasuresDistance(before);
           })) {
        Take(next, "attention.bias");
      }
    }
  }

  // Takes the nodes from a projection, or from heads that exist before the run,
  // to the node's k-th operand.
  void GrowUp(int node, size_t k) {
    const int producer = frame_.Producer(node, static_cast<int>(k));
    if (producer >= 0) Carries(producer, 0);
  }

  bool Carries(int node, int depth) {
    const auto [it, fresh] = carries_.try_emplace(node, false);
    if (!fresh || depth > 24) return it->second;
    bool carries = false;
    const bool free = regions_->IsFree(node);
    if (!free && regions_->pattern(node) != "kv_cache" &&
        regions_->pattern(node) != "norm") {
      // Another region may own a projection that makes queries, keys and values
      // at once.
      it->second = regions_->role(node) == "attention.projection";
      return it->second;
    }
    if (free && IsProjection(frame_, node)) {
      Take(node, "attention.projection");
      carries = true;
    } else if (!free || IsElementwise(frame_, node) || pieces_.IsNorm(node) ||
               TakesHeads(node)) {
      for (const int producer : frame_.Producers(node)) {
        carries |= Carries(producer, depth + 1);
      }
      const auto sizes = frame_.OutputSizes(node);
      carries |= free && sizes.size() == 4 && sizes[1] > 1 &&
                 frame_.Producers(node).size() < 2;
      carries |= free && RepeatsHeads(node);
      if (free && TurnsHeads(frame_, node)) {
        carries = true;
        for (const int turned : RotationAround(frame_, *regions_, node)) {
          Take(turned, "attention.heads");
        }
      }
      if (carries && free && !pieces_.IsNorm(node))
        Take(node, "attention.heads");
    }
    carries_[node] = carries;
    return carries;
  }

  // Returns whether the node picks some of the heads that one projection made.
  bool TakesHeads(int node) const {
    return frame_.op(node) == "index" && frame_.Sizes(node, 0).size() >= 4 &&
           IsOfHeads(node);
  }

  // Returns whether the node is the mean over a dimension of one element, such
  // as a pooling head's only query.
  bool IsMeanOfOne(int node) const {
    return frame_.op(node) == "mean" && !frame_.OutputSizes(node).empty() &&
           Elements(frame_.outputs(node)[0].view) ==
               Elements(frame_.operands(node)[0].view);
  }

  // Takes the projection of the output, with its dropout.
  void GrowDown(int node) {
    const auto moves = [this](int next) {
      return regions_->IsFree(next) &&
             (IsMeanOfOne(next) || (frame_.op_class(next) == OpClass::kLayout &&
                                    frame_.op(next) != "cat"));
    };
    for (const int moved : Downstream(frame_, node, moves, 6)) {
      Take(moved, "attention.heads");
    }
    const int out = FindDownstream(frame_, node, moves, [this](int next) {
      return regions_->IsFree(next) && IsProjection(frame_, next);
    });
    if (out < 0) return;
    Take(out, "attention.output");
    for (const int next : DropoutBehind(frame_, *regions_, out)) {
      Take(next, "attention.dropout");
    }
  }

  // Returns the value from which the heads were projected; -1 when the graph
  // does not show it.
  int Source(int node, int k) const {
    int producer = frame_.Producer(node, k);
    const auto passes = [this](int next) {
      return IsElementwise(frame_, next) || pieces_.IsNorm(next) ||
             TakesHeads(next) || regions_->pattern(next) == "kv_cache";
    };
    const auto projection = [this](int next) {
      return IsProjection(frame_, next);
    };
    if (producer >= 0 && !projection(producer)) {
      producer = FindUpstream(frame_, producer, passes, projection);
    }
    if (producer < 0) return -1;
    return ProjectedValue(frame_, producer);
  }

  void AddTraits(const Core& core) {
    const int product = core.scores;
    if (product < 0) return;
    const int left = RowsOperand(frame_, product);
    const auto query = frame_.Sizes(product, left);
    const auto key = frame_.Sizes(product, left + 1);
    if (query.size() < 3 || key.size() < 3) return;
    const int64_t queries = Queries(product, left);
    if (queries == 1 || AppendsOne(product, left + 1)) {
      region_.traits.push_back("one_query");
    }
    if (core.softmax < 0) AddFusedTraits(product);
    if (core.softmax >= 0) AddMaskTraits();
    if (IsGrouped(product, left + 1, query, key, core.softmax < 0)) {
      region_.traits.push_back("grouped_query");
    }
    const int maker = frame_.Producer(product, left + 1);
    const bool appended =
        maker >= 0 &&
        (regions_->pattern(maker) == "kv_cache" ||
         FindUpstream(
             frame_, maker, [this](int node) { return pieces_.Passes(node); },
             [this](int node) {
               return regions_->pattern(node) == "kv_cache";
             }) >= 0);
    const bool bound = frame_.IsBound(product, left + 1);
    // Bound keys that are no longer than the queries are no cache: the piece
    // begins between projections and products.
    const int64_t keys = core.softmax < 0 ? key[key.size() - 2] : key.back();
    const bool longer = keys != queries;
    if (appended || (bound && longer)) region_.traits.push_back("cached");
    const int from = Source(product, left), to = Source(product, left + 1);
    if ((from >= 0 && to >= 0 && from != to) ||
        (bound && longer && !appended && from >= 0)) {
      region_.traits.push_back("cross");
      region_.memory = to;
    }
  }

  // Returns the number of queries of one head. Heads that share keys may appear
  // as more queries.
  int64_t Queries(int product, int k) const {
    const Frame::Operand& operand = frame_.operands(product)[k];
    const auto& sizes = operand.view->sizes;
    const srg::TensorView* const made = frame_.value(operand.value).view;
    const bool bound = frame_.value(operand.value).producer < 0;
    if (!bound && made != nullptr && made->sizes.size() == 4 &&
        sizes.size() == 4 && made->sizes[3] == sizes[3]) {
      return std::min(made->sizes[2], sizes[2]);
    }
    const int64_t queries = sizes[sizes.size() - 2];
    // The next projection shows the number of queries: it takes as many rows
    // for each row of the batch.
    if (!bound || sizes.size() != 4) return queries;
    for (const int next : frame_.Consumers(product)) {
      const auto rows = frame_.Sizes(next, 0);
      if (frame_.op(next) == "linear" && rows.size() == 3 &&
          rows[0] == sizes[0]) {
        return std::min(queries, rows[1]);
      }
    }
    return queries;
  }

  // Returns whether the keys are a cache to which one token was appended.
  bool AppendsOne(int product, int k) const {
    const int maker = frame_.Producer(product, k);
    const int region = maker < 0 ? -1 : regions_->region_of(maker);
    return region >= 0 && regions_->all()[region].HasTrait("one_token");
  }

  void AddFusedTraits(int node) {
    // The arguments are (q, k, v, mask, p, causal); those of the CPU's operator
    // are (q, k, v, p, causal, mask).
    const int causal =
        frame_.op(node) == "scaled_dot_product_attention" ? 5 : 4;
    const srg::Argument* const argument = frame_.argument(node, causal);
    const bool* const said =
        argument == nullptr ? nullptr : std::get_if<bool>(argument);
    if (said != nullptr && *said) {
      region_.traits.push_back("causal");
      return;
    }
    if (frame_.operands(node).size() < 4) return;
    region_.traits.push_back("masked");
    AddCausalMask(frame_.Producer(node, 3));
  }

  void AddMaskTraits() {
    for (const Member& member : region_.members) {
      if (member.role != "attention.mask") continue;
      for (const int producer : frame_.Producers(member.node)) {
        if (!taken_.contains(producer)) AddCausalMask(producer);
      }
    }
  }

  // Adds the trait "causal" if the mask compares positions.
  void AddCausalMask(int mask) {
    if (mask < 0 || region_.HasTrait("causal")) return;
    const auto through = [this](int node) {
      const OpClass op_class = frame_.op_class(node);
      return IsElementwise(frame_, node) || op_class == OpClass::kIndexing ||
             op_class == OpClass::kFactory;
    };
    const auto compares = [this](int node) { return pieces_.Compares(node); };
    if (compares(mask) || FindUpstream(frame_, mask, through, compares) >= 0) {
      region_.traits.push_back("causal");
    }
  }

  bool IsGrouped(int product, int k, absl::Span<const int64_t> query,
                 absl::Span<const int64_t> key, bool fused) const {
    if (fused && query.size() == 4 && key.size() == 4) {
      if (query[1] != key[1]) return true;
    }
    // Repeated heads read one place several times.
    const auto passes = [this](int node) {
      return frame_.op_class(node) == OpClass::kLayout;
    };
    int maker = frame_.Producer(product, k);
    std::vector<int> makers;
    if (maker >= 0) {
      makers = Upstream(frame_, maker, passes, 4);
      makers.push_back(maker);
    }
    return absl::c_any_of(makers,
                          [this](int node) { return RepeatsHeads(node); });
  }

  // Returns whether the node copies each head of keys or values for several
  // heads of queries.
  bool RepeatsHeads(int node) const {
    if (frame_.op(node) != "clone" || frame_.Sizes(node, 0).size() != 5) {
      return false;
    }
    return frame_.operands(node)[0].view->strides[2] == 0 &&
           frame_.Sizes(node, 0)[2] > 1;
  }

  // Adds products with which a piece ends: products of heads where each side
  // was projected.
  void AddLoneScores() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (!regions_->IsFree(i) || !IsBatchedProduct(frame_, i) ||
          frame_.operands(i).size() != 2 || Source(i, 0) < 0 ||
          Source(i, 1) < 0) {
        continue;
      }
      // Only bounds may follow it in the same piece.
      const int64_t scores = Elements(frame_.outputs(i)[0].view);
      bool others = false;
      const std::vector<int> behind = Downstream(frame_, i, [&](int next) {
        const bool bounds = Bounds(next) && !frame_.outputs(next).empty() &&
                            Elements(frame_.outputs(next)[0].view) == scores;
        others |= !bounds;
        return bounds;
      });
      if (others) continue;
      Begin("explicit");
      Take(i, "attention.scores");
      for (const int next : behind) {
        Take(next, "attention.mask");
        TakeBound(next);
      }
      GrowUp(i, 0);
      GrowUp(i, 1);
      TakeOtherProjections();
      AddTraits({i, i, -1});
      regions_->Add(std::move(region_));
    }
  }

  // Takes the projection of the values, which has the same input as that of the
  // keys; its product follows later.
  void TakeOtherProjections() {
    for (const Member& member : std::vector<Member>(region_.members)) {
      if (member.role != "attention.projection") continue;
      const int value = ProjectedValue(frame_, member.node);
      for (const int other : ProjectionsOf(frame_, value)) {
        if (regions_->IsFree(other) && !pieces_.HasActivation(other)) {
          Take(other, "attention.projection");
        }
      }
    }
  }

  // Adds rotated heads, up to the projection that made them, with the other
  // heads that it made. Their products are in the next piece.
  void AddLoneRotations() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (!regions_->IsFree(i) || !TurnsHeads(frame_, i)) continue;
      Begin("piece");
      Carries(i, 0);
      for (const int next : Downstream(frame_, i, [this](int other) {
             return pieces_.Passes(other) && IsOfHeads(other);
           })) {
        Carries(next, 0);
      }
      for (const Member& member : std::vector<Member>(region_.members)) {
        if (member.role == "attention.projection") TakeHeadsOf(member.node);
      }
      regions_->Add(std::move(region_));
    }
  }

  void TakeHeadsOf(int projection) {
    const std::vector<int> behind =
        Downstream(frame_, projection, [this](int node) {
          return pieces_.Passes(node) ||
                 (regions_->IsFree(node) && TakesHeads(node));
        });
    for (const int node : behind) {
      if (IsOfHeads(node)) Take(node, "attention.heads");
    }
  }

  bool IsOfHeads(int node) const {
    return frame_.OutputSizes(node).size() == 4 &&
           IsFloating(frame_.outputs(node)[0].view->data_type);
  }

  const Frame& frame_;
  Regions* const regions_;
  AttentionPieces pieces_;
  // The region that is being built.
  Region region_;
  absl::flat_hash_set<int> taken_;
  absl::flat_hash_map<int, bool> carries_;
};

class Attention : public Pattern {
 public:
  absl::string_view name() const override { return "attention"; }
  void Match(const Frame& frame, Regions* regions) const override {
    Finder(frame, regions).Find();
  }
};

}  // namespace

const Pattern& AttentionPattern() {
  static const Attention pattern;
  return pattern;
}

}  // namespace djinn::semantics
