#include "client_lib/examples/sentence_similarity/bert.h"

#include <set>
#include <string>

#include "ATen/ops/allclose.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tensor.h"
#include "c10/core/InferenceMode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// That the numbers are right is shown with the real weights, in
// encoder_service_test.cc. Here: names, shapes and padding, on a small model.
namespace djinn::examples {
namespace {

using ::testing::IsSupersetOf;

constexpr BertConfig kSmall = {
    .vocabulary_size = 20,
    .hidden_size = 8,
    .layers = 2,
    .attention_heads = 2,
    .intermediate_size = 16,
    .max_positions = 10,
    .token_types = 2,
    .layer_norm_epsilon = 1e-12,
};

at::Tensor Ids(const std::vector<int64_t>& ids, int64_t sentences) {
  return at::tensor(ids).reshape({sentences, -1});
}

TEST(BertModelTest, NamesItsTensorsAsHuggingFaceDoes) {
  const BertModel model(kSmall);
  std::set<std::string> names;
  for (const auto& item : model.named_parameters()) names.insert(item.key());
  for (const auto& item : model.named_buffers()) names.insert(item.key());
  // 5 before the layers, a buffer, 16 per layer, 2 of the pooler.
  EXPECT_EQ(names.size(), 5 + 1 + 2 * 16 + 2);
  EXPECT_THAT(
      names,
      IsSupersetOf({"embeddings.word_embeddings.weight",
                    "embeddings.position_ids", "embeddings.LayerNorm.bias",
                    "encoder.layer.0.attention.self.query.weight",
                    "encoder.layer.1.attention.output.LayerNorm.weight",
                    "encoder.layer.1.intermediate.dense.bias",
                    "encoder.layer.1.output.dense.weight",
                    "pooler.dense.weight"}));
}

TEST(BertModelTest, GivesAVectorPerToken) {
  const c10::InferenceMode inference_mode;
  BertModel model(kSmall);
  const at::Tensor output =
      model.forward(Ids({1, 2, 3, 4, 5, 6}, 2), at::ones({2, 3}, at::kBool));
  EXPECT_EQ(output.sizes(), at::IntArrayRef({2, 3, 8}));
}

TEST(BertModelTest, PaddingDoesNotChangeTheOtherTokens) {
  const c10::InferenceMode inference_mode;
  BertModel model(kSmall);
  const at::Tensor alone =
      model.forward(Ids({1, 2, 3}, 1), at::ones({1, 3}, at::kBool));
  at::Tensor mask = at::ones({1, 5}, at::kBool);
  mask.slice(1, 3).fill_(false);
  const at::Tensor padded = model.forward(Ids({1, 2, 3, 9, 9}, 1), mask);
  EXPECT_TRUE(at::allclose(padded.slice(1, 0, 3), alone, 1e-5, 1e-6));
}

TEST(BertModelTest, PlaceOfATokenMatters) {
  const c10::InferenceMode inference_mode;
  BertModel model(kSmall);
  const at::Tensor mask = at::ones({1, 2}, at::kBool);
  const at::Tensor forwards = model.forward(Ids({1, 2}, 1), mask);
  const at::Tensor backwards = model.forward(Ids({2, 1}, 1), mask);
  EXPECT_FALSE(at::allclose(forwards, backwards.flip(1), 1e-3, 1e-3));
}

TEST(BertModelTest, MoreTokensThanPositionsThrows) {
  const c10::InferenceMode inference_mode;
  BertModel model(kSmall);
  const std::vector<int64_t> ids(11, 1);
  EXPECT_THROW(model.forward(Ids(ids, 1), at::ones({1, 11}, at::kBool)),
               c10::Error);
}

}  // namespace
}  // namespace djinn::examples
