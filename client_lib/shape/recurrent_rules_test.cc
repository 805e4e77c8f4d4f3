#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Returns weights and biases of every layer and direction, for `gates` gates.
c10::List<at::Tensor> Parameters(int64_t gates, int64_t input, int64_t hidden,
                                 int64_t layers, bool bidirectional,
                                 at::ScalarType dtype) {
  c10::List<at::Tensor> parameters;
  const int64_t directions = bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t width = layer == 0 ? input : hidden * directions;
    for (int64_t direction = 0; direction < directions; ++direction) {
      parameters.push_back(Make({gates * hidden, width}, dtype));
      parameters.push_back(Make({gates * hidden, hidden}, dtype));
      parameters.push_back(Make({gates * hidden}, dtype));
      parameters.push_back(Make({gates * hidden}, dtype));
    }
  }
  return parameters;
}

TEST(RecurrentRulesTest, WholeNetworks) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (int64_t layers : {1, 2}) {
      for (bool bidirectional : {false, true}) {
        for (bool batch_first : {false, true}) {
          const int64_t batch = batch_first ? 5 : 3;
          const at::Tensor h =
              Make({layers * (bidirectional ? 2 : 1), batch, 6}, dtype);
          for (const at::Tensor& x : Layouts({5, 3, 4}, dtype)) {
            CheckRule("aten::lstm.input",
                      {x, c10::List<at::Tensor>({h, h}),
                       Parameters(4, 4, 6, layers, bidirectional, dtype), true,
                       layers, 0.0, false, bidirectional, batch_first});
            CheckRule("aten::gru.input",
                      {x, h, Parameters(3, 4, 6, layers, bidirectional, dtype),
                       true, layers, 0.0, false, bidirectional, batch_first});
            for (const char* name :
                 {"aten::rnn_tanh.input", "aten::rnn_relu.input"}) {
              CheckRule(
                  name,
                  {x, h, Parameters(1, 4, 6, layers, bidirectional, dtype),
                   true, layers, 0.0, false, bidirectional, batch_first});
            }
          }
        }
      }
    }
  }
}

TEST(RecurrentRulesTest, Cells) {
  for (const at::Tensor& x : Layouts({3, 4})) {
    for (const at::Tensor& h : Layouts({3, 6})) {
      CheckRule("aten::lstm_cell",
                {x, c10::List<at::Tensor>({h, h}), Make({24, 4}), Make({24, 6}),
                 Make({24}), Make({24})});
      CheckRule("aten::gru_cell",
                {x, h, Make({18, 4}), Make({18, 6}), Make({18}), Make({18})});
      CheckRule("aten::rnn_tanh_cell", {x, h, Make({6, 4}), Make({6, 6})});
      CheckRule("aten::rnn_relu_cell",
                {x, h, Make({6, 4}), Make({6, 6}), Make({6}), Make({6})});
    }
  }
  const at::Tensor h = Make({1, 6});
  CheckRule("aten::lstm_cell", {Make({1, 4}), c10::List<at::Tensor>({h, h}),
                                Make({24, 4}), Make({24, 6})});
}

TEST(RecurrentRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor x = Make({5, 3, 4}), h = Make({1, 3, 6});
  const auto parameters = Parameters(4, 4, 6, 1, false, at::kFloat);
  CheckRejected("aten::lstm.input", {x, c10::List<at::Tensor>({h}), parameters,
                                     true, 1, 0.0, false, false, false});
  CheckRejected("aten::rnn_tanh_cell",
                {Make({3, 4}), Make({2, 6}), Make({6, 4}), Make({6, 6})});
}

}  // namespace
}  // namespace djinn
