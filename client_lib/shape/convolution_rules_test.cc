#include "ATen/Parallel.h"
#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Sizes = std::vector<int64_t>;

c10::IValue Same(int64_t value, int64_t rank) {
  return Ints(Sizes(rank, value));
}

// With one thread, kernels of size 1 are computed in another way.
void CheckConvolution(const std::string& name,
                      std::vector<c10::IValue> arguments) {
  const size_t weight = name == "aten::convolution_backward" ? 2 : 1;
  if (arguments[weight].toTensor().size(-1) == 1) {
    CheckRuleForAnyThreads(name, std::move(arguments));
  } else {
    CheckRule(name, std::move(arguments));
  }
}

struct Case {
  Sizes input, weight;
  int64_t groups = 1;
};

const Case kCases[] = {
    {{2, 4, 9}, {6, 4, 3}},
    {{1, 4, 9}, {6, 4, 1}},
    {{2, 4, 9}, {6, 2, 3}, 2},
    {{2, 1, 9}, {6, 1, 3}},
    {{2, 4, 7, 8}, {6, 4, 3, 3}},
    {{1, 4, 7, 8}, {6, 4, 1, 1}},
    {{2, 4, 7, 8}, {8, 1, 3, 3}, 4},
    {{2, 4, 7, 8}, {6, 2, 3, 1}, 2},
    {{20, 4, 7, 8}, {6, 4, 5, 5}},
    {{2, 3, 8, 8}, {6, 3, 4, 4}},
    {{2, 4, 5, 7, 8}, {6, 4, 3, 3, 3}},
    {{1, 4, 5, 7, 8}, {6, 4, 1, 1, 1}},
    {{2, 4, 5, 7, 8}, {6, 4, 3, 1, 1}},
    {{2, 4, 5, 7, 8}, {6, 2, 3, 3, 3}, 2},
};

template <typename Body>
void ForEachCase(at::ScalarType dtype, Body body) {
  for (const Case& c : kCases) {
    for (const at::Tensor& input : Layouts(c.input, dtype)) {
      for (const at::Tensor& weight : Layouts(c.weight, dtype)) {
        body(input, weight, c.groups, c.input.size() - 2);
      }
    }
  }
}

// Tests run convolutions with several threads by default.
class ConvolutionRulesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(2); }
};

TEST_F(ConvolutionRulesTest, FollowInputAndWeight) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    ForEachCase(dtype, [&](const at::Tensor& input, const at::Tensor& weight,
                           int64_t groups, int64_t rank) {
      // Whether oneDNN supports bfloat16 volumes depends on the processor, so
      // they are left out.
      if (dtype == at::kBFloat16 && rank == 3) return;
      for (int64_t stride : {1, 2}) {
        for (int64_t dilation : {1, 2}) {
          CheckConvolution(
              "aten::convolution",
              {input, weight, None(), Same(stride, rank), Same(1, rank),
               Same(dilation, rank), false, Same(0, rank), groups});
        }
      }
    });
  }
}

TEST_F(ConvolutionRulesTest, WholeOperators) {
  ForEachCase(at::kFloat, [](const at::Tensor& input, const at::Tensor& weight,
                             int64_t groups, int64_t rank) {
    const std::string name = "aten::conv" + std::to_string(rank) + "d";
    const at::Tensor bias = Make({weight.size(0)});
    CheckConvolution(name, {input, weight, bias, Same(1, rank), Same(0, rank),
                            Same(1, rank), groups});
    CheckConvolution(
        name, {input, weight, None(), Ints({2}), Ints({1}), Ints({1}), groups});
    CheckConvolution(name, {input.select(0, 0), weight, bias, Same(1, rank),
                            Same(1, rank), Same(1, rank), groups});
    for (const char* padding : {"same", "valid"}) {
      CheckConvolution(name + ".padding",
                       {input, weight, bias, Same(1, rank),
                        std::string(padding), Same(1, rank), groups});
    }
  });
}

