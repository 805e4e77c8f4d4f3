// A decoder shaped like GPT-2 with random weights, for tests and benchmarks:
// pre-norm blocks of fused QKV projection, causal attention, and a GELU (tanh)
// feed-forward layer; the embedding is the output layer, too.
//
// Greedy and deterministic: the same seed and prompt give the same tokens on
// every device that computes the same numbers. Each token stays on the device
// and goes into the next step from there, so a caller that reads it waits for
// one round trip a token.
#ifndef TESTS_MODELS_DECODER_H_
#define TESTS_MODELS_DECODER_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"

namespace djinn {

struct DecoderShape {
  int64_t layers = 4;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t vocabulary = 8192;
  int64_t max_tokens = 1024;
};

// How keys and values of earlier tokens are kept.
enum class DecoderCache {
  // A new tensor for every token, by cat(): as most programs do it.
  kConcatenated,
  // Memory for max_tokens, written at the token's position.
  kPreallocated,
  // The same, written by index and attended to as a whole, with a mask for what
  // is not there yet.
  kIndexed,
};

class Decoder {
 public:
  // Weights are drawn on the CPU from `seed` and moved to `device`.
  Decoder(const DecoderShape& shape, uint64_t seed, at::Device device);

  const DecoderShape& shape() const { return shape_; }
  // What the weights take.
  int64_t weight_bytes() const;

  // Sequences of one length, side by side: their cache and how far they have
  // come.
  class Sequence {
   public:
    Sequence(const Decoder* decoder, DecoderCache cache, int64_t batch = 1);

    // Takes the tokens (int64, [batch, n], on the decoder's device) and returns
    // the scores of the next one ([batch, 1, vocabulary], on the device).
    at::Tensor Scores(const at::Tensor& tokens);
    // The one with the highest score ([batch, 1]).
    at::Tensor Next(const at::Tensor& tokens) {
      return Scores(tokens).argmax(-1);
    }
    // Goes on with these sequences (int64, [batch], on the device), as a beam
    // search does.
    void Select(const at::Tensor& sequences);

    int64_t position() const { return position_; }
    // By layer, [batch, heads, positions, width / heads].
    const std::vector<at::Tensor>& keys() const { return keys_; }
    const std::vector<at::Tensor>& values() const { return values_; }
    // What the keys and values of the tokens so far take, per sequence.
    int64_t cache_bytes() const;

   private:
    at::Tensor Attend(size_t layer, const at::Tensor& query,
                      const at::Tensor& key, const at::Tensor& value);

    const Decoder* const decoder_;
    const DecoderCache kind_;
    const int64_t batch_;
    int64_t position_ = 0;
    std::vector<at::Tensor> keys_, values_;
  };

 private:
  struct Layer {
    at::Tensor norm1, norm1_bias, qkv, qkv_bias, projection, projection_bias;
    at::Tensor norm2, norm2_bias, up, up_bias, down, down_bias;
  };

  const DecoderShape shape_;
  at::Tensor token_embedding_, position_embedding_, norm_, norm_bias_;
  std::vector<Layer> layers_;
};

}  // namespace djinn

#endif  // TESTS_MODELS_DECODER_H_
