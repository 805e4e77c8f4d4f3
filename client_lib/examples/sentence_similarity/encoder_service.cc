#include "client_lib/examples/sentence_similarity/encoder_service.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <numeric>
#include <utility>

#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "c10/util/Exception.h"
#include "client_lib/examples/sentence_similarity/bert.h"
#include "client_lib/examples/sentence_similarity/load_weights.h"
#include "client_lib/examples/sentence_similarity/mapped_file.h"
#include "client_lib/examples/sentence_similarity/model_config.h"
#include "client_lib/examples/sentence_similarity/safetensors.h"
#include "client_lib/examples/sentence_similarity/sentence_pooling.h"

namespace djinn::examples {
namespace {

absl::StatusOr<WordPieceTokenizer> ReadTokenizer(const std::string& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<WordPieceTokenizer> tokenizer =
      WordPieceTokenizer::FromVocabulary(
          absl::string_view(reinterpret_cast<const char*>(file->bytes().data()),
                            file->bytes().size()));
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(path, ": ", tokenizer.status().message()));
  }
  return tokenizer;
}

// The text of an exception from PyTorch, without its stack.
std::string Words(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EncoderService>> EncoderService::Load(
    const EncoderOptions& wanted) {
  EncoderOptions options = wanted;
  const std::string& folder = options.model_folder;
  absl::StatusOr<SentenceModelConfig> config = ReadSentenceModelConfig(folder);
  if (!config.ok()) return config.status();
  if (options.max_tokens == 0) options.max_tokens = config->max_tokens;
  const size_t positions = static_cast<size_t>(config->bert.max_positions);
  if (options.max_tokens < 2 || options.max_tokens > positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens is ", options.max_tokens,
                     ", the model takes 2 to ", positions));
  }
  if (options.max_batch_sentences == 0) {
    return absl::InvalidArgumentError("max_batch_sentences is 0");
  }

  if (options.passes < 1) {
    return absl::InvalidArgumentError("passes is below 1");
  }

  absl::StatusOr<WordPieceTokenizer> tokenizer =
      ReadTokenizer(absl::StrCat(folder, "/vocab.txt"));
  if (!tokenizer.ok()) return tokenizer.status();
  if (tokenizer->vocabulary_size() > config->bert.vocabulary_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, "/vocab.txt has ", tokenizer->vocabulary_size(),
        " pieces, the model knows ", config->bert.vocabulary_size));
  }

  const std::string weights_path = absl::StrCat(folder, "/model.safetensors");
  absl::StatusOr<SafetensorsFile> weights = SafetensorsFile::Open(weights_path);
  if (!weights.ok()) return weights.status();
  try {
    auto model = std::make_shared<BertModel>(config->bert, options.passes);
    model->eval();
    if (absl::Status status = LoadWeights(*weights, *model); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(weights_path, ": ", status.message()));
    }
    model->to(options.device);
    return std::unique_ptr<EncoderService>(
        new EncoderService(std::move(options), config->bert.hidden_size,
                           *std::move(tokenizer), std::move(model)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("the model could not be set up on ", wanted.device.str(),
                     ": ", Words(error)));
  }
}

EncoderService::EncoderService(EncoderOptions options, int64_t width,
                               WordPieceTokenizer tokenizer,
                               std::shared_ptr<BertModel> model)
    : options_(std::move(options)),
      width_(width),
      tokenizer_(std::move(tokenizer)),
      model_(std::move(model)) {}

EncoderService::~EncoderService() = default;

absl::StatusOr<at::Tensor> EncoderService::Encode(
    absl::Span<const std::string> sentences) const {
  std::vector<std::vector<int64_t>> ids;
  for (const std::string& sentence : sentences) {
    ids.push_back(tokenizer_.Encode(sentence, options_.max_tokens));
  }
  // Sentences of like length go together, since a batch is as wide as its
  // longest sentence.
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
    // Read once, at the end: a remote device then works on one batch while the
    // next is being prepared.
    const at::Tensor sorted = at::cat(results).to(at::kCPU);
    embeddings.index_copy_(0, at::tensor(order), sorted);
    return embeddings;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(
        "encoding on ", options_.device.str(), " failed: ", Words(error)));
  }
}

at::Tensor EncoderService::EncodeBatch(
    absl::Span<const std::vector<int64_t>* const> batch) const {
  size_t longest = 0;
  for (const auto* ids : batch) longest = std::max(longest, ids->size());
  const int64_t rows = batch.size();
  const int64_t columns = longest;

  at::Tensor token_ids =
      at::full({rows, columns}, tokenizer_.padding_id(), at::kLong);
  at::Tensor mask = at::zeros({rows, columns}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<int64_t>& ids = *batch[row];
    std::copy(ids.begin(), ids.end(),
              token_ids.mutable_data_ptr<int64_t>() + row * columns);
    std::fill_n(mask.mutable_data_ptr<bool>() + row * columns, ids.size(),
                true);
  }
  token_ids = token_ids.to(options_.device);
  mask = mask.to(options_.device);
  return PoolSentences(model_->forward(token_ids, mask), mask);
}

}  // namespace djinn::examples
