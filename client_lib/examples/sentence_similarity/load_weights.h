// Fills a torch::nn module with the tensors of a safetensors file.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_LOAD_WEIGHTS_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_LOAD_WEIGHTS_H_

#include "absl/status/status.h"
#include "client_lib/examples/sentence_similarity/safetensors.h"
#include "torch/nn/module.h"

namespace djinn::examples {

// Copies every tensor of `file` into the parameter or buffer of `module` that
// has the same full name ("encoder.layer.0.output.dense.weight").
//
// Both sides must agree wholly: InvalidArgument, naming the tensors, if the
// file lacks one of the module's, has one that the module does not know, or
// one differs in shape or element type. The module is then unchanged. `module`
// must be on the CPU; `file` is not needed afterwards.
absl::Status LoadWeights(const SafetensorsFile& file,
                         torch::nn::Module& module);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_LOAD_WEIGHTS_H_
