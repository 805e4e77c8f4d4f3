#include "scheduler/semantics/patterns/patterns.h"

namespace djinn::semantics {

absl::Span<const Pattern* const> AllPatterns() {
  static const Pattern* const kAll[] = {
      &OptimizerPattern(),   &LossPattern(),        &BackwardPattern(),
      &KvCachePattern(),     &SpelledNormPattern(), &AttentionPattern(),
      &MoePattern(),         &RecurrentPattern(),   &EmbeddingPattern(),
      &ConvolutionPattern(), &NormPattern(),        &FusionPattern(),
      &MlpPattern(),
  };
  return kAll;
}

}  // namespace djinn::semantics
