#include "client_lib/examples/sentence_similarity/bert.h"

#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/normalization.h"

namespace djinn::examples {
namespace {

using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::LayerNormOptions;
using torch::nn::Linear;
using torch::nn::Module;

LayerNorm MakeLayerNorm(const BertConfig& config) {
  return LayerNorm(
      LayerNormOptions({config.hidden_size}).eps(config.layer_norm_epsilon));
}

// Lets each token look at the others.
class SelfAttention : public Module {
 public:
  explicit SelfAttention(const BertConfig& config)
      : heads_(config.attention_heads) {
    const int64_t size = config.hidden_size;
    query_ = register_module("query", Linear(size, size));
    key_ = register_module("key", Linear(size, size));
    value_ = register_module("value", Linear(size, size));
  }

  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask) {
    const at::Tensor mixed = at::scaled_dot_product_attention(
        ByHead(query_(hidden)), ByHead(key_(hidden)), ByHead(value_(hidden)),
        mask);
    return mixed.transpose(1, 2).flatten(/*start_dim=*/2);
  }

 private:
  // [sentences, tokens, heads * size] to [sentences, heads, tokens, size].
  at::Tensor ByHead(const at::Tensor& hidden) const {
    return hidden.unflatten(-1, {heads_, -1}).transpose(1, 2);
  }

  int64_t heads_;
  Linear query_ = nullptr;
  Linear key_ = nullptr;
  Linear value_ = nullptr;
};

// Projects the result of a part of a layer, adds what came into the part, and
// normalises the sum.
class ResidualOutput : public Module {
 public:
  ResidualOutput(const BertConfig& config, int64_t input_size) {
    dense_ = register_module("dense", Linear(input_size, config.hidden_size));
    norm_ = register_module("LayerNorm", MakeLayerNorm(config));
  }

  at::Tensor forward(const at::Tensor& result, const at::Tensor& came_in) {
    return norm_(dense_(result) + came_in);
  }

 private:
  Linear dense_ = nullptr;
  LayerNorm norm_ = nullptr;
};

class Attention : public Module {
 public:
  explicit Attention(const BertConfig& config) {
    self_ = register_module("self", std::make_shared<SelfAttention>(config));
    output_ = register_module(
        "output", std::make_shared<ResidualOutput>(config, config.hidden_size));
  }

  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask) {
    return output_->forward(self_->forward(hidden, mask), hidden);
  }

 private:
  std::shared_ptr<SelfAttention> self_;
  std::shared_ptr<ResidualOutput> output_;
};

// The wide middle of a layer's feed-forward part.
class Intermediate : public Module {
 public:
  explicit Intermediate(const BertConfig& config) {
    dense_ = register_module(
        "dense", Linear(config.hidden_size, config.intermediate_size));
  }

  at::Tensor forward(const at::Tensor& hidden) {
    return at::gelu(dense_(hidden));
  }

 private:
  Linear dense_ = nullptr;
};

class Layer : public Module {
 public:
  explicit Layer(const BertConfig& config) {
    attention_ =
        register_module("attention", std::make_shared<Attention>(config));
    intermediate_ =
        register_module("intermediate", std::make_shared<Intermediate>(config));
    output_ = register_module("output", std::make_shared<ResidualOutput>(
                                            config, config.intermediate_size));
  }

  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask) {
    const at::Tensor attended = attention_->forward(hidden, mask);
    return output_->forward(intermediate_->forward(attended), attended);
  }

 private:
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Intermediate> intermediate_;
  std::shared_ptr<ResidualOutput> output_;
};

// The numbered layers, one level down because the names say "layer.0".
class LayerList : public Module {
 public:
  explicit LayerList(const BertConfig& config) {
    for (int64_t i = 0; i < config.layers; ++i) {
      layers_.push_back(
          register_module(std::to_string(i), std::make_shared<Layer>(config)));
    }
  }

  at::Tensor forward(at::Tensor hidden, const at::Tensor& mask) {
    for (const auto& layer : layers_) hidden = layer->forward(hidden, mask);
    return hidden;
  }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

// Weight files carry it for models that classify pairs of sentences. Here it
// only holds its place: sentence embeddings come from the tokens' vectors.
class UnusedPooler : public Module {
 public:
  explicit UnusedPooler(const BertConfig& config) {
    register_module("dense", Linear(config.hidden_size, config.hidden_size));
  }
};

}  // namespace

// Where a sentence enters: a token's vector is the sum of one for its id, one
// for its place and one for its sentence in a pair (always the first here).
class BertEmbeddings : public Module {
 public:
  explicit BertEmbeddings(const BertConfig& config) {
    const int64_t size = config.hidden_size;
    words_ = register_module("word_embeddings",
                             Embedding(config.vocabulary_size, size));
    positions_ = register_module("position_embeddings",
                                 Embedding(config.max_positions, size));
    token_types_ = register_module("token_type_embeddings",
                                   Embedding(config.token_types, size));
    norm_ = register_module("LayerNorm", MakeLayerNorm(config));
    position_ids_ = register_buffer(
        "position_ids", at::arange(config.max_positions).unsqueeze(0));
  }

  at::Tensor forward(const at::Tensor& token_ids) {
    const at::Tensor places = position_ids_.slice(1, 0, token_ids.size(1));
    const at::Tensor first_type = token_types_->weight.select(0, 0);
    return norm_(words_(token_ids) + first_type + positions_(places));
  }

 private:
  Embedding words_ = nullptr;
  Embedding positions_ = nullptr;
  Embedding token_types_ = nullptr;
  LayerNorm norm_ = nullptr;
  at::Tensor position_ids_;
};

class BertEncoder : public Module {
 public:
  explicit BertEncoder(const BertConfig& config) {
    layers_ = register_module("layer", std::make_shared<LayerList>(config));
  }

  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask) {
    return layers_->forward(hidden, mask);
  }

 private:
  std::shared_ptr<LayerList> layers_;
};

BertModel::BertModel(const BertConfig& config, int passes) : passes_(passes) {
  embeddings_ =
      register_module("embeddings", std::make_shared<BertEmbeddings>(config));
  encoder_ = register_module("encoder", std::make_shared<BertEncoder>(config));
  register_module("pooler", std::make_shared<UnusedPooler>(config));
}

at::Tensor BertModel::forward(const at::Tensor& token_ids,
                              const at::Tensor& attention_mask) {
  // The same for every head and every token that looks.
  const at::Tensor mask = attention_mask.unsqueeze(1).unsqueeze(1);
  at::Tensor hidden = embeddings_->forward(token_ids);
  for (int pass = 0; pass < passes_; ++pass) {
    hidden = encoder_->forward(hidden, mask);
  }
  return hidden;
}

}  // namespace djinn::examples
