// Maps sentences to embeddings: a BERT encoder as a PyTorch user writes it.
//
// This code does not know about Djinn. With the device "remote_accelerator:0"
// it runs on a remote worker.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_ENCODER_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "client_lib/examples/sentence_similarity/tokenizer.h"

namespace djinn::examples {

struct EncoderOptions {
  // Folder of a BERT model as sentence-transformers saves it.
  std::string model_folder;
  // The device that holds and runs the model.
  at::Device device = at::kCPU;
  // Longer sentences are cut off. 0 stands for the model's own limit.
  size_t max_tokens = 0;
  // The number of times that a sentence goes through the layers. With 2 passes,
  // a model of 6 layers becomes one of 12, whose embeddings mean something
  // else.
  int passes = 1;
  // Most sentences that run through the model at once.
  size_t max_batch_sentences = 32;
};

// Loads once, then answers any number of requests. Thread-safe.
class Encoder {
 public:
  // Returns NotFound for a missing file, InvalidArgument for a damaged or
  // unsupported model or an option out of range, and Unavailable if the device
  // refuses.
  static absl::StatusOr<std::unique_ptr<Encoder>> Load(EncoderOptions options);

  // Returns float [sentences, width()] on the CPU, in the order of `sentences`.
  // Each row has length 1. Returns Internal, with the device's message, if the
  // device fails.
  absl::StatusOr<at::Tensor> Encode(
      absl::Span<const std::string> sentences) const;

  // Returns the number of elements of an embedding.
  int64_t width() const { return width_; }

 private:
  // Weight and bias of a linear map or a normalization.
  struct Parameters {
    at::Tensor weight, bias;
  };
  struct Layer {
    Parameters query, key, value, attention, attention_norm;
    Parameters intermediate, output, output_norm;
  };

  Encoder(EncoderOptions options, WordPieceTokenizer tokenizer)
      : options_(std::move(options)), tokenizer_(std::move(tokenizer)) {}

  // Reads the weights. Throws what is wrong with the file.
  void ReadWeights(int64_t vocabulary_size);
  void MoveToDevice();
  at::Tensor Normalize(const at::Tensor& hidden, const Parameters& norm) const;
  // Returns `hidden` after the layer, where `mask` is true.
  at::Tensor RunLayer(const Layer& layer, const at::Tensor& hidden,
                      const at::Tensor& mask) const;
  // Returns the embeddings of the sentences with these token ids, on the
  // device.
  at::Tensor EncodeBatch(
      absl::Span<const std::vector<int64_t>* const> batch) const;

  EncoderOptions options_;
  WordPieceTokenizer tokenizer_;
  int64_t width_ = 0, intermediate_ = 0, heads_ = 0, positions_ = 0;
  double epsilon_ = 0;
  at::Tensor word_embeddings_, position_embeddings_, type_embeddings_;
  Parameters embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_ENCODER_H_
