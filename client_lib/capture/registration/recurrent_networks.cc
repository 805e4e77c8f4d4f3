#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client_lib/capture/registration/native_kernels.h"

namespace djinn::capture {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

enum class Kind { kLstm, kGru, kTanh, kRelu };

struct Options {
  bool biases = true;
  int64_t layers = 1;
  double dropout = 0;
  bool train = false;
  bool bidirectional = false;
};

// The weights of one layer in one direction; undefined if the network has none.
struct Weights {
  Tensor FromInput(const Tensor& x) const {
    return at::linear(x, input, input_bias);
  }
  Tensor FromHidden(const Tensor& h) const {
    return at::linear(h, hidden, hidden_bias);
  }
  Tensor Projected(const Tensor& h) const {
    return projection.defined() ? at::matmul(h, projection.t()) : h;
  }

  Tensor input, hidden;
  Tensor input_bias, hidden_bias;
  Tensor projection;
};

// Only an LSTM has a `cell`.
struct State {
  Tensor hidden, cell;

  State Narrow(int64_t begin, int64_t end) const {
    return {hidden.narrow(0, begin, end - begin),
            cell.defined() ? cell.narrow(0, begin, end - begin) : cell};
  }
};

State Concatenate(const std::vector<State>& states) {
  std::vector<Tensor> hidden, cells;
  for (const State& state : states) {
    hidden.push_back(state.hidden);
    if (state.cell.defined()) cells.push_back(state.cell);
  }
  return {at::cat(hidden, 0), cells.empty() ? Tensor() : at::cat(cells, 0)};
}

// The order of these calls decides the order in which gradients are added, and
// therefore the gradients' last bits. `gates` holds what the input contributes
// to the gates.
State LstmStep(const Tensor& gates, const State& state,
               const Weights& weights) {
  Tensor sum = weights.FromHidden(state.hidden);
  std::vector<Tensor> chunks = sum.add_(gates).unsafe_chunk(4, 1);
  const Tensor in = chunks[0].sigmoid_(), forget = chunks[1].sigmoid_();
  const Tensor update = chunks[2].tanh_(), out = chunks[3].sigmoid_();
  Tensor kept = forget * state.cell;
  const Tensor cell = kept.add_(in * update);
  return {weights.Projected(out * cell.tanh()), cell};
}

State GruStep(const Tensor& gates, const State& state, const Weights& weights) {
  std::vector<Tensor> inputs = gates.unsafe_chunk(3, 1);
  std::vector<Tensor> hiddens =
      weights.FromHidden(state.hidden).unsafe_chunk(3, 1);
  const Tensor reset = hiddens[0].add_(inputs[0]).sigmoid_();
  const Tensor keep = hiddens[1].add_(inputs[1]).sigmoid_();
  const Tensor update = inputs[2].add(hiddens[2].mul_(reset)).tanh_();
  Tensor difference = state.hidden - update;
  return {difference.mul_(keep).add_(update), {}};
}

State Step(Kind kind, const Tensor& gates, const State& state,
           const Weights& weights) {
  if (kind == Kind::kLstm) return LstmStep(gates, state, weights);
  if (kind == Kind::kGru) return GruStep(gates, state, weights);
  const Tensor sum = weights.FromHidden(state.hidden).add_(gates);
  return {kind == Kind::kTanh ? sum.tanh() : sum.relu(), {}};
}

struct LayerResult {
  Tensor outputs;
  State last;
};

// Runs over sequences of equal length: (steps, batch, width).
class FullSequence {
 public:
  LayerResult Run(Kind kind, const Tensor& input, const State& initial,
                  const Weights& weights, bool reversed) const {
    std::vector<Tensor> gates = weights.FromInput(input).unbind(0);
    TORCH_CHECK(!gates.empty(),
                "Expected sequence length to be larger than 0 in RNN");
    if (reversed) std::reverse(gates.begin(), gates.end());
    State state = initial;
    std::vector<Tensor> outputs;
    for (const Tensor& each : gates) {
      state = Step(kind, each, state, weights);
      outputs.push_back(state.hidden);
    }
    if (reversed) std::reverse(outputs.begin(), outputs.end());
    return {at::stack(outputs, 0), state};
  }
};

// Runs over sequences that are sorted by length, longest first, and packed step
// by step into one tensor: the first `sizes[i]` sequences have a step i.
class PackedSequences {
 public:
  explicit PackedSequences(const Tensor& sizes) {
    TORCH_CHECK(sizes.device().is_cpu() && sizes.dim() == 1 &&
                    sizes.scalar_type() == at::kLong && sizes.numel() > 0,
                "batch_sizes must be a 1-D int64 tensor on the CPU");
    const Tensor dense = sizes.contiguous();
    sizes_.assign(dense.const_data_ptr<int64_t>(),
                  dense.const_data_ptr<int64_t>() + dense.numel());
  }

  LayerResult Run(Kind kind, const Tensor& input, const State& initial,
                  const Weights& weights, bool reversed) const {
    const Tensor gates = weights.FromInput(input);
    return reversed ? Backward(kind, gates, initial, weights)
                    : Forward(kind, gates, initial, weights);
  }

