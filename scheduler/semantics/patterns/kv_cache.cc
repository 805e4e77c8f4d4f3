// Finds caches of keys and values: [batch, heads, tokens, head size], joined
// with the new tokens' by cat along the tokens, written at positions by
// index_copy_ or index_put_, or written as a slice by copy_.
#include "absl/strings/match.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns the dimension of tokens of a possible cache, counted from the front.
int TokenDimension(absl::Span<const int64_t> sizes) {
  return static_cast<int>(sizes.size()) - 2;
}

bool LooksLikeCache(const srg::TensorView* view) {
  return view != nullptr && IsFloating(view->data_type) &&
         (view->sizes.size() == 3 || view->sizes.size() == 4);
}

// Returns whether the node joins earlier and new values along the tokens.
bool IsCat(const Frame& frame, int node) {
  if (frame.op(node) != "cat") return false;
  const auto operands = frame.operands(node);
  const auto outputs = frame.outputs(node);
  if (operands.size() != 2 || outputs.empty() ||
      !LooksLikeCache(outputs[0].view) || outputs[0].view->sizes.size() != 4) {
    return false;
  }
  const int64_t dimension = IntegerArgument(frame, node, 1).value_or(0);
  const int64_t tokens = TokenDimension(outputs[0].view->sizes);
  if (dimension != tokens && dimension != tokens - 4) return false;
  // The cache exists before the run, or comes from the previous step in this
  // graph. The new values were computed.
  const int before = frame.Producer(node, 0);
  return frame.IsBound(node, 0) || before < 0 || frame.op(before) == "cat" ||
         frame.op_class(before) == OpClass::kFactory ||
         frame.op_class(before) == OpClass::kIndexing;
}

bool IsPositionWrite(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  if (op != "index_copy_" && op != "index_put_" && op != "_index_put_impl_") {
    return false;
  }
  const auto operands = frame.operands(node);
  return !operands.empty() && LooksLikeCache(operands[0].view) &&
         operands[0].view->sizes.size() == 4 &&
         !frame.IsParameter(operands[0].value);
}

// Returns whether the node copies into a part of a larger storage whose other
// tokens stay.
bool IsSliceWrite(const Frame& frame, int node) {
  if (frame.op(node) != "copy_") return false;
  const auto operands = frame.operands(node);
  if (operands.size() < 2 || !LooksLikeCache(operands[0].view) ||
      operands[0].view->sizes.size() != 4 || frame.outputs(node).empty()) {
    return false;
  }
  const Frame::Value& written = frame.value(frame.outputs(node)[0].value);
  for (const int reader : written.readers) {
    for (const Frame::Operand& operand : frame.operands(reader)) {
      const auto& whole = operand.view->sizes;
      const auto& part = operands[0].view->sizes;
      if (operand.view->slot == written.slot && whole.size() == 4 &&
          whole[2] > part[2] && whole[3] == part[3]) {
        return true;
      }
    }
  }
  return false;
}

class KvCache : public Pattern {
 public:
  absl::string_view name() const override { return "kv_cache"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      Region region{"kv_cache", {{i, "kv_cache.update"}}, {}};
      if (IsCat(frame, i)) {
        region.traits = {"cat"};
        if (Elements(frame.operands(i)[0].view) == 0) {
          region.traits.push_back("empty");
        }
      } else if (IsPositionWrite(frame, i)) {
        region.traits = {"index_copy"};
        AddPositions(frame, *regions, i, &region);
      } else if (IsSliceWrite(frame, i)) {
        region.traits = {"slice_write"};
      } else {
        continue;
      }
      if (HasOneToken(frame, i)) region.traits.push_back("one_token");
      regions->Add(std::move(region));
    }
  }

 private:
  static bool HasOneToken(const Frame& frame, int node) {
    const auto operands = frame.operands(node);
    const auto& fresh = operands.back().view->sizes;
    return fresh.size() == 4 && fresh[2] == 1;
  }

  // Adds the computation of the positions at which the node writes, and the
  // creation of the cache.
  static void AddPositions(const Frame& frame, const Regions& regions, int node,
                           Region* region) {
    const auto counts = [&](int other) {
      const auto outputs = frame.outputs(other);
      if (!regions.IsFree(other) || outputs.empty() ||
          outputs[0].view == nullptr) {
        return false;
      }
      const bool integers = !IsFloating(outputs[0].view->data_type);
      const bool small = outputs[0].view->sizes.size() <= 1;
      return (integers && small) ||
             (frame.op(other) == "zeros" && LooksLikeCache(outputs[0].view));
    };
    for (const int other : Upstream(frame, node, counts, 16)) {
      region->members.push_back({other, "kv_cache.position"});
      // The count of tokens is incremented beside it.
      for (const int sibling : frame.Consumers(other)) {
        if (frame.op(sibling) == "add_" && counts(sibling)) {
          region->members.push_back({sibling, "kv_cache.position"});
        }
      }
    }
    for (const Frame::Operand& operand : frame.operands(node)) {
      if (IsFloating(operand.view->data_type)) continue;
      const int producer = frame.value(operand.value).producer;
      if (producer < 0) continue;
      for (const Frame::Operand& counter : frame.operands(producer)) {
        for (const int reader : frame.value(counter.value).readers) {
          if (frame.op(reader) == "add_" && counts(reader)) {
            region->members.push_back({reader, "kv_cache.position"});
          }
        }
      }
    }
  }
};

}  // namespace

const Pattern& KvCachePattern() {
  static const KvCache pattern;
  return pattern;
}

}  // namespace djinn::semantics
