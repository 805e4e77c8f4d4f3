#include "client_lib/examples/sentence_similarity/encoder.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_file.h"
#include "ATen/ops/full.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/linalg_vector_norm.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "c10/util/Exception.h"
#include "nlohmann/json.hpp"

namespace djinn::examples {
namespace {

using nlohmann::json;

// Returns the text of an exception from PyTorch, without its stack.
std::string Words(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  TORCH_CHECK(file.good(), "cannot read ", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

json ReadJson(const std::string& path) {
  try {
    return json::parse(ReadText(path));
  } catch (const json::exception& error) {
    TORCH_CHECK(false, path, ": ", error.what());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Encoder>> Encoder::Load(EncoderOptions options) {
  const std::string folder = options.model_folder;
  const std::string config_path = folder + "/config.json";
  if (!std::filesystem::exists(config_path)) {
    return absl::NotFoundError("there is no " + config_path);
  }
  std::unique_ptr<Encoder> encoder;
  try {
    const json config = ReadJson(config_path);
    TORCH_CHECK(
        config.at("model_type") == "bert" && config.at("hidden_act") == "gelu",
        config_path, ": only a BERT model with GELU is supported");
    TORCH_CHECK(ReadJson(folder + "/1_Pooling/config.json")
                    .at("pooling_mode_mean_tokens")
                    .get<bool>(),
                "only a model that averages its tokens is supported");
    const size_t positions = config.at("max_position_embeddings");
    if (options.max_tokens == 0) {
      options.max_tokens =
          ReadJson(folder + "/sentence_bert_config.json").at("max_seq_length");
    }
    TORCH_CHECK(options.max_tokens >= 2 && options.max_tokens <= positions,
                "max_tokens is ", options.max_tokens, ", the model takes 2 to ",
                positions);
    TORCH_CHECK(options.max_batch_sentences > 0, "max_batch_sentences is 0");
    TORCH_CHECK(options.passes > 0, "passes is below 1");
    auto tokenizer =
        WordPieceTokenizer::FromVocabulary(ReadText(folder + "/vocab.txt"));
    if (!tokenizer.ok()) return tokenizer.status();
    const int64_t vocabulary_size = config.at("vocab_size");
    TORCH_CHECK(tokenizer->vocabulary_size() <= vocabulary_size,
                "vocab.txt has more pieces than the model");
    encoder.reset(new Encoder(std::move(options), *std::move(tokenizer)));
    encoder->width_ = config.at("hidden_size");
    encoder->intermediate_ = config.at("intermediate_size");
    encoder->heads_ = config.at("num_attention_heads");
    encoder->positions_ = static_cast<int64_t>(positions);
    encoder->epsilon_ = config.at("layer_norm_eps");
    encoder->layers_.resize(config.at("num_hidden_layers").get<size_t>());
    encoder->ReadWeights(vocabulary_size);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model in ", folder, ": ", Words(error)));
  }
  try {
    encoder->MoveToDevice();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("the model could not be set up on ",
                     encoder->options_.device.str(), ": ", Words(error)));
  }
  return encoder;
}

void Encoder::ReadWeights(int64_t vocabulary_size) {
  // A safetensors file is the length of a JSON header in 8 bytes, the header,
  // and the tensors.
  const std::string path = options_.model_folder + "/model.safetensors";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  const at::Tensor file =
      at::from_file(path, /*shared=*/false, size, at::kByte);
  uint64_t header_size = 0;
  TORCH_CHECK(size >= 8, path, " is too short");
  std::memcpy(&header_size, file.const_data_ptr(), 8);
  TORCH_CHECK(header_size <= static_cast<uint64_t>(size) - 8, path,
              " is too short");
  const char* const text = static_cast<const char*>(file.const_data_ptr()) + 8;
  const json header = json::parse(text, text + header_size);
  const at::Tensor data = file.slice(0, 8 + static_cast<int64_t>(header_size));

  const auto take = [&](const std::string& name,
                        const std::vector<int64_t>& sizes) {
    TORCH_CHECK(header.contains(name), "model.safetensors lacks ", name);
    const json& entry = header.at(name);
    TORCH_CHECK(entry.at("dtype") == "F32" && entry.at("shape") == json(sizes),
                "model.safetensors has ", name, " as ", entry.dump());
    const std::vector<int64_t> range = entry.at("data_offsets");
    TORCH_CHECK(range.size() == 2 && 0 <= range[0] && range[0] <= range[1] &&
                    range[1] <= data.numel(),
                "model.safetensors is too short for ", name);
    // The clone is aligned as PyTorch's own tensors are.
    return data.slice(0, range[0], range[1])
        .clone()
        .view(at::kFloat)
        .view(sizes);
  };
  const auto pair = [&](const std::string& name, int64_t outputs,
                        int64_t inputs = 0) {
    std::vector<int64_t> sizes = {outputs};
    if (inputs > 0) sizes.push_back(inputs);
    return Parameters{take(name + ".weight", sizes),
                      take(name + ".bias", {outputs})};
  };
  const int64_t width = width_;
  TORCH_CHECK(heads_ > 0 && width % heads_ == 0, "hidden_size ", width,
              " cannot be shared out to ", heads_, " heads");
  const std::string embeddings = "embeddings.";
  word_embeddings_ =
      take(embeddings + "word_embeddings.weight", {vocabulary_size, width});
  position_embeddings_ =
      take(embeddings + "position_embeddings.weight", {positions_, width});
  // A sentence is never the second of a pair.
  type_embeddings_ =
      take(embeddings + "token_type_embeddings.weight", {2, width})
          .select(0, 0);
  embedding_norm_ = pair(embeddings + "LayerNorm", width);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::string layer = absl::StrCat("encoder.layer.", i, ".");
    layers_[i] = {
        pair(layer + "attention.self.query", width, width),
        pair(layer + "attention.self.key", width, width),
        pair(layer + "attention.self.value", width, width),
        pair(layer + "attention.output.dense", width, width),
        pair(layer + "attention.output.LayerNorm", width),
        pair(layer + "intermediate.dense", intermediate_, width),
        pair(layer + "output.dense", width, intermediate_),
        pair(layer + "output.LayerNorm", width),
    };
  }
}

void Encoder::MoveToDevice() {
  const auto move = [&](at::Tensor& tensor) {
    tensor = tensor.to(options_.device);
  };
  const auto move_both = [&](Parameters& parameters) {
    move(parameters.weight);
    move(parameters.bias);
  };
  for (at::Tensor* tensor :
       {&word_embeddings_, &position_embeddings_, &type_embeddings_}) {
    move(*tensor);
  }
  move_both(embedding_norm_);
  for (Layer& layer : layers_) {
    for (Parameters* parameters :
         {&layer.query, &layer.key, &layer.value, &layer.attention,
          &layer.attention_norm, &layer.intermediate, &layer.output,
          &layer.output_norm}) {
      move_both(*parameters);
    }
  }
}

at::Tensor Encoder::Normalize(const at::Tensor& hidden,
                              const Parameters& norm) const {
  return at::layer_norm(hidden, {width_}, norm.weight, norm.bias, epsilon_);
}

at::Tensor Encoder::RunLayer(const Layer& layer, const at::Tensor& hidden,
                             const at::Tensor& mask) const {
  // [sentences, tokens, heads * size] to [sentences, heads, tokens, size].
  const auto project = [&](const Parameters& projection) {
    return at::linear(hidden, projection.weight, projection.bias)
        .unflatten(-1, {heads_, -1})
        .transpose(1, 2);
  };
  const at::Tensor mixed =
      at::scaled_dot_product_attention(project(layer.query), project(layer.key),
                                       project(layer.value), mask)
          .transpose(1, 2)
          .flatten(/*start_dim=*/2);
  const at::Tensor attended = Normalize(
      at::linear(mixed, layer.attention.weight, layer.attention.bias) + hidden,
      layer.attention_norm);
  const at::Tensor wide = at::gelu(
      at::linear(attended, layer.intermediate.weight, layer.intermediate.bias));
  return Normalize(
      at::linear(wide, layer.output.weight, layer.output.bias) + attended,
      layer.output_norm);
}

absl::StatusOr<at::Tensor> Encoder::Encode(
    absl::Span<const std::string> sentences) const {
  std::vector<std::vector<int64_t>> ids;
  for (const std::string& sentence : sentences) {
    ids.push_back(tokenizer_.Encode(sentence, options_.max_tokens));
  }
  // Sentences of similar length share a batch, because a batch is as wide as
  // its longest sentence.
  std::vector<int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return ids[a].size() < ids[b].size();
  });
  try {
    const c10::InferenceMode inference_mode;
    std::vector<at::Tensor> results;
    for (size_t done = 0; done < order.size();) {
      std::vector<const std::vector<int64_t>*> batch;
      while (done < order.size() &&
             batch.size() < options_.max_batch_sentences) {
        batch.push_back(&ids[order[done++]]);
      }
      results.push_back(EncodeBatch(batch));
    }
    at::Tensor embeddings =
        at::empty({static_cast<int64_t>(ids.size()), width_});
    if (results.empty()) return embeddings;
    // All results are read at once, at the end: until then the device works on
    // one batch while the CPU prepares the next.
    const at::Tensor sorted = at::cat(results).to(at::kCPU);
    embeddings.index_copy_(0, at::tensor(order), sorted);
    return embeddings;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(
        "encoding on ", options_.device.str(), " failed: ", Words(error)));
  }
}

at::Tensor Encoder::EncodeBatch(
    absl::Span<const std::vector<int64_t>* const> batch) const {
  // The batch is sorted, so its last sentence is the longest.
  const auto rows = static_cast<int64_t>(batch.size());
  const auto columns = static_cast<int64_t>(batch.back()->size());
  at::Tensor token_ids =
      at::full({rows, columns}, tokenizer_.padding_id(), at::kLong);
  at::Tensor is_token = at::zeros({rows, columns}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<int64_t>& ids = *batch[row];
    std::copy(ids.begin(), ids.end(),
              token_ids.mutable_data_ptr<int64_t>() + row * columns);
    std::fill_n(is_token.mutable_data_ptr<bool>() + row * columns, ids.size(),
                true);
  }
  token_ids = token_ids.to(options_.device);
  is_token = is_token.to(options_.device);

  at::Tensor hidden =
      Normalize(at::embedding(word_embeddings_, token_ids) + type_embeddings_ +
                    position_embeddings_.slice(0, 0, columns),
                embedding_norm_);
  // The same for every head and for every token that looks at the others.
  const at::Tensor mask = is_token.unsqueeze(1).unsqueeze(1);
  for (int pass = 0; pass < options_.passes; ++pass) {
    for (const Layer& layer : layers_) hidden = RunLayer(layer, hidden, mask);
  }
  const at::Tensor weights = is_token.to(at::kFloat).unsqueeze(-1);
  const at::Tensor mean =
      (hidden * weights).sum(1) / weights.sum(1).clamp_min(1);
  // The bound keeps a vector of zeros from becoming one of NaN.
  const at::Tensor length =
      at::linalg_vector_norm(mean, /*ord=*/2, /*dim=*/{1}, /*keepdim=*/true);
  return mean / length.clamp_min(1e-12);
}

}  // namespace djinn::examples
