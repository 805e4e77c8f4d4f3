#include "scheduler/semantics/phases.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "scheduler/semantics/towers.h"
#include "scheduler/semantics/walk.h"

namespace djinn::semantics {
namespace {

using Origin = Context::Origin;

// A Linear module's product as autograd splits it: the weight is transposed.
bool IsSplitLinear(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  if ((op != "mm" && op != "addmm") || !IsProjection(frame, node)) return false;
  const srg::TensorView& weight = *frame.operands(node).back().view;
  return weight.sizes[0] > 1 && weight.sizes[1] > 1 && weight.strides[0] == 1;
}

// What is seen of one tower.
struct Evidence {
  bool decode = false;
  bool prefill = false;
  bool causal = false;
  bool attention = false;
  bool rotary = false;
  bool text = false;       // rows of a table looked up by tokens
  bool one_token = false;  // one a row
  bool pixels = false;
  bool sound = false;
  bool bag = false;
  bool recurrent = false;
  bool fusion = false;
  Origin before;  // of what was there before the structure
  int before_node = 0;
};

class Finder {
 public:
  Finder(const Frame& frame, const Regions& regions, const Context* context)
      : frame_(frame),
        regions_(regions),
        context_(context),
        towers_(FindTowers(frame, regions)),
        origins_(frame.node_count()) {}

  std::vector<Origin> Find() {
    if (IsTraining(frame_, regions_)) {
      for (Origin& origin : origins_) origin.phase = Phase::kTraining;
    }
    const int count =
        towers_.empty() ? 0
                        : 1 + *std::max_element(towers_.begin(), towers_.end());
    evidence_.resize(count);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (towers_[i] >= 0) Look(i, &evidence_[towers_[i]]);
    }
    std::vector<Origin> known(count);
    for (int i = 0; i < count; ++i) known[i] = Judge(evidence_[i]);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (towers_[i] >= 0) Set(i, known[towers_[i]]);
    }
    MarkDecoding();
    MarkFusion();
    Spread();
    return origins_;
  }

 private:
  void Set(int node, Origin origin) {
    if (origins_[node].phase != Phase::kTraining) {
      origins_[node].phase = origin.phase;
    }
    origins_[node].modality = origin.modality;
  }

  void Look(int node, Evidence* evidence) const {
    const int index = regions_.region_of(node);
    if (index >= 0) LookAtRegion(regions_.all()[index], node, evidence);
    switch (frame_.op_class(node)) {
      case OpClass::kEmbedding: {
        if (frame_.op(node) != "embedding") {
          evidence->bag = true;
          break;
        }
        evidence->text = true;
        const auto rows = frame_.Sizes(node, 1);
        evidence->one_token |= rows.size() == 2 && rows[1] == 1;
        break;
      }
      case OpClass::kConvolution:
        (frame_.Sizes(node, 0).size() == 3 ? evidence->sound
                                           : evidence->pixels) = true;
        break;
      case OpClass::kRecurrent:
        evidence->recurrent = true;
        break;
      default:
        break;
    }
    if (context_ == nullptr) return;
    for (const Frame::Operand& operand : frame_.operands(node)) {
      if (frame_.value(operand.value).producer >= 0 ||
          frame_.IsParameter(operand.value) ||
          !IsFloating(operand.view->data_type)) {
        continue;
      }
      const auto extent = srg::ExtentBytes(*operand.view);
      if (!extent.ok() || operand.view->sizes.size() < 2) continue;
      const auto origin = context_->Find(operand.view->data_type, *extent);
      if (!origin.has_value()) continue;
      if (evidence->before.phase == Phase::kUnspecified) {
        evidence->before.phase = origin->phase;
      }
      if (evidence->before.modality == Modality::kUnspecified) {
        evidence->before.modality = origin->modality;
      }
    }
  }

  static void LookAtRegion(const Region& region, int node, Evidence* evidence) {
    (void)node;
    if (region.pattern == "attention") {
      evidence->attention = true;
      evidence->causal |= region.HasTrait("causal");
      if (region.HasTrait("cached") && !region.HasTrait("cross")) {
        evidence->decode |= region.HasTrait("one_query");
        evidence->prefill |= !region.HasTrait("one_query");
      }
    } else if (region.pattern == "kv_cache") {
      // One token that nothing came before is the beginning.
      const bool first = region.HasTrait("empty");
      evidence->prefill |= first || !region.HasTrait("one_token");
      evidence->decode |= !first && region.HasTrait("one_token");
    } else if (region.pattern == "embedding") {
      evidence->rotary |= region.HasTrait("rotary");
    } else if (region.pattern == "fusion") {
      evidence->fusion |= !region.HasTrait("scatter");
    } else if (region.pattern == "recurrent") {
      evidence->recurrent = true;
    }
  }

