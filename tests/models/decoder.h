// A decoder of GPT-2's shape with random weights, for tests and benchmarks. It
// has pre-norm blocks of a fused QKV projection, causal attention, and a GELU
// (tanh) feed-forward layer. The embedding is also the output layer.
//
// It is greedy and deterministic: the same seed and prompt give the same tokens
// on every device that computes the same numbers. Each token stays on the
// device for the next step, so a caller that reads it waits for one round trip
// per token.
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

// How the keys and values of earlier tokens are stored.
enum class DecoderCache {
  // A new tensor for every token, by cat(), as in most programs.
  kConcatenated,
  // Memory for max_tokens, written at the token's position.
  kPreallocated,
  // A cache of fixed size, which steps write by index and attention reads as a
  // whole. A mask excludes positions that are not written yet.
  kIndexed,
};

class Decoder {
 public:
  // Draws the weights on the CPU from `seed` and moves them to `device`.
  Decoder(const DecoderShape& shape, uint64_t seed, at::Device device);

  const DecoderShape& shape() const { return shape_; }
  // Returns the size of the weights.
  int64_t weight_bytes() const;

  // Several sequences of the same length: their cache and their position.
  class Sequence {
   public:
    Sequence(const Decoder* decoder, DecoderCache cache, int64_t batch = 1);

    // Appends the tokens (int64, [batch, n], on the decoder's device). Returns
    // the scores of the next token ([batch, 1, vocabulary], on the device).
    at::Tensor Scores(const at::Tensor& tokens);
    // Returns the token with the highest score ([batch, 1]).
    at::Tensor Next(const at::Tensor& tokens) {
      return Scores(tokens).argmax(-1);
    }
    // Continues with these sequences (int64, [batch], on the device), as a beam
    // search does.
    void Select(const at::Tensor& sequences);

    int64_t position() const { return position_; }
    // Return one tensor per layer: [batch, heads, positions, width / heads].
    const std::vector<at::Tensor>& keys() const { return keys_; }
    const std::vector<at::Tensor>& values() const { return values_; }
    // Returns the size of the keys and values of the tokens so far, per
    // sequence.
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
