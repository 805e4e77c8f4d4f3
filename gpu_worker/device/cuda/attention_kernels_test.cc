// Compares attention that is computed with plain operators with the CPU's fused
// kernels.
#include "gpu_worker/device/cuda/attention_kernels.h"

#include <limits>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "torch/torch.h"

namespace djinn::worker {
namespace {

struct Case {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  int64_t key_heads = 4;
  int64_t rows = 5;
  int64_t columns = 7;
  bool causal = false;
  enum { kNoMask, kAdded, kPerBatch } mask = kNoMask;
  std::optional<double> scale;
};

class AttentionKernelsTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionKernelsTest, ForwardAndGradientsAreTheCpus) {
  const Case& given = GetParam();
  torch::manual_seed(3);
  const auto draw = [&](int64_t heads, int64_t rows) {
    // Uses the memory layout that projections produce.
    return torch::randn({3, rows, heads, 8}).to(given.dtype).transpose(1, 2);
  };
  const at::Tensor query = draw(4, given.rows);
  const at::Tensor key = draw(given.key_heads, given.columns);
  const at::Tensor value = draw(given.key_heads, given.columns);
  std::optional<at::Tensor> mask;
  switch (given.mask) {
    case Case::kNoMask:
      break;
    case Case::kAdded:
      mask = torch::randn({1, 1, given.rows, given.columns}).to(given.dtype);
      break;
    case Case::kPerBatch:
      mask = torch::randn({3, 1, given.rows, given.columns}).to(given.dtype);
      break;
  }
  const bool grouped = given.key_heads != 4;
  // The CPU's operator does not repeat heads by itself.
  const auto repeat = [&](const at::Tensor& tensor) {
    return grouped ? tensor.repeat_interleave(4 / given.key_heads, 1) : tensor;
  };
  const double tolerance = given.dtype == at::kDouble  ? 1e-12
                           : given.dtype == at::kFloat ? 1e-5
                                                       : 0.05;
  const auto expect_close = [&](const at::Tensor& actual,
                                const at::Tensor& expected) {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    ASSERT_EQ(actual.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(torch::allclose(actual.to(at::kDouble),
                                expected.to(at::kDouble), tolerance, tolerance))
        << (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max();
  };
  const auto [expected, expected_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(
          query, repeat(key), repeat(value), 0, given.causal, mask,
          given.scale);
  const auto [out, sums] =
      AttentionForward(query, key, value, 0, given.causal, mask, given.scale);
  expect_close(out, expected);
  expect_close(sums, expected_sums);

  const at::Tensor gradient = torch::randn_like(expected);
  auto [query_due, key_due, value_due] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          gradient, query, repeat(key), repeat(value), expected, expected_sums,
          0, given.causal, mask, given.scale);
  if (grouped) {
    const auto sum = [&](const at::Tensor& tensor) {
      return tensor.unflatten(1, {given.key_heads, 4 / given.key_heads}).sum(2);
    };
    key_due = sum(key_due);
    value_due = sum(value_due);
  }
  const auto [for_query, for_key, for_value] =
      AttentionBackward(gradient, query, key, value, out, sums, 0, given.causal,
                        mask, given.scale);
  expect_close(for_query, query_due);
  expect_close(for_key, key_due);
  expect_close(for_value, value_due);
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionKernelsTest,
    testing::Values(Case{.name = "Plain"},
                    Case{.name = "Double", .dtype = at::kDouble},
                    Case{.name = "BFloat16", .dtype = at::kBFloat16},
                    Case{.name = "Grouped", .key_heads = 2},
                    Case{.name = "Causal", .columns = 5, .causal = true},
                    Case{.name = "CausalOverMoreKeys", .causal = true},
                    Case{.name = "AddedMask", .mask = Case::kAdded},
                    Case{.name = "MaskOfEachBatch", .mask = Case::kPerBatch},
                    Case{.name = "OtherScale", .scale = 0.3}),
    [](const auto& info) { return info.param.name; });

TEST(AttentionKernels, RowsWithoutKeysAreZeros) {
  const at::Tensor heads = torch::randn({1, 1, 2, 4});
  at::Tensor mask = torch::zeros({2, 2});
  mask[1].fill_(-std::numeric_limits<float>::infinity());
  const auto [out, sums] =
      AttentionForward(heads, heads, heads, 0, false, mask, std::nullopt);
  EXPECT_TRUE(out.select(2, 1).eq(0).all().item<bool>());
  EXPECT_EQ(sums[0][0][1].item<float>(),
            -std::numeric_limits<float>::infinity());
  const auto [for_query, for_key, for_value] =
      AttentionBackward(torch::ones_like(out), heads, heads, heads, out, sums,
                        0, false, mask, std::nullopt);
  EXPECT_TRUE(for_query.select(2, 1).eq(0).all().item<bool>());
  EXPECT_TRUE(for_key.isfinite().all().item<bool>());
  EXPECT_TRUE(for_value.isfinite().all().item<bool>());
}

TEST(AttentionKernels, AMaskOfOtherBatchesIsRefused) {
  const at::Tensor heads = torch::randn({2, 1, 3, 4});
  EXPECT_THROW(AttentionForward(heads, heads, heads, 0, false,
                                torch::zeros({5, 1, 3, 3}), std::nullopt),
               c10::Error);
}

TEST(AttentionKernels, AMaskOfAnotherTypeIsRefused) {
  const at::Tensor heads = torch::randn({2, 1, 3, 4});
  EXPECT_THROW(
      AttentionForward(heads, heads, heads, 0, false,
                       torch::ones({3, 3}, torch::kBool), std::nullopt),
      c10::Error);
}

TEST(AttentionKernels, RowsAreTakenSomeAtATime) {
  // A single batch has more scores than are computed at once.
  const at::Tensor query = torch::randn({1, 2, 5900, 4});
  const at::Tensor key = torch::randn({1, 1, 5900, 4});
  const at::Tensor keys = key.repeat_interleave(2, 1);
  const auto [out, sums] =
      AttentionForward(query, key, key, 0, true, std::nullopt, std::nullopt);
  const auto [expected, expected_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, keys, keys, 0,
                                                      true);
  EXPECT_TRUE(torch::allclose(out, expected, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(sums, expected_sums, 1e-4, 1e-5));
  const at::Tensor gradient = torch::randn_like(out);
  const auto gradients = AttentionBackward(gradient, query, key, key, out, sums,
                                           0, true, std::nullopt, std::nullopt);
  const auto due = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, query, keys, keys, expected, expected_sums, 0, true);
  EXPECT_TRUE(
      torch::allclose(std::get<0>(gradients), std::get<0>(due), 1e-3, 1e-4));
  EXPECT_TRUE(torch::allclose(std::get<1>(gradients),
                              std::get<1>(due).sum(1, true), 1e-3, 1e-3));
  EXPECT_TRUE(torch::allclose(std::get<2>(gradients),
                              std::get<2>(due).sum(1, true), 1e-3, 1e-3));
}

TEST(AttentionKernels, BatchesAreTakenSomeAtATime) {
  // The kernels compute the scores of at most two of these batches at once.
  const at::Tensor heads = torch::randn({5, 1, 5000, 4});
  const auto [out, sums] = AttentionForward(heads, heads, heads, 0, false,
                                            std::nullopt, std::nullopt);
  const auto [expected, expected_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(heads, heads, heads);
  EXPECT_TRUE(torch::allclose(out, expected, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(sums, expected_sums, 1e-4, 1e-5));
}

}  // namespace
}  // namespace djinn::worker
