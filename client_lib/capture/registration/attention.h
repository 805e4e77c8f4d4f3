// Scaled dot product attention. The CPU takes its fused kernel, or the plain
// formula, by what the operands look like and by what the program asked for;
// the program gets the one that the CPU would take.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_ATTENTION_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_ATTENTION_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Lets PyTorch's composite, where it is split, choose as on the CPU, and
// registers `_fused_sdp_choice` in a library of namespace aten; returns its
// qualified name.
std::set<std::string> RegisterAttentionChoice(torch::Library* library);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_ATTENTION_H_
