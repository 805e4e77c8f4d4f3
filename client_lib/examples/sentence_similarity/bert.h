// A BERT encoder, written as PyTorch users write their models.
//
// Nothing in it knows where it runs: moved to "remote_accelerator:0", the same
// code runs on the remote device.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_BERT_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_BERT_H_

#include <memory>

#include "ATen/core/Tensor.h"
#include "client_lib/examples/sentence_similarity/model_config.h"
#include "torch/nn/module.h"

namespace djinn::examples {

class BertEmbeddings;
class BertEncoder;

// Parameters and buffers are named as Hugging Face's BertModel names them, so
// that weight files fit by name. They start out undefined in value: fill them
// with LoadWeights().
//
// Inference only: no dropout. forward() may be called from several threads.
class BertModel : public torch::nn::Module {
 public:
  // A sentence goes through the layers `passes` times.
  explicit BertModel(const BertConfig& config, int passes = 1);

  // Returns a vector for each token: [sentences, tokens, hidden_size].
  //
  // token_ids: int64 [sentences, tokens], below the vocabulary's size; at most
  //   BertConfig::max_positions tokens.
  // attention_mask: bool, of the same shape; false for padding, whose output
  //   means nothing. Each sentence has a token that is not padding.
  // Both are on the module's device. As usual in PyTorch, mistakes throw
  // c10::Error.
  at::Tensor forward(const at::Tensor& token_ids,
                     const at::Tensor& attention_mask);

 private:
  const int passes_;
  std::shared_ptr<BertEmbeddings> embeddings_;
  std::shared_ptr<BertEncoder> encoder_;
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_BERT_H_
