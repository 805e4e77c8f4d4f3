#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Dims = std::vector<int64_t>;

TEST(FftRulesTest, FollowTheOperandsOrder) {
  for (const Dims& sizes : std::vector<Dims>{
           {6}, {4, 6}, {2, 4, 6}, {2, 3, 4, 6}, {2, 3, 2, 4, 6}}) {
    const int64_t rank = sizes.size();
    std::vector<Dims> choices = {{0}, {rank - 1}};
    if (rank > 1) choices.push_back({0, 1});
    if (rank > 1) choices.push_back({rank - 1, 0});
    if (rank > 2) choices.push_back({0, 2, 1});
    if (rank > 3) choices.push_back({0, 1, 2, 3});
    if (rank > 4) choices.push_back({4, 2, 0, 1, 3});
    for (const Dims& dims : choices) {
      for (const at::Tensor& x : Layouts(sizes, at::kComplexFloat)) {
        CheckRule("aten::_fft_c2c", {x, Ints(dims), 0, true});
        const int64_t half = x.size(dims.back());
        CheckRule("aten::_fft_c2r", {x, Ints(dims), 0, 2 * half - 2});
        CheckRule("aten::_fft_c2r", {x, Ints(dims), 0, 2 * half - 1});
      }
      for (const at::Tensor& x : Layouts(sizes)) {
        CheckRule("aten::_fft_r2c", {x, Ints(dims), 0, true});
        CheckRule("aten::_fft_r2c", {x, Ints(dims), 0, false});
      }
    }
  }
  CheckRule("aten::_fft_c2c",
            {Make({2, 3}, at::kComplexDouble), Ints({}), 0, true});
  CheckRule("aten::_fft_r2c", {Make({2, 3}, at::kDouble), Ints({1}), 0, true});
}

TEST(FftRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::_fft_c2c", {Make({4}), Ints({0}), 0, true});
  CheckRejected("aten::_fft_c2r", {Make({4}), Ints({0}), 0, 4});
}

}  // namespace
}  // namespace djinn