  static Origin Judge(const Evidence& seen) {
    Origin origin;
    if (seen.fusion) {
      origin = {Phase::kMultimodalFusion, Modality::kFusion};
    } else if (seen.pixels) {
      origin = {Phase::kVisionEncoding, Modality::kVision};
    } else if (seen.sound) {
      origin = {Phase::kForward, Modality::kAudio};
    } else if (seen.text) {
      origin.modality = Modality::kText;
    }
    if (origin.modality == Modality::kUnspecified) {
      origin.modality = seen.before.modality;
    }
    // A cache of keys and values is a language model's, whatever it looks at.
    if (seen.prefill || seen.decode) {
      origin.phase = seen.prefill ? Phase::kLlmPrefill : Phase::kLlmDecode;
      if (origin.modality == Modality::kUnspecified) {
        origin.modality = Modality::kText;
      }
      return origin;
    }
    if (origin.phase != Phase::kUnspecified) return origin;
    if (seen.text && seen.one_token && !seen.recurrent) {
      origin.phase = Phase::kLlmDecode;
    } else if (seen.rotary && seen.text) {
      origin.phase = Phase::kLlmPrefill;
    } else if ((seen.text && seen.attention) || seen.recurrent || seen.bag) {
      origin.phase = Phase::kForward;
    } else {
      origin.phase = seen.before.phase;
    }
    return origin;
  }

  // From the first enlarged image on, and what leads to it.
  void MarkDecoding() {
    std::vector<bool> decodes(frame_.node_count(), false);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (!Enlarges(i)) continue;
      decodes[i] = true;
      const auto leads = [this](int node) { return LeadsToDecoding(node); };
      for (const int before : Upstream(frame_, i, leads, 32)) {
        decodes[before] = true;
      }
    }
    for (int i = 0; i < frame_.node_count(); ++i) {
      for (const int producer : frame_.Producers(i)) {
        decodes[i] = decodes[i] || (decodes[producer] && towers_[i] >= 0);
      }
      if (decodes[i]) Set(i, {Phase::kVisionDecoding, Modality::kVision});
    }
  }

  bool Enlarges(int node) const {
    if (regions_.pattern(node) == "embedding") return false;
    const auto in = frame_.Sizes(node, 0), out = frame_.OutputSizes(node);
    if (in.size() != 4 || out.size() != 4 || out[3] < in[3]) return false;
    if (frame_.op_class(node) == OpClass::kResampling) {
      return !frame_.IsBound(node, 0);
    }
    return frame_.op_class(node) == OpClass::kConvolution && out[3] > in[3];
  }

  bool LeadsToDecoding(int node) const {
    if (regions_.pattern(node) == "attention" ||
        regions_.pattern(node) == "embedding") {
      return false;
    }
    switch (frame_.op_class(node)) {
      case OpClass::kPointwise:
      case OpClass::kLayout:
      case OpClass::kActivation:
      case OpClass::kMatmul:
        return true;
      case OpClass::kNormalization:
        return frame_.op(node) != "layer_norm";
      case OpClass::kConvolution: {
        const auto in = frame_.Sizes(node, 0), out = frame_.OutputSizes(node);
        return in.size() == 4 && out.size() == 4 && in[3] == out[3] &&
               in[1] <= out[1];
      }
      default:
        return false;
    }
  }

  void MarkFusion() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (regions_.pattern(i) == "fusion" &&
          !regions_.all()[regions_.region_of(i)].HasTrait("interaction")) {
        Set(i, {Phase::kMultimodalFusion, Modality::kFusion});
      }
    }
  }

  // To what makes no floating-point values and to towers of which nothing was
  // seen: from who reads them, then from what they read, and at last from the
  // model that works step by step.
  void Spread() {
    for (int i = frame_.node_count() - 1; i >= 0; --i) {
      for (const int consumer : frame_.Consumers(i)) Adopt(i, consumer);
    }
    for (int i = 0; i < frame_.node_count(); ++i) {
      for (const int producer : frame_.Producers(i)) Adopt(i, producer);
    }
    Origin dominant;
    for (const Origin& origin : origins_) {
      if (origin.phase == Phase::kLlmDecode ||
          origin.phase == Phase::kLlmPrefill) {
        dominant = origin;
      }
    }
    if (dominant.phase == Phase::kUnspecified) dominant = OnlyOne();
    for (Origin& origin : origins_) {
      if (origin.phase == Phase::kUnspecified) origin.phase = dominant.phase;
    }
  }

  void Adopt(int node, int from) {
    Origin& origin = origins_[node];
    if (origin.phase == Phase::kUnspecified)
      origin.phase = origins_[from].phase;
    if (origin.modality == Modality::kUnspecified) {
      origin.modality = origins_[from].modality;
    }
  }

  // What all that have a phase agree on.
  Origin OnlyOne() const {
    Origin only;
    for (const Origin& origin : origins_) {
      if (origin.phase == Phase::kUnspecified) continue;
      if (only.phase != Phase::kUnspecified && only.phase != origin.phase) {
        return {};
      }
      only = origin;
    }
    return only;
  }

  const Frame& frame_;
  const Regions& regions_;
  const Context* const context_;
  const std::vector<int> towers_;
  std::vector<Evidence> evidence_;
  std::vector<Origin> origins_;
};

}  // namespace

bool IsTraining(const Frame& frame, const Regions& regions) {
  for (const Region& region : regions.all()) {
    if (region.pattern == "optimizer" || region.pattern == "backward" ||
        region.pattern == "loss") {
      return true;
    }
  }
  for (int i = 0; i < frame.node_count(); ++i) {
    if (IsForAutograd(frame.op(i)) || IsSplitLinear(frame, i)) return true;
  }
  return false;
}

std::vector<Context::Origin> FindPhases(const Frame& frame,
                                        const Regions& regions,
                                        const Context* context) {
  return Finder(frame, regions, context).Find();
}

}  // namespace djinn::semantics
