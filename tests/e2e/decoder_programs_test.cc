// A decoder of the shape of GPT-2 that generates text: a prefill, then one
// token per step, its cache of keys and values kept on the worker.
#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

namespace nn = torch::nn;
using torch::Tensor;
using torch::indexing::Slice;

constexpr int64_t kVocabulary = 97, kWidth = 64, kHeads = 4, kLayers = 3;
constexpr int64_t kContext = 64, kPrompt = 9, kNewTokens = 24;
constexpr int64_t kHeadWidth = kWidth / kHeads;

// Keys and values of one layer, [batch, heads, positions, head width].
struct Cache {
  Tensor keys, values;
};

// How a layer puts new keys and values with the old ones.
enum class CacheKind { kConcatenated, kSliced, kIndexed };

struct LayerImpl : nn::Module {
  LayerImpl()
      : norm(register_module("norm",
                             nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", nn::Linear(kWidth, 3 * kWidth))),
        out(register_module("out", nn::Linear(kWidth, kWidth))),
        mlp_norm(register_module(
            "mlp_norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        up(register_module("up", nn::Linear(kWidth, 4 * kWidth))),
        down(register_module("down", nn::Linear(4 * kWidth, kWidth))) {}

  Tensor forward(Tensor x, int64_t position, CacheKind kind, Cache* cache) {
    const int64_t batch = x.size(0), count = x.size(1);
    const std::vector<Tensor> parts = qkv(norm(x)).split(kWidth, -1);
    const auto heads = [&](const Tensor& t) {
      return t.view({batch, count, kHeads, kHeadWidth}).transpose(1, 2);
    };
    const Tensor query = heads(parts[0]);
    const Tensor keys = heads(parts[1]), values = heads(parts[2]);
    Tensor attended;
    if (kind == CacheKind::kConcatenated) {
      cache->keys = position == 0 ? keys : torch::cat({cache->keys, keys}, 2);
      cache->values =
          position == 0 ? values : torch::cat({cache->values, values}, 2);
      attended = torch::scaled_dot_product_attention(
          query, cache->keys, cache->values, {}, 0.0,
          /*is_causal=*/position == 0);
    } else {
      if (position == 0) {
        const auto options = x.options();
        const std::vector<int64_t> sizes = {batch, kHeads, kContext,
                                            kHeadWidth};
        cache->keys = torch::zeros(sizes, options);
        cache->values = torch::zeros(sizes, options);
      }
      const int64_t end = position + count;
      if (kind == CacheKind::kSliced) {
        cache->keys.slice(2, position, end).copy_(keys);
        cache->values.slice(2, position, end).copy_(values);
        attended = torch::scaled_dot_product_attention(
            query, cache->keys.slice(2, 0, end), cache->values.slice(2, 0, end),
            {}, 0.0, position == 0);
      } else {
        const Tensor at =
            torch::arange(position, end,
                          torch::TensorOptions(x.device()).dtype(torch::kLong));
        cache->keys.index_copy_(2, at, keys);
        cache->values.index_copy_(2, at, values);
        // The whole cache, with a mask for what is not there yet.
        const Tensor mask =
            torch::arange(kContext, at.options()).unsqueeze(0) <=
            at.unsqueeze(1);
        attended = torch::scaled_dot_product_attention(query, cache->keys,
                                                       cache->values, mask);
      }
    }
    x = x + out(attended.transpose(1, 2).reshape({batch, count, kWidth}));
    return x + down(torch::gelu(up(mlp_norm(x)), "tanh"));
  }

  nn::LayerNorm norm;
  nn::Linear qkv, out;
  nn::LayerNorm mlp_norm;
  nn::Linear up, down;
};
TORCH_MODULE(Layer);

struct DecoderImpl : nn::Module {
  DecoderImpl()
      : tokens(register_module("tokens", nn::Embedding(kVocabulary, kWidth))),
        positions(
            register_module("positions", nn::Embedding(kContext, kWidth))),
        last_norm(register_module(
            "last_norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))) {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), Layer()));
    }
  }

  // Scores of the token after the last.
  Tensor forward(const Tensor& ids, int64_t position, CacheKind kind,
                 std::vector<Cache>* caches) {
    const Tensor at =
        torch::arange(position, position + ids.size(1), ids.options());
    Tensor x = tokens(ids) + positions(at);
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x, position, kind, &(*caches)[i]);
    }
    return last_norm(x.select(1, -1)).matmul(tokens->weight.t());
  }

  nn::Embedding tokens, positions;
  nn::LayerNorm last_norm;
  std::vector<Layer> layers;
};
TORCH_MODULE(Decoder);

struct Generated {
  std::vector<int64_t> ids;
  std::vector<Tensor> scores;
  std::vector<Cache> caches;
};

Decoder MakeDecoder() {
  torch::manual_seed(5);
  Decoder decoder;
  decoder->eval();
  return decoder;
}

Generated Generate(Decoder& decoder, torch::Device device, CacheKind kind) {
  torch::InferenceMode inference;
  Generated generated;
  generated.caches.resize(kLayers);
  Tensor ids = torch::arange(3, 3 + kPrompt).unsqueeze(0).to(device);
  int64_t position = 0;
  for (int64_t step = 0; step < kNewTokens; ++step) {
    const Tensor scores = decoder(ids, position, kind, &generated.caches);
    position += ids.size(1);
    ids = scores.argmax(-1, /*keepdim=*/true);
    generated.scores.push_back(scores);
    generated.ids.push_back(ids.item<int64_t>());
  }
  return generated;
}

class DecoderProgramsTest : public ProgramTest {
 protected:
  static void ExpectSameText(CacheKind kind) {
    Decoder decoder = MakeDecoder();
    const Generated local = Generate(decoder, torch::kCPU, kind);
    decoder->to(Device(0));
    ASSERT_TRUE(Synchronize().ok());
    const Statistics before = GetStatistics();
    const Generated remote = Generate(decoder, Device(0), kind);
    const Statistics after = GetStatistics();
    EXPECT_EQ(remote.ids, local.ids);
    // The prompt goes up, one token per step comes down, and structures go up;
    // keys and values stay where they are.
    EXPECT_EQ(after.uploads_inline - before.uploads_inline, 1u);
    EXPECT_EQ(after.uploads_sent, before.uploads_sent);
    EXPECT_EQ(after.reads - before.reads, static_cast<uint64_t>(kNewTokens));
    EXPECT_LT(after.bytes_down - before.bytes_down, kNewTokens * 128u);
    EXPECT_EQ(after.synchronous_calls, before.synchronous_calls);
    for (size_t i = 0; i < local.scores.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectEqual(remote.scores[i], local.scores[i]);
    }
    for (size_t i = 0; i < local.caches.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectEqual(remote.caches[i].keys, local.caches[i].keys);
      ExpectEqual(remote.caches[i].values, local.caches[i].values);
    }
  }
};

TEST_F(DecoderProgramsTest, ConcatenatedCache) {
  ExpectSameText(CacheKind::kConcatenated);
}

TEST_F(DecoderProgramsTest, CacheWrittenBySlices) {
  ExpectSameText(CacheKind::kSliced);
}

TEST_F(DecoderProgramsTest, CacheWrittenByIndices) {
  ExpectSameText(CacheKind::kIndexed);
}

TEST_F(DecoderProgramsTest, BeamsAreReorderedOnTheWorker) {
  ExpectSame([](torch::Device device) {
    Decoder decoder = MakeDecoder();
    decoder->to(device);
    torch::InferenceMode inference;
    constexpr int64_t kBeams = 3;
    std::vector<Cache> caches(kLayers);
    Tensor ids = torch::arange(3, 3 + kPrompt)
                     .unsqueeze(0)
                     .expand({kBeams, kPrompt})
                     .to(device);
    Tensor totals = torch::zeros({kBeams, 1}, torch::TensorOptions(device));
    int64_t position = 0;
    for (int64_t step = 0; step < 8; ++step) {
      const Tensor scores = torch::log_softmax(
          decoder(ids, position, CacheKind::kConcatenated, &caches), -1);
      position += ids.size(1);
      const auto [best, at] = (scores + totals).flatten().topk(kBeams);
      totals = best.unsqueeze(1);
      const Tensor beams = at.div(kVocabulary, "floor");
      ids = at.remainder(kVocabulary).unsqueeze(1);
      for (Cache& cache : caches) {
        cache.keys = cache.keys.index_select(0, beams);
        cache.values = cache.values.index_select(0, beams);
      }
    }
    return std::vector<Tensor>{ids, totals, caches[0].keys, caches[2].values};
  });
}

// Half precision, grouped queries and rotated positions, as newer models have.
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
