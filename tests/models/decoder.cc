#include "tests/models/decoder.h"

#include <utility>

#include "ATen/ATen.h"
#include "ATen/CPUGeneratorImpl.h"

namespace djinn {
namespace {

// The deviation of GPT-2's initialisation.
constexpr double kDeviation = 0.02;

}  // namespace

Decoder::Decoder(const DecoderShape& shape, uint64_t seed, at::Device device)
    : shape_(shape) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::kFloat).mul_(kDeviation).to(device);
  };
  const auto filled = [&](double value) {
    return at::full({shape.width}, value, at::kFloat).to(device);
  };
  const int64_t width = shape.width;
  token_embedding_ = draw({shape.vocabulary, width});
  position_embedding_ = draw({shape.max_tokens, width});
  for (int64_t i = 0; i < shape.layers; ++i) {
    layers_.push_back({.norm1 = filled(1),
                       .norm1_bias = filled(0),
                       .qkv = draw({3 * width, width}),
                       .qkv_bias = draw({3 * width}),
                       .projection = draw({width, width}),
                       .projection_bias = draw({width}),
                       .norm2 = filled(1),
                       .norm2_bias = filled(0),
                       .up = draw({4 * width, width}),
                       .up_bias = draw({4 * width}),
                       .down = draw({width, 4 * width}),
                       .down_bias = draw({width})});
  }
  norm_ = filled(1);
  norm_bias_ = filled(0);
}

int64_t Decoder::weight_bytes() const {
  const int64_t width = shape_.width;
  const int64_t layer = 12 * width * width + 13 * width;
  return static_cast<int64_t>(sizeof(float)) *
         (shape_.layers * layer +
          (shape_.vocabulary + shape_.max_tokens + 2) * width);
}

Decoder::Sequence::Sequence(const Decoder* decoder, DecoderCache cache,
                            int64_t batch)
    : decoder_(decoder), kind_(cache), batch_(batch) {
  const auto layers = static_cast<size_t>(decoder_->shape_.layers);
  keys_.resize(layers);
  values_.resize(layers);
  if (cache == DecoderCache::kConcatenated) return;
  const DecoderShape& shape = decoder_->shape_;
  const std::vector<int64_t> sizes = {batch, shape.heads, shape.max_tokens,
                                      shape.width / shape.heads};
  const at::TensorOptions options = decoder_->token_embedding_.options();
  for (size_t i = 0; i < layers; ++i) {
    keys_[i] = at::zeros(sizes, options);
    values_[i] = at::zeros(sizes, options);
  }
}

int64_t Decoder::Sequence::cache_bytes() const {
  return 2 * decoder_->shape_.layers * position_ * decoder_->shape_.width *
         static_cast<int64_t>(sizeof(float));
}

at::Tensor Decoder::Sequence::Attend(size_t layer, const at::Tensor& query,
                                     const at::Tensor& key,
                                     const at::Tensor& value) {
  at::Tensor& keys = keys_[layer];
  at::Tensor& values = values_[layer];
  const int64_t count = query.size(2);
  const int64_t end = position_ + count;
  at::Tensor all_keys, all_values;
  if (kind_ == DecoderCache::kIndexed) {
    const at::Tensor places =
        at::arange(position_, end, at::TensorOptions(keys.device()));
    keys.index_copy_(2, places, key);
    values.index_copy_(2, places, value);
    const at::Tensor there =
        at::arange(decoder_->shape_.max_tokens, places.options()) <=
        places.unsqueeze(1);
    return at::scaled_dot_product_attention(query, keys, values, there);
  }
  if (kind_ == DecoderCache::kPreallocated) {
    keys.slice(2, position_, end).copy_(key);
    values.slice(2, position_, end).copy_(value);
    all_keys = keys.slice(2, 0, end);
    all_values = values.slice(2, 0, end);
  } else {
    keys = keys.defined() ? at::cat({keys, key}, 2) : key;
    values = values.defined() ? at::cat({values, value}, 2) : value;
    all_keys = keys;
    all_values = values;
  }
  // Several tokens together are a prompt, which comes first.
  return at::scaled_dot_product_attention(query, all_keys, all_values, {},
                                          /*dropout_p=*/0.0,
                                          /*is_causal=*/count > 1);
}

void Decoder::Sequence::Select(const at::Tensor& sequences) {
  for (std::vector<at::Tensor>* cache : {&keys_, &values_}) {
    for (at::Tensor& layer : *cache) {
      layer = layer.index_select(0, sequences);
    }
  }
}

at::Tensor Decoder::Sequence::Scores(const at::Tensor& tokens) {
  const DecoderShape& shape = decoder_->shape_;
  const int64_t count = tokens.size(1);
  TORCH_CHECK(count == 1 || position_ == 0, "a prompt comes first");
  TORCH_CHECK(position_ + count <= shape.max_tokens, "at most ",
              shape.max_tokens, " tokens");
  const int64_t head = shape.width / shape.heads;
  at::Tensor x =
      at::embedding(decoder_->token_embedding_, tokens) +
      decoder_->position_embedding_.slice(0, position_, position_ + count);
  const auto norm = [&](const at::Tensor& weight, const at::Tensor& bias) {
    return at::layer_norm(x, {shape.width}, weight, bias);
  };
  for (size_t i = 0; i < decoder_->layers_.size(); ++i) {
    const Layer& layer = decoder_->layers_[i];
    const std::vector<at::Tensor> qkv =
        at::linear(norm(layer.norm1, layer.norm1_bias), layer.qkv,
                   layer.qkv_bias)
            .split(shape.width, 2);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({batch_, count, shape.heads, head}).transpose(1, 2);
    };
    const at::Tensor attended =
        Attend(i, heads(qkv[0]), heads(qkv[1]), heads(qkv[2]))
            .transpose(1, 2)
            .reshape({batch_, count, shape.width});
    x = x + at::linear(attended, layer.projection, layer.projection_bias);
    const at::Tensor inner =
        at::gelu(at::linear(norm(layer.norm2, layer.norm2_bias), layer.up,
                            layer.up_bias),
                 "tanh");
    x = x + at::linear(inner, layer.down, layer.down_bias);
  }
  position_ += count;
  x = x.slice(1, count - 1, count);
  return at::linear(norm(decoder_->norm_, decoder_->norm_bias_),
                    decoder_->token_embedding_);
}

}  // namespace djinn
