#include "client_lib/examples/sentence_similarity/sentence_pooling.h"

#include <cmath>

#include "ATen/ops/allclose.h"
#include "ATen/ops/tensor.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

at::Tensor Mask(std::initializer_list<bool> values, int64_t sentences) {
  return at::tensor(std::vector<int64_t>(values.begin(), values.end()))
      .to(at::kBool)
      .reshape({sentences, -1});
}

TEST(PoolSentencesTest, AveragesTheTokensThatCount) {
  // Sentence one has tokens (3, 4) and (3, 4); sentence two (0, 2) and (2, 0).
  const at::Tensor tokens =
      at::tensor({3.0f, 4.0f, 3.0f, 4.0f, 99.0f, 99.0f,  //
                  0.0f, 2.0f, 2.0f, 0.0f, -7.0f, 5.0f})
          .reshape({2, 3, 2});
  const at::Tensor pooled =
      PoolSentences(tokens, Mask({true, true, false, true, true, false}, 2));
  const float half = std::sqrt(0.5f);
  EXPECT_TRUE(at::allclose(
      pooled, at::tensor({0.6f, 0.8f, half, half}).reshape({2, 2})));
}

TEST(PoolSentencesTest, NothingToAverageIsZeroNotNan) {
  const at::Tensor tokens = at::tensor({1.0f, 2.0f}).reshape({1, 1, 2});
  const at::Tensor pooled = PoolSentences(tokens, Mask({false}, 1));
  EXPECT_TRUE(pooled.equal(at::tensor({0.0f, 0.0f}).reshape({1, 2})));
}

}  // namespace
}  // namespace djinn::examples
