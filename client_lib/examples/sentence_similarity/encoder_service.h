// Sentences in, embeddings out: the part of a service that holds the model.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_ENCODER_SERVICE_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_ENCODER_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "client_lib/examples/sentence_similarity/wordpiece.h"

namespace djinn::examples {

class BertModel;

struct EncoderOptions {
  // Folder of a sentence-transformers BERT model.
  std::string model_folder;

  // Where the model lives and runs.
  at::Device device = at::kCPU;

  // Longer sentences are cut off, in tokens. 0 stands for what the model was
  // tuned for; at most what it has positions for.
  size_t max_tokens = 0;

  // How often a sentence goes through the model's layers: 2 makes a model of 6
  // layers one of 12, of another meaning.
  int passes = 1;

  // Most sentences that run through the model at once.
  size_t max_batch_sentences = 32;
};

// Loads once, then answers any number of requests. The weights are moved to the
// device at Load() and stay there until the service dies.
//
// Thread-safe: Encode() may be called from several threads.
class EncoderService {
 public:
  // Errors name the file: NotFound, or InvalidArgument for one that is damaged
  // or asks for more than this example has. InvalidArgument for options out of
  // range; Unavailable, with the device's words, if it does not take the model.
  static absl::StatusOr<std::unique_ptr<EncoderService>> Load(
      const EncoderOptions& options);

  ~EncoderService();

  // Returns float [sentences, width()] on the CPU, each row of length 1, in the
  // order of `sentences`. Internal, with the device's words, if it fails.
  absl::StatusOr<at::Tensor> Encode(
      absl::Span<const std::string> sentences) const;

  const at::Device& device() const { return options_.device; }
  size_t max_tokens() const { return options_.max_tokens; }

  // Numbers in an embedding.
  int64_t width() const { return width_; }

 private:
  EncoderService(EncoderOptions options, int64_t width,
                 WordPieceTokenizer tokenizer,
                 std::shared_ptr<BertModel> model);

  // Runs the sentences with these token ids; the result stays on the device.
  at::Tensor EncodeBatch(
      absl::Span<const std::vector<int64_t>* const> batch) const;

  const EncoderOptions options_;
  const int64_t width_;
  const WordPieceTokenizer tokenizer_;
  const std::shared_ptr<BertModel> model_;
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_ENCODER_SERVICE_H_