TEST_F(ConvolutionRulesTest, Transposed) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Case& c :
         std::vector<Case>{{{2, 4, 9}, {4, 6, 3}},
                           {{2, 4, 9}, {4, 3, 3}, 2},
                           {{2, 4, 7, 8}, {4, 6, 3, 3}},
                           {{2, 4, 7, 8}, {4, 3, 3, 3}, 2},
                           {{1, 4, 7, 8}, {4, 6, 1, 1}},
                           {{2, 4, 5, 7, 8}, {4, 6, 3, 3, 3}}}) {
      const int64_t rank = c.input.size() - 2;
      const std::string name = "aten::conv_transpose" + std::to_string(rank) +
                               (rank == 1 ? "d" : "d.input");
      for (const at::Tensor& input : Layouts(c.input, dtype)) {
        for (const at::Tensor& weight : Layouts(c.weight, dtype)) {
          CheckConvolution("aten::convolution",
                           {input, weight, None(), Same(2, rank), Same(1, rank),
                            Same(1, rank), true, Same(1, rank), c.groups});
          CheckConvolution(name,
                           {input, weight, None(), Same(2, rank), Same(0, rank),
                            Same(0, rank), c.groups, Same(1, rank)});
          CheckConvolution(
              name, {input.select(0, 0), weight, None(), Same(1, rank),
                     Same(0, rank), Same(0, rank), c.groups, Same(2, rank)});
        }
      }
    }
  }
}

TEST_F(ConvolutionRulesTest, Backward) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    ForEachCase(dtype, [](const at::Tensor& input, const at::Tensor& weight,
                          int64_t groups, int64_t rank) {
      Sizes output = {input.size(0), weight.size(0)};
      for (int64_t i = 2; i < rank + 2; ++i) {
        output.push_back(input.size(i) - weight.size(i) + 1);
      }
      for (const at::Tensor& grad : Layouts(output, input.scalar_type())) {
        CheckConvolution("aten::convolution_backward",
                         {grad, input, weight, Ints({weight.size(0)}),
                          Same(1, rank), Same(0, rank), Same(1, rank), false,
                          Same(0, rank), groups, Mask({true, true, true})});
      }
      CheckConvolution(
          "aten::convolution_backward",
          {Make(output, input.scalar_type()), input, weight, None(),
           Same(1, rank), Same(0, rank), Same(1, rank), false, Same(0, rank),
           groups, Mask({false, true, false})});
    });
  }
}

TEST_F(ConvolutionRulesTest, EmptyBatch) {
  for (const at::Tensor& input : Layouts({0, 4, 7, 8})) {
    CheckRule("aten::conv2d", {input, Make({6, 4, 3, 3})});
  }
  CheckRule("aten::conv1d", {Make({0, 4, 7}), Make({6, 4, 3})});
}

TEST_F(ConvolutionRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor x = Make({2, 4, 7, 8}), w = Make({6, 4, 3, 3});
  CheckRejected("aten::conv2d", {x, Make({6, 3, 3, 3})});
  CheckRejected("aten::conv2d", {x, Make({6, 4, 3})});
  CheckRejected("aten::conv2d", {x, Make({6, 4, 9, 9})});
  CheckRejected("aten::conv2d", {x, w, Make({5})});
  CheckRejected("aten::conv2d", {x, Make({6, 4, 3, 3}, at::kDouble)});
  CheckRejected("aten::conv2d", {x, w, Make({6}, at::kDouble)});
  CheckRejected("aten::conv2d", {x, w, None(), Ints({0, 0})});
  CheckRejected("aten::conv2d", {x, w, None(), Ints({1, 1}), Ints({-1, -1})});
  CheckRejected("aten::conv2d", {Make({7, 8}), w});
  CheckRejected("aten::conv2d", {x, w, None(), Ints({1, 1, 1})});
  CheckRejected("aten::conv2d.padding",
                {x, w, None(), Ints({2, 2}), std::string("same")});
  CheckRejected("aten::conv2d.padding",
                {x, w, None(), Ints({1, 1}), std::string("other")});
  CheckRejected("aten::conv_transpose2d.input", {x, Make({5, 6, 3, 3})});
  const auto padded = [](const at::Tensor& input,
                         std::vector<int64_t> dilation) {
    return std::vector<c10::IValue>{
        input,        Make({4, 6, 3, 3}), None(), Ints({2, 1}),
        Ints({0, 0}), Ints({1, 1}),       1,      Ints(std::move(dilation))};
  };
  CheckRejected("aten::conv_transpose2d.input", padded(x, {1, 1}));
  CheckRule("aten::conv_transpose2d.input", padded(x, {1, 2}));
  CheckRule("aten::conv_transpose2d.input", padded(Make({0, 4, 5, 5}), {1, 1}));
}

}  // namespace
}  // namespace djinn
