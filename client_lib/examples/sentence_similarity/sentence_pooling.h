// Makes one vector per sentence out of one vector per token.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SENTENCE_POOLING_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SENTENCE_POOLING_H_

#include "ATen/core/Tensor.h"

namespace djinn::examples {

// Averages `token_vectors` [sentences, tokens, width] over the tokens for
// which `attention_mask` (bool [sentences, tokens]) is true, then scales each
// average to length 1, so that a dot product of two is the cosine of the angle
// between them. Returns [sentences, width], on the same device; throws
// c10::Error if the shapes do not fit.
at::Tensor PoolSentences(const at::Tensor& token_vectors,
                         const at::Tensor& attention_mask);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SENTENCE_POOLING_H_
