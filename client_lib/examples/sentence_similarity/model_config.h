// Reads what a model's folder says about the model, weights aside.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_MODEL_CONFIG_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace djinn::examples {

// The sizes of a BERT encoder.
struct BertConfig {
  int64_t vocabulary_size = 0;
  int64_t hidden_size = 0;  // Width of a token's vector.
  int64_t layers = 0;
  int64_t attention_heads = 0;    // Divides hidden_size.
  int64_t intermediate_size = 0;  // Width inside the feed-forward part.
  int64_t max_positions = 0;      // Longest sentence, in tokens.
  int64_t token_types = 0;
  double layer_norm_epsilon = 0;
};

// Reads a config.json as Hugging Face's transformers write it. InvalidArgument,
// with the field, if one is missing, has the wrong kind, is outside reasonable
// bounds (no model has a million layers, a damaged file might), or asks for
// something that bert.h does not compute.
absl::StatusOr<BertConfig> ParseBertConfig(absl::string_view json);

// What a sentence-transformers folder says in its several files.
struct SentenceModelConfig {
  BertConfig bert;
  int64_t max_tokens = 0;  // Longest sentence the model was tuned for.
};

// Reads config.json, sentence_bert_config.json, tokenizer_config.json and
// 1_Pooling/config.json in `folder`. NotFound if one is missing;
// InvalidArgument, with the file and the field, if the model needs more than
// this example has: only an uncased tokenizer and mean pooling.
absl::StatusOr<SentenceModelConfig> ReadSentenceModelConfig(
    const std::string& folder);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_MODEL_CONFIG_H_
