#include "scheduler/semantics/analysis/phases.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "scheduler/semantics/analysis/towers.h"
#include "scheduler/semantics/analysis/vision_decoding.h"
#include "scheduler/semantics/patterns/products.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

// Returns whether the node is a Linear module's product as autograd splits it,
// with a transposed weight.
bool IsSplitLinear(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  if ((op != "mm" && op != "addmm") || !IsProjection(frame, node)) return false;
  const srg::TensorView& weight =
      *frame.operands(node)[op == "addmm" ? 2 : 1].view;
  return weight.sizes[0] > 1 && weight.sizes[1] > 1 && weight.strides[0] == 1;
}

// Returns whether an unsplit composite reads a value that depends on the node,
// or computed one that the node depends on. In that case no gradient is
// recorded there, whatever the node looks like. Products are split also in
// inference where that decides their bits
// (client_lib/capture/registration/split_rule.h).
bool IsBesideWhole(const Frame& frame, int node) {
  const auto any = [](int) { return true; };
  const auto is_whole = [&](int other) { return IsKeptWhole(frame.op(other)); };
  return FindDownstream(frame, node, any, is_whole) >= 0 ||
         FindUpstream(frame, node, any, is_whole) >= 0;
}

// The evidence for one tower.
struct Evidence {
  bool decode = false;
  bool prefill = false;
  bool causal = false;
  bool attention = false;
  bool rotary = false;
  bool text = false;       // rows of a table looked up by tokens
  bool one_token = false;  // one per row
  bool pixels = false;
  bool sound = false;
  bool bag = false;
  bool recurrent = false;
  bool fusion = false;
  // Modality that an earlier analysis found.
  Modality known = Modality::kUnspecified;
  // Origins of other graphs: those that computed the values from before the
  // run, and those that read the tower's values.
  Origin before;
  Origin after;
};

class Finder {
 public:
  Finder(const Frame& frame, const Regions& regions,
         const std::vector<Modality>& sources, const Context* context,
         const Known* known)
      : frame_(frame),
        regions_(regions),
        sources_(sources),
        context_(context),
        known_(known),
        towers_(FindTowers(frame, regions)),
        origins_(frame.node_count()) {}

  std::vector<Origin> Find() {
    JudgeTowers();
    KeepKnown();
    // A later piece may join what first counted as an image's.
    MarkFusion();
    Spread();
    return origins_;
  }

  // Returns the origins without what neighbours and other graphs would add.
  std::vector<Origin> Shown() {
    JudgeTowers();
    return origins_;
  }

