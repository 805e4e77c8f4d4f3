// Rules for recurrent networks that are captured whole, and for their cells.
#include <string>
#include <utility>
#include <vector>

#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::ScalarType;

void CheckHidden(const at::Tensor& hidden, int64_t layers, bool bidirectional,
                 int64_t batch) {
  TORCH_CHECK(hidden.dim() == 3, "RNN: expected a 3-D hidden state");
  TORCH_CHECK(hidden.size(0) == layers * (bidirectional ? 2 : 1),
              "RNN: Expected hidden size[0] to be the number of layers times "
              "directions, got ",
              hidden.sizes());
  TORCH_CHECK(hidden.size(1) == batch, "RNN: Expected hidden size[1] to be ",
              batch, ", got ", hidden.sizes());
}

// Returns the output of all steps. It is stored time first. If batch_first is
// true, the output is a view with the batch first.
ResultMeta Sequence(const at::Tensor& input, int64_t width, bool batch_first) {
  TORCH_CHECK(input.dim() == 3, "RNN: expected a 3-D input, got ",
              input.sizes());
  if (!batch_first) {
    return Contiguous(input.scalar_type(),
                      {input.size(0), input.size(1), width});
  }
  return Transpose(
      Contiguous(input.scalar_type(), {input.size(1), input.size(0), width}), 0,
      1);
}

ResultMeta FinalState(const at::Tensor& hidden) {
  return Contiguous(hidden.scalar_type(), hidden.sizes());
}

// Returns the results of lstm(input, hx[], params[], has_biases, num_layers,
// dropout, train, bidirectional, batch_first).
Results Lstm(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const std::vector<at::Tensor> hidden = args.Tensors(1);
  TORCH_CHECK(hidden.size() == 2, "lstm expects two hidden states");
  const bool bidirectional = args.Boolean(7), batch_first = args.Boolean(8);
  const int64_t directions = bidirectional ? 2 : 1;
  const ResultMeta output =
      Sequence(input, hidden[0].size(-1) * directions, batch_first);
  CheckSameType("lstm", {input, hidden[0], hidden[1]});
  for (const at::Tensor& state : hidden) {
    CheckHidden(state, args.Integer(4), bidirectional,
                input.size(batch_first ? 0 : 1));
  }
  return {output, FinalState(hidden[0]), FinalState(hidden[1])};
}

// The rule for gru and rnn, which have one hidden state as a tensor.
Results OneState(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& hidden = args.Tensor(1);
  const bool bidirectional = args.Boolean(7), batch_first = args.Boolean(8);
  const ResultMeta output =
      Sequence(input, hidden.size(-1) * (bidirectional ? 2 : 1), batch_first);
  CheckSameType("rnn", {input, hidden});
  CheckHidden(hidden, args.Integer(4), bidirectional,
              input.size(batch_first ? 0 : 1));
  return {output, FinalState(hidden)};
}

void CheckCell(const at::Tensor& input, const at::Tensor& hidden) {
  TORCH_CHECK(input.dim() == 2 && hidden.dim() == 2,
              "RNN cell: expected 2-D input and hidden state");
  TORCH_CHECK(input.size(0) == hidden.size(0), "Input batch size ",
              input.size(0), " doesn't match hidden batch size ",
              hidden.size(0));
  CheckSameType("RNN cell", {input, hidden});
}

ResultMeta Gate(const at::Tensor& hidden) {
  return Contiguous(hidden.scalar_type(), hidden.sizes());
}

Results LstmCell(const CallArguments& args) {
  const std::vector<at::Tensor> hidden = args.Tensors(1);
  TORCH_CHECK(hidden.size() == 2, "lstm_cell expects two hidden states");
  CheckCell(args.Tensor(0), hidden[0]);
  const ScalarType dtype = hidden[1].scalar_type();
  // The gates are columns of one product.
  ResultMeta gate = Gate(hidden[0]);
  gate.strides[0] *= 4;
  const ResultMeta cell = Elementwise(dtype, {gate, Describe(hidden[1])});
  return {Elementwise(dtype, {gate, cell}), cell};
}

Results GruCell(const CallArguments& args) {
  const at::Tensor& hidden = args.Tensor(1);
  CheckCell(args.Tensor(0), hidden);
  return {Elementwise(hidden.scalar_type(), {Describe(hidden), Gate(hidden)})};
}

Results PlainCell(const CallArguments& args) {
  CheckCell(args.Tensor(0), args.Tensor(1));
  return {Gate(args.Tensor(1))};
}

}  // namespace

void AddRecurrentRules(RuleTable* table) {
  table->Add({"aten::lstm.input"}, Lstm);
  table->Add(
      {"aten::gru.input", "aten::rnn_tanh.input", "aten::rnn_relu.input"},
      OneState);
  table->Add({"aten::lstm_cell"}, LstmCell);
  table->Add({"aten::gru_cell"}, GruCell);
  table->Add({"aten::rnn_tanh_cell", "aten::rnn_relu_cell"}, PlainCell);
}

}  // namespace djinn
