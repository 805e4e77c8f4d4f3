// Tests a decoder of GPT-2's shape that generates text: first a prefill, then
// one token per step. The cache of keys and values stays on the worker.
#include "tests/e2e/same_program.h"
#include "tests/models/decoder.h"

namespace djinn {
namespace {

using torch::Tensor;

constexpr DecoderShape kShape = {
    .layers = 3, .width = 64, .heads = 4, .vocabulary = 97, .max_tokens = 64};
constexpr uint64_t kSeed = 5;
constexpr int64_t kPrompt = 9, kNewTokens = 24;

struct Generated {
  std::vector<int64_t> ids;
  std::vector<Tensor> scores;
  std::vector<Tensor> keys, values;
};

Tensor Prompt(torch::Device device) {
  return torch::arange(3, 3 + kPrompt).unsqueeze(0).to(device);
}

Generated Generate(const Decoder& decoder, torch::Device device,
                   DecoderCache cache) {
  torch::InferenceMode inference;
  Decoder::Sequence sequence(&decoder, cache);
  Generated generated;
  Tensor ids = Prompt(device);
  for (int64_t step = 0; step < kNewTokens; ++step) {
    generated.scores.push_back(sequence.Scores(ids));
    ids = generated.scores.back().argmax(-1);
    generated.ids.push_back(ids.item<int64_t>());
  }
  generated.keys = sequence.keys();
  generated.values = sequence.values();
  return generated;
}

class DecoderProgramsTest : public ProgramTest {
 protected:
  static void ExpectSameText(DecoderCache cache) {
    const Decoder here(kShape, kSeed, torch::kCPU);
    const Decoder there(kShape, kSeed, Device(0));
    const Generated local = Generate(here, torch::kCPU, cache);
    ASSERT_TRUE(Synchronize().ok());
    const Statistics before = GetStatistics();
    const Generated remote = Generate(there, Device(0), cache);
    const Statistics after = GetStatistics();
    EXPECT_EQ(remote.ids, local.ids);
    // The client sends the prompt and graphs, and receives one token per step.
    // Keys, values and scores stay on the worker.
    EXPECT_EQ(after.uploads_inline - before.uploads_inline, 1u);
    EXPECT_EQ(after.uploads_sent, before.uploads_sent);
    EXPECT_EQ(after.reads - before.reads, static_cast<uint64_t>(kNewTokens));
    EXPECT_LT(after.bytes_down - before.bytes_down, kNewTokens * 256u);
    EXPECT_EQ(after.synchronous_calls, before.synchronous_calls);
    for (size_t i = 0; i < local.scores.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectEqual(remote.scores[i], local.scores[i]);
    }
    for (size_t i = 0; i < local.keys.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectEqual(remote.keys[i], local.keys[i]);
      ExpectEqual(remote.values[i], local.values[i]);
    }
  }
};

TEST_F(DecoderProgramsTest, ConcatenatedCache) {
  ExpectSameText(DecoderCache::kConcatenated);
}

TEST_F(DecoderProgramsTest, CacheWrittenBySlices) {
  ExpectSameText(DecoderCache::kPreallocated);
}

TEST_F(DecoderProgramsTest, CacheWrittenByIndices) {
  ExpectSameText(DecoderCache::kIndexed);
}

TEST_F(DecoderProgramsTest, BeamsAreReorderedOnTheWorker) {
  ExpectSame([](torch::Device device) {
    torch::InferenceMode inference;
    constexpr int64_t kBeams = 3;
    const Decoder decoder(kShape, kSeed, device);
    Decoder::Sequence beams(&decoder, DecoderCache::kConcatenated, kBeams);
    Tensor ids = Prompt(device).expand({kBeams, kPrompt});
    Tensor totals = torch::zeros({kBeams, 1}, torch::TensorOptions(device));
    for (int64_t step = 0; step < 8; ++step) {
      const Tensor scores =
          torch::log_softmax(beams.Scores(ids).squeeze(1), -1);
      const auto [best, at] = (scores + totals).flatten().topk(kBeams);
      totals = best.unsqueeze(1);
      beams.Select(at.div(kShape.vocabulary, "floor"));
      ids = at.remainder(kShape.vocabulary).unsqueeze(1);
    }
    return std::vector<Tensor>{ids, totals, beams.keys()[0], beams.values()[2]};
  });
}

// Newer models use half precision, grouped queries and rotated positions.
TEST_F(DecoderProgramsTest, GroupedQueriesWithRotatedPositions) {
  ExpectSame([](torch::Device device) {
    torch::InferenceMode inference;
    const auto bf16 = torch::kBFloat16;
    const Tensor x = torch::randn({2, 7, 32}).to(device).to(bf16);
    const Tensor wq = torch::randn({32, 32}).to(device).to(bf16);
    const Tensor wk = torch::randn({16, 32}).to(device).to(bf16);
    const Tensor gate = torch::randn({32}).to(device).to(bf16);
    const Tensor normed = torch::rms_norm(x, {32}, gate, 1e-6);
    const auto heads = [](const Tensor& t, int64_t count) {
      return t.view({2, 7, count, 8}).transpose(1, 2);
    };
    const Tensor angles = torch::outer(
        torch::arange(7, torch::TensorOptions(device)),
        torch::pow(
            10000.0,
            torch::arange(0, 8, 2, torch::TensorOptions(device)) / -8.0));
    const Tensor cos = torch::cat({angles, angles}, -1).cos().to(bf16);
    const Tensor sin = torch::cat({angles, angles}, -1).sin().to(bf16);
    const auto rotate = [&](const Tensor& t) {
      const Tensor turned =
          torch::cat({-t.slice(-1, 4, 8), t.slice(-1, 0, 4)}, -1);
      return t * cos + turned * sin;
    };
    const Tensor q = rotate(heads(torch::linear(normed, wq), 4));
    const Tensor k = rotate(heads(torch::linear(normed, wk), 2));
    const Tensor y = torch::scaled_dot_product_attention(
        q, k, k, {}, 0.0, true, std::nullopt, /*enable_gqa=*/true);
    return std::vector<Tensor>{q, k, y, torch::silu(y) * y};
  });
}

}  // namespace
}  // namespace djinn