 private:
  LayerResult Forward(Kind kind, const Tensor& gates, const State& initial,
                      const Weights& weights) const {
    std::vector<Tensor> outputs;
    std::vector<State> ended;
    State state = initial;
    int64_t offset = 0, running = sizes_[0];
    for (const int64_t size : sizes_) {
      const Tensor step = gates.narrow(0, offset, size);
      offset += size;
      if (size < running) {
        ended.push_back(state.Narrow(size, running));
        state = state.Narrow(0, size);
      }
      running = size;
      state = Step(kind, step, state, weights);
      outputs.push_back(state.hidden);
    }
    ended.push_back(state);
    std::reverse(ended.begin(), ended.end());
    return {at::cat(outputs, 0), Concatenate(ended)};
  }

  LayerResult Backward(Kind kind, const Tensor& gates, const State& initial,
                       const Weights& weights) const {
    std::vector<Tensor> outputs;
    int64_t offset = gates.size(0), running = sizes_.back();
    State state = initial.Narrow(0, running);
    for (size_t i = sizes_.size(); i-- > 0;) {
      const int64_t size = sizes_[i];
      if (size > running) {
        state = Concatenate({state, initial.Narrow(running, size)});
      }
      const Tensor step = gates.narrow(0, offset - size, size);
      offset -= size;
      running = size;
      state = Step(kind, step, state, weights);
      outputs.push_back(state.hidden);
    }
    std::reverse(outputs.begin(), outputs.end());
    return {at::cat(outputs, 0), state};
  }

  std::vector<int64_t> sizes_;
};

std::vector<Weights> Gather(TensorList parameters, bool biases,
                            bool projections) {
  const size_t each = (biases ? 4 : 2) + (projections ? 1 : 0);
  TORCH_CHECK(parameters.size() % each == 0,
              "got an incorrect number of RNN parameters");
  std::vector<Weights> all;
  for (size_t i = 0; i < parameters.size(); i += each) {
    Weights weights = {parameters[i], parameters[i + 1], {}, {}, {}};
    if (biases) {
      weights.input_bias = parameters[i + 2];
      weights.hidden_bias = parameters[i + 3];
    }
    if (projections) weights.projection = parameters[i + each - 1];
    all.push_back(std::move(weights));
  }
  return all;
}

struct NetworkResult {
  Tensor outputs;
  std::vector<Tensor> hidden, cells;
};

template <typename Sequence>
NetworkResult Network(Kind kind, const Sequence& sequence, Tensor input,
                      TensorList hx, TensorList parameters,
                      const Options& options) {
  const bool lstm = kind == Kind::kLstm;
  const std::vector<Tensor> hidden = hx[0].unbind(0);
  const std::vector<Tensor> cells =
      lstm ? hx[1].unbind(0) : std::vector<Tensor>(hidden.size());
  // An LSTM whose hidden state is narrower than its cells has projections.
  const std::vector<Weights> weights = Gather(
      parameters, options.biases, lstm && hx[0].size(2) != hx[1].size(2));
  const size_t directions = options.bidirectional ? 2 : 1;
  const size_t runs = directions * static_cast<size_t>(options.layers);
  TORCH_CHECK(hidden.size() == runs && cells.size() == runs,
              "Expected more hidden states in stacked_rnn");
  TORCH_CHECK(weights.size() == runs, "Expected more weights in stacked_rnn");
  NetworkResult result;
  for (size_t run = 0; run < runs; run += directions) {
    std::vector<Tensor> outputs;
    for (size_t i = run; i < run + directions; ++i) {
      LayerResult layer = sequence.Run(kind, input, {hidden[i], cells[i]},
                                       weights[i], /*reversed=*/i > run);
      outputs.push_back(std::move(layer.outputs));
      result.hidden.push_back(std::move(layer.last.hidden));
      result.cells.push_back(std::move(layer.last.cell));
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (options.dropout != 0 && options.train && run + directions < runs) {
      input = at::dropout(input, options.dropout, /*train=*/true);
    }
  }
  result.outputs = std::move(input);
  return result;
}

// Full sequences --------------------------------------------------------------

NetworkResult FullNetwork(Kind kind, const Tensor& input, TensorList hx,
                          TensorList parameters, const Options& options,
                          bool batch_first) {
  TORCH_CHECK(input.dim() == 3, "RNN: expected a 3-D input, got ",
              input.sizes());
  NetworkResult result =
      Network(kind, FullSequence(), batch_first ? input.transpose(0, 1) : input,
              hx, parameters, options);
  if (batch_first) result.outputs.transpose_(0, 1);
  return result;
}

std::tuple<Tensor, Tensor, Tensor> Lstm(const Tensor& input, TensorList hx,
                                        TensorList parameters, bool biases,
                                        int64_t layers, double dropout,
                                        bool train, bool bidirectional,
                                        bool batch_first) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const NetworkResult result =
      FullNetwork(Kind::kLstm, input, hx, parameters,
                  {biases, layers, dropout, train, bidirectional}, batch_first);
  return {result.outputs, at::stack(result.hidden, 0),
          at::stack(result.cells, 0)};
}

template <Kind kKind>
std::tuple<Tensor, Tensor> OneState(const Tensor& input, const Tensor& hx,
                                    TensorList parameters, bool biases,
                                    int64_t layers, double dropout, bool train,
                                    bool bidirectional, bool batch_first) {
  const NetworkResult result =
      FullNetwork(kKind, input, hx, parameters,
                  {biases, layers, dropout, train, bidirectional}, batch_first);
  return {result.outputs, at::stack(result.hidden, 0)};
}

// Packed sequences ------------------------------------------------------------

std::tuple<Tensor, Tensor, Tensor> PackedLstm(
    const Tensor& data, const Tensor& batch_sizes, TensorList hx,
    TensorList parameters, bool biases, int64_t layers, double dropout,
    bool train, bool bidirectional) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const NetworkResult result =
      Network(Kind::kLstm, PackedSequences(batch_sizes), data, hx, parameters,
              {biases, layers, dropout, train, bidirectional});
  return {result.outputs, at::stack(result.hidden, 0),
          at::stack(result.cells, 0)};
}