 private:
  void JudgeTowers() {
    if (IsTraining(frame_, regions_)) {
      for (Origin& origin : origins_) origin.phase = Phase::kTraining;
    }
    const int count =
        towers_.empty() ? 0
                        : 1 + *std::max_element(towers_.begin(), towers_.end());
    evidence_.resize(count);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (towers_[i] >= 0) AddEvidence(i, &evidence_[towers_[i]]);
    }
    judged_.resize(count);
    for (int i = 0; i < count; ++i) judged_[i] = Judge(evidence_[i]);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (towers_[i] >= 0) Set(i, judged_[towers_[i]]);
    }
    MarkDecoding();
    MarkFusion();
  }

  void Set(int node, Origin origin) {
    if (origins_[node].phase != Phase::kTraining) {
      origins_[node].phase = origin.phase;
    }
    origins_[node].modality = origin.modality;
  }

  void AddEvidence(int node, Evidence* evidence) const {
    const int index = regions_.region_of(node);
    if (index >= 0) AddRegionEvidence(regions_.all()[index], evidence);
    switch (frame_.op_class(node)) {
      case OpClass::kEmbedding: {
        if (frame_.op(node) != "embedding") {
          evidence->bag = true;
          break;
        }
        if (IsAddedToOther(node)) break;
        evidence->text = true;
        const auto rows = frame_.Sizes(node, 1);
        evidence->one_token |= rows.size() == 2 && rows[1] == 1 && MayBeStep();
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
    if (known_ != nullptr && evidence->known == Modality::kUnspecified) {
      evidence->known = known_->nodes[node].modality;
    }
    if (context_ == nullptr) return;
    for (const Frame::Operand& operand : frame_.operands(node)) {
      if (!frame_.IsFromElsewhere(operand)) continue;
      Inherit(operand.view, &Context::MadeBy, &evidence->before);
    }
    for (const Frame::Output& output : frame_.outputs(node)) {
      Inherit(output.view, &Context::ReadBy, &evidence->after);
    }
  }

  // Returns whether one token may be a decoding step. Directly after an
  // encoder, one token is the beginning of its decoder; that is only known when
  // the graph is analyzed for the first time.
  bool MayBeStep() const {
    return known_ == nullptr &&
           (context_ == nullptr || context_->last() != Phase::kForward);
  }

  // Returns whether the looked-up rows are positions or kinds that are added to
  // values other than text. Tokens that have attended to something else do not
  // count.
  bool IsAddedToOther(int look_up) const {
    const auto is_mixed = [this](int node) {
      return sources_[node] == Modality::kFusion;
    };
    for (const int sum : frame_.Consumers(look_up)) {
      if (frame_.op_class(sum) != OpClass::kPointwise) continue;
      if (sources_[sum] != Modality::kVision &&
          sources_[sum] != Modality::kAudio) {
        continue;
      }
      const std::vector<int> terms = frame_.Producers(sum);
      if (std::none_of(terms.begin(), terms.end(), is_mixed)) return true;
    }
    return false;
  }

  // Adopts what other graphs know about a value of that size.
  void Inherit(const srg::TensorView* view,
               std::optional<Origin> (Context::*ask)(Context::Key) const,
               Origin* origin) const {
    const std::optional<Context::Key> key = Context::KeyOf(view);
    if (!key.has_value()) return;
    const auto found = (context_->*ask)(*key);
    if (!found.has_value()) return;
    if (origin->phase == Phase::kUnspecified) origin->phase = found->phase;
    if (origin->modality == Modality::kUnspecified) {
      origin->modality = found->modality;
    }
  }

  static void AddRegionEvidence(const Region& region, Evidence* evidence) {
    if (region.pattern == "attention") {
      // Projections alone do not show whether a cache follows.
      evidence->attention |= !region.HasTrait("piece");
      evidence->causal |= region.HasTrait("causal");
      if (region.HasTrait("cached") && !region.HasTrait("cross")) {
        (region.HasTrait("one_query") ? evidence->decode : evidence->prefill) =
            true;
      }
    } else if (region.pattern == "kv_cache") {
      // One token with no earlier ones is the beginning.
      const bool first = region.HasTrait("empty");
      evidence->prefill |= first || !region.HasTrait("one_token");
      evidence->decode |= !first && region.HasTrait("one_token");
    } else if (region.pattern == "embedding") {
      evidence->rotary |= region.HasTrait("rotary");
    } else if (region.pattern == "fusion") {
      evidence->fusion |=
          region.HasTrait("sources") || region.HasTrait("comparison");
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
    // A cache of keys and values belongs to a language model, whatever it
    // attends to.
    if (seen.prefill || seen.decode) {
      origin.phase = seen.prefill ? Phase::kLlmPrefill : Phase::kLlmDecode;
      if (origin.modality == Modality::kUnspecified) {
        origin.modality = Modality::kText;
      }
      return origin;
    }
    for (const Modality other :
         {seen.known, seen.before.modality, seen.after.modality}) {
      if (origin.modality == Modality::kUnspecified) origin.modality = other;
    }
    if (origin.phase != Phase::kUnspecified) return origin;
    const bool llm = seen.before.phase == Phase::kLlmPrefill ||
                     seen.before.phase == Phase::kLlmDecode;
    const bool text = origin.modality == Modality::kText;
    if (llm) {
      origin.phase = seen.before.phase;
    } else if (seen.text && seen.one_token && !seen.recurrent) {
      origin.phase = Phase::kLlmDecode;
    } else if (seen.rotary && seen.text) {
      origin.phase = Phase::kLlmPrefill;
    } else if ((text && seen.attention) || seen.recurrent || seen.bag) {
      origin.phase = Phase::kForward;
    } else {
      origin.phase = Beside(seen.before.phase, origin.modality);
      if (origin.phase == Phase::kUnspecified) {
        origin.phase = Beside(seen.after.phase, origin.modality);
      }
    }
    return origin;
  }

  // Returns the phase of a node that shows nothing but its neighbour's phase.
  // Images are encoded without the text beside them, and the inputs of a fusion
  // were encoded before it.
  static Phase Beside(Phase phase, Modality modality) {
    const bool images =
        phase == Phase::kVisionEncoding || phase == Phase::kVisionDecoding;
    const bool fusion = phase == Phase::kMultimodalFusion;
    switch (modality) {
      case Modality::kText:
      case Modality::kAudio:
        if (images) return Phase::kUnspecified;
        return fusion ? Phase::kForward : phase;
      case Modality::kVision:
        return fusion ? Phase::kVisionEncoding : phase;
      default:
        return phase;
    }
  }

  void MarkDecoding() {
    const std::vector<bool> decodes =
        FindVisionDecoding(frame_, regions_, towers_);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (decodes[i]) Set(i, {Phase::kVisionDecoding, Modality::kVision});
    }
  }

  bool IsFused(int node) const {
    return regions_.pattern(node) == "fusion" &&
           !regions_.all()[regions_.region_of(node)].HasTrait("interaction");
  }

  void MarkFusion() {
    const auto is_fused = [this](int node) { return IsFused(node); };
    for (int i = 0; i < frame_.node_count(); ++i) {
      const std::vector<int> before = frame_.Producers(i),
                             behind = frame_.Consumers(i);
      // A norm may also stand within a projector.
      const bool within =
          !before.empty() && !behind.empty() &&
          std::all_of(before.begin(), before.end(), is_fused) &&
          std::all_of(behind.begin(), behind.end(), [this](int node) {
            return regions_.role(node) == "fusion.projection";
          });
      if (IsFused(i) || within) {
        Set(i, {Phase::kMultimodalFusion, Modality::kFusion});
      }
    }
    MarkPooled();
    MarkBehindProjections();
  }

  // Marks the nodes that normalize a projection's rows before they are joined.
  void MarkBehindProjections() {
    std::vector<bool> fused(frame_.node_count());
    for (int i = 0; i < frame_.node_count(); ++i) fused[i] = IsFused(i);
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (regions_.role(i) != "fusion.join") continue;
      std::vector<int> norms = Upstream(frame_, i, [this](int node) {
        return regions_.pattern(node) == "norm";
      });
      std::sort(norms.begin(), norms.end());
      for (const int node : norms) {
        const std::vector<int> before = frame_.Producers(node);
        if (std::any_of(before.begin(), before.end(),
                        [&](int made) { return fused[made]; })) {
          fused[node] = true;
          Set(node, {Phase::kMultimodalFusion, Modality::kFusion});
        }
      }
    }
  }

  // Marks the pooling with which a projector may begin, which leaves several
  // rows per image, and the nodes between it and the projections.
  void MarkPooled() {
    for (int i = 0; i < frame_.node_count(); ++i) {
      if (regions_.role(i) != "fusion.projection") continue;
      const std::vector<int> before = Upstream(frame_, i, [this](int node) {
        return regions_.pattern(node) == "norm" ||
               frame_.op_class(node) == OpClass::kPooling;
      });
      int pooling = frame_.node_count();
      for (const int node : before) {
        const auto sizes = frame_.OutputSizes(node);
        if (frame_.op_class(node) == OpClass::kPooling && sizes.size() == 4 &&
            sizes[2] > 1 && sizes[3] > 1) {
          pooling = std::min(pooling, node);
        }
      }
      for (const int node : before) {
        if (node >= pooling) {
          Set(node, {Phase::kMultimodalFusion, Modality::kFusion});
        }
      }
    }
  }

  // Restores what was known. Later graphs explain only what was unspecified.
  void KeepKnown() {
    if (known_ == nullptr) return;
    for (int i = 0; i < frame_.node_count(); ++i) {
      const Origin& known = known_->nodes[i];
      if (known.phase != Phase::kUnspecified) origins_[i].phase = known.phase;
      if (known.modality != Modality::kUnspecified) {
        origins_[i].modality = known.modality;
      }
    }
  }

  // Spreads origins to nodes that make no floating-point values and to towers
  // without evidence: first from their readers, then from what they read, and
  // last from the model that works step by step.
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
    const Origin only = OnlyOne();
    const bool one = dominant.phase == Phase::kUnspecified;
    if (one) dominant.phase = only.phase;
    for (int i = 0; i < frame_.node_count(); ++i) AdoptTokens(i);
    for (Origin& origin : origins_) {
      if (origin.phase == Phase::kUnspecified &&
          Beside(dominant.phase, origin.modality) == dominant.phase &&
          // The phase of sound or images says nothing about a text beside them.
          (!one || origin.modality == Modality::kUnspecified ||
           only.phase == Phase::kLlmPrefill ||
           only.phase == Phase::kLlmDecode ||
           IsShownOf(origin.modality, only.phase))) {
        origin.phase = dominant.phase;
      }
      if (origin.modality == Modality::kUnspecified) {
        origin.modality = only.modality;
      }
    }
  }

  void Adopt(int node, int from) {
    Origin& origin = origins_[node];
    if (origin.phase == Phase::kUnspecified) {
      Phase phase = origins_[from].phase;
      // A language model may continue behind the join.
      if (phase == Phase::kMultimodalFusion && towers_[from] >= 0) {
        phase = judged_[towers_[from]].phase;
      }
      origin.phase = Beside(phase, origin.modality);
    }
    if (origin.modality == Modality::kUnspecified) {
      origin.modality = origins_[from].modality;
    }
  }

  // Adopts the origin of a text's tokens for a mask of them, even if nothing
  // else reads the mask. If the graph also works on something else, other
  // graphs do not show the phase, because a decoder has masks of its encoder's
  // tokens.
  void AdoptTokens(int node) {
    if (towers_[node] >= 0 ||
        (origins_[node].modality != Modality::kText &&
         origins_[node].modality != Modality::kUnspecified) ||
        (origins_[node].phase != Phase::kUnspecified &&
         origins_[node].modality != Modality::kUnspecified)) {
      return;
    }
    const bool works = std::any_of(towers_.begin(), towers_.end(),
                                   [](int tower) { return tower >= 0; });
    for (const int producer : frame_.Producers(node)) {
      if (origins_[producer].modality == Modality::kUnspecified) continue;
      Adopt(node, producer);
      return;
    }
    for (const Frame::Operand& operand : frame_.operands(node)) {
      const srg::TensorView& mask = *operand.view;
      if (IsFloating(mask.data_type) || mask.sizes.size() != 2 ||
          mask.sizes[1] < 2 || frame_.value(operand.value).producer >= 0) {
        continue;
      }
      Origin found;
      for (int i = 0; i < frame_.node_count(); ++i) {
        if (IsTokenLookUp(frame_, i) &&
            frame_.operands(i)[1].view->sizes == mask.sizes &&
            origins_[i].modality == Modality::kText) {
          found = origins_[i];
        }
      }
      if (found.modality == Modality::kUnspecified && context_ != nullptr) {
        found = context_->TokensOf(mask.sizes).value_or(Origin());
        if (works) found.phase = Phase::kUnspecified;
      }
      if (found.modality == Modality::kUnspecified) continue;
      origins_[node].modality = found.modality;
      if (origins_[node].phase == Phase::kUnspecified) {
        origins_[node].phase = found.phase;
      }
      return;
    }
  }

  // Returns whether a node of that modality has that phase.
  bool IsShownOf(Modality modality, Phase phase) const {
    return std::any_of(
        origins_.begin(), origins_.end(), [&](const Origin& origin) {
          return origin.modality == modality && origin.phase == phase;
        });
  }

  // Returns the phase that a node suggests for its neighbours. Where rows are
  // scattered among tokens, a language model continues.
  Phase PhaseBeside(int node) const {
    if (!IsFused(node) ||
        !regions_.all()[regions_.region_of(node)].HasTrait("scatter")) {
      return origins_[node].phase;
    }
    const Phase phase =
        towers_[node] < 0 ? Phase::kUnspecified : judged_[towers_[node]].phase;
    const bool language_model =
        phase == Phase::kLlmPrefill || phase == Phase::kLlmDecode;
    return language_model ? phase : Phase::kUnspecified;
  }

  // Returns the phase and the modality on which all nodes that have one agree.
  Origin OnlyOne() const {
    Origin only;
    bool one_phase = true, one_modality = true;
    for (int i = 0; i < frame_.node_count(); ++i) {
      const Origin& origin = origins_[i];
      const Phase phase = PhaseBeside(i);
      if (phase != Phase::kUnspecified) {
        one_phase &= only.phase == Phase::kUnspecified || only.phase == phase;
        only.phase = phase;
      }
      if (origin.modality != Modality::kUnspecified) {
        one_modality &= only.modality == Modality::kUnspecified ||
                        only.modality == origin.modality;
        only.modality = origin.modality;
      }
    }
    if (!one_phase) only.phase = Phase::kUnspecified;
    if (!one_modality) only.modality = Modality::kUnspecified;
    return only;
  }

  const Frame& frame_;
  const Regions& regions_;
  const std::vector<Modality>& sources_;
  const Context* const context_;
  const Known* const known_;
  const std::vector<int> towers_;
  // By tower.
  std::vector<Evidence> evidence_;
  std::vector<Origin> judged_;
  // By node.
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
    if (IsForAutograd(frame.op(i))) return true;
    // A program may itself multiply by a transposed weight.
    if (IsSplitLinear(frame, i) && !IsBesideWhole(frame, i)) return true;
  }
  return false;
}

std::vector<Origin> FindPhases(const Frame& frame, const Regions& regions,
                               const std::vector<Modality>& sources,
                               const Context* context, const Known* known) {
  return Finder(frame, regions, sources, context, known).Find();
}

std::vector<Origin> ShownPhases(const Frame& frame, const Regions& regions,
                                const std::vector<Modality>& sources) {
  return Finder(frame, regions, sources, nullptr, nullptr).Shown();
}

}  // namespace djinn::semantics
