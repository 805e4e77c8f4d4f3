// PyTorch's recurrent networks end, on every device but the CPU, in fused cells
// that no CPU has. Here they are taken apart again, differentiably.
#ifndef CLIENT_LIB_CAPTURE_RECURRENT_CELLS_H_
#define CLIENT_LIB_CAPTURE_RECURRENT_CELLS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Registers `_thnn_fused_lstm_cell` and `_thnn_fused_gru_cell` in a library of
// namespace aten, for its dispatch key; returns their qualified names.
std::set<std::string> RegisterRecurrentCells(torch::Library* library);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_RECURRENT_CELLS_H_