template <Kind kKind>
std::tuple<Tensor, Tensor> PackedOneState(const Tensor& data,
                                          const Tensor& batch_sizes,
                                          const Tensor& hx,
                                          TensorList parameters, bool biases,
                                          int64_t layers, double dropout,
                                          bool train, bool bidirectional) {
  const NetworkResult result =
      Network(kKind, PackedSequences(batch_sizes), data, hx, parameters,
              {biases, layers, dropout, train, bidirectional});
  return {result.outputs, at::stack(result.hidden, 0)};
}

// Single steps ----------------------------------------------------------------

void CheckCell(const Tensor& input, const Tensor& hidden,
               const Weights& weights) {
  TORCH_CHECK(input.size(1) == weights.input.size(1),
              "input has inconsistent input_size: got ", input.size(1),
              " expected ", weights.input.size(1));
  TORCH_CHECK(input.size(0) == hidden.size(0), "Input batch size ",
              input.size(0), " doesn't match hidden0 batch size ",
              hidden.size(0));
  TORCH_CHECK(hidden.size(1) == weights.hidden.size(1),
              "hidden0 has inconsistent hidden_size: got ", hidden.size(1),
              ", expected ", weights.hidden.size(1));
}

std::tuple<Tensor, Tensor> LstmCell(const Tensor& input, TensorList hx,
                                    const Tensor& input_weight,
                                    const Tensor& hidden_weight,
                                    const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  const Weights weights = {input_weight,
                           hidden_weight,
                           input_bias.value_or(Tensor()),
                           hidden_bias.value_or(Tensor()),
                           {}};
  CheckCell(input, hx[0], weights);
  const State state =
      LstmStep(weights.FromInput(input), {hx[0], hx[1]}, weights);
  return {state.hidden, state.cell};
}

Tensor GruCell(const Tensor& input, const Tensor& hx,
               const Tensor& input_weight, const Tensor& hidden_weight,
               const OptionalTensor& input_bias,
               const OptionalTensor& hidden_bias) {
  const Weights weights = {input_weight,
                           hidden_weight,
                           input_bias.value_or(Tensor()),
                           hidden_bias.value_or(Tensor()),
                           {}};
  CheckCell(input, hx, weights);
  return GruStep(weights.FromInput(input), {hx, {}}, weights).hidden;
}

}  // namespace

std::map<std::string, c10::KernelFunction> RecurrentSplits() {
  using c10::KernelFunction;
  return {
      {"aten::lstm.input",
       KernelFunction::makeFromUnboxedFunction(TORCH_FN(Lstm))},
      {"aten::gru.input",
       KernelFunction::makeFromUnboxedFunction(TORCH_FN(OneState<Kind::kGru>))},
      {"aten::rnn_tanh.input", KernelFunction::makeFromUnboxedFunction(
                                   TORCH_FN(OneState<Kind::kTanh>))},
      {"aten::rnn_relu.input", KernelFunction::makeFromUnboxedFunction(
                                   TORCH_FN(OneState<Kind::kRelu>))},
      {"aten::lstm_cell",
       KernelFunction::makeFromUnboxedFunction(TORCH_FN(LstmCell))},
      {"aten::gru_cell",
       KernelFunction::makeFromUnboxedFunction(TORCH_FN(GruCell))},
  };
}

std::set<std::string> RegisterPackedNetworks(torch::Library* backend,
                                             torch::Library* autograd) {
  std::set<std::string> names;
  const auto add = [&](const char* name, auto kernel) {
    backend->impl(name, kernel);
    autograd->impl(name, kernel);
    names.insert(std::string("aten::") + name);
  };
  add("lstm.data", TORCH_FN(PackedLstm));
  add("gru.data", TORCH_FN(PackedOneState<Kind::kGru>));
  add("rnn_tanh.data", TORCH_FN(PackedOneState<Kind::kTanh>));
  add("rnn_relu.data", TORCH_FN(PackedOneState<Kind::kRelu>));
  return names;
}

}  // namespace djinn::capture
