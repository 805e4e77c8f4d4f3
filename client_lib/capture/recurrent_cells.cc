#include "client_lib/capture/recurrent_cells.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

namespace djinn::capture {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor WithBias(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

// The third result is for a gradient's formula that is not used.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& cell, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const at::Tensor gates =
      WithBias(hidden_gates, hidden_bias) + WithBias(input_gates, input_bias);
  const std::vector<at::Tensor> chunks = gates.unsafe_chunk(4, 1);
  const at::Tensor in = chunks[0].sigmoid(), forget = chunks[1].sigmoid();
  const at::Tensor update = chunks[2].tanh(), out = chunks[3].sigmoid();
  const at::Tensor next = forget * cell + in * update;
  return {out * next.tanh(), next, gates};
}

std::tuple<at::Tensor, at::Tensor> GruCell(const at::Tensor& input_gates,
                                           const at::Tensor& hidden_gates,
                                           const at::Tensor& hidden,
                                           const OptionalTensor& input_bias,
                                           const OptionalTensor& hidden_bias) {
  const std::vector<at::Tensor> from_input =
      WithBias(input_gates, input_bias).unsafe_chunk(3, 1);
  const std::vector<at::Tensor> from_hidden =
      WithBias(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  const at::Tensor reset = (from_hidden[0] + from_input[0]).sigmoid();
  const at::Tensor keep = (from_hidden[1] + from_input[1]).sigmoid();
  const at::Tensor update = (from_input[2] + from_hidden[2] * reset).tanh();
  return {(hidden - update) * keep + update, from_hidden[2]};
}

}  // namespace

std::set<std::string> RegisterRecurrentCells(torch::Library* library) {
  library->impl("_thnn_fused_lstm_cell", TORCH_FN(LstmCell));
  library->impl("_thnn_fused_gru_cell", TORCH_FN(GruCell));
  return {"aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell"};
}

}  // namespace djinn::capture
