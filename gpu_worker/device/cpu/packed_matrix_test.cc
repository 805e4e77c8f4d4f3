#include "gpu_worker/device/cpu/packed_matrix.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "absl/strings/str_cat.h"
#include "gpu_worker/device/cpu/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

std::vector<const PackedKernel*> Kernels() {
  std::vector<const PackedKernel*> kernels;
  for (const PackedKernel* kernel :
       {Avx512PackedKernel(), Avx2PackedKernel()}) {
    if (kernel != nullptr) kernels.push_back(kernel);
  }
  return kernels;
}

struct Case {
  int64_t rows, depth, width;
  bool transposed = false;
  bool bias = true;
  int64_t row_stride = 0;  // depth, unless given
  int64_t offset = 0;
  int threads = 1;
};

// The product and what it should be.
struct Products {
  at::Tensor actual, expected;
};

Products Multiply(const PackedKernel& kernel, const Case& c) {
  const int64_t row_stride = c.row_stride > 0 ? c.row_stride : c.depth;
  const at::Tensor rows = at::randn({c.rows, row_stride}).narrow(1, 0, c.depth);
  const at::Tensor storage = at::randn({c.offset + c.depth * c.width});
  const at::Tensor elements = storage.narrow(0, c.offset, c.depth * c.width);
  const at::Tensor weight = c.transposed ? elements.view({c.width, c.depth}).t()
                                         : elements.view({c.depth, c.width});
  const MatrixLayout layout{c.offset, c.depth, c.width, weight.stride(0),
                            weight.stride(1)};
  PackedMatrix packed(kernel, layout,
                      UninitialisedStorage(PackedMatrix::Bytes(kernel, layout)),
                      nullptr);
  while (!packed.Pack(storage.const_data_ptr<float>(), 1)) {
  }
  const at::Tensor bias = at::randn({c.width});
  // One more row, that must stay.
  const at::Tensor result = at::full({c.rows + 1, c.width}, 7.0f);
  const int before = at::get_num_threads();
  at::set_num_threads(c.threads);
  packed.Multiply(rows.const_data_ptr<float>(), row_stride, c.rows,
                  c.bias ? bias.const_data_ptr<float>() : nullptr,
                  result.mutable_data_ptr<float>());
  at::set_num_threads(before);
  EXPECT_TRUE(result[c.rows].eq(7.0f).all().item<bool>());
  at::Tensor expected =
      at::matmul(rows.to(at::kDouble), weight.to(at::kDouble));
  if (c.bias) expected = expected + bias.to(at::kDouble);
  return {result.narrow(0, 0, c.rows), expected};
}

void ExpectClose(const PackedKernel& kernel, const Case& c) {
  SCOPED_TRACE(absl::StrCat(kernel.name, ": ", c.rows, " x ", c.depth, " x ",
                            c.width, " threads ", c.threads));
  const Products products = Multiply(kernel, c);
  const double largest = (products.actual.to(at::kDouble) - products.expected)
                             .abs()
                             .max()
                             .item<double>();
  // Of sums of so many products of about 1.
  EXPECT_LT(largest, 2e-6 * static_cast<double>(c.depth) + 1e-5);
}

// Rows that fill tiles and do not, panels that are cut short, depths beyond
// what is taken at once, more rows than stay in the cache.
TEST(PackedMatrixTest, MultipliesEveryShape) {
  for (const PackedKernel* kernel : Kernels()) {
    for (const int64_t rows : {1, 2, 5, 6, 11, 12, 13, 25, 32, 100}) {
      for (const int64_t width : {1, 15, 16, 31, 32, 33, 64, 70}) {
        for (const int64_t depth : {1, 7, 384, 385, 1000}) {
          ExpectClose(*kernel, {.rows = rows, .depth = depth, .width = width});
        }
      }
    }
    ExpectClose(*kernel, {.rows = 700, .depth = 1600, .width = 40});
  }
}

TEST(PackedMatrixTest, TakesAnyLayoutOfItsOperands) {
  for (const PackedKernel* kernel : Kernels()) {
    for (const bool transposed : {false, true}) {
      for (const bool bias : {false, true}) {
        ExpectClose(*kernel, {.rows = 17,
                              .depth = 50,
                              .width = 45,
                              .transposed = transposed,
                              .bias = bias,
                              .row_stride = 61,
                              .offset = 13});
      }
    }
  }
}

TEST(PackedMatrixTest, ThreadsShareTheWork) {
  for (const PackedKernel* kernel : Kernels()) {
    for (const int threads : {2, 3, 8}) {
      ExpectClose(*kernel,
                  {.rows = 40, .depth = 300, .width = 333, .threads = threads});
      // More threads than pieces.
      ExpectClose(*kernel,
                  {.rows = 3, .depth = 9, .width = 10, .threads = threads});
    }
  }
}

TEST(PackedMatrixTest, NothingIsLostOfWhatIsNotFinite) {
  for (const PackedKernel* kernel : Kernels()) {
    const MatrixLayout layout{0, 4, 5, 5, 1};
    at::Tensor weight = at::full({4, 5}, 1.0f);
    weight[2][3] = std::numeric_limits<float>::infinity();
    weight[1][1] = std::numeric_limits<float>::quiet_NaN();
    PackedMatrix packed(
        *kernel, layout,
        UninitialisedStorage(PackedMatrix::Bytes(*kernel, layout)), nullptr);
    ASSERT_TRUE(packed.Pack(weight.const_data_ptr<float>(), UINT64_MAX));
    const at::Tensor rows = at::full({1, 4}, 2.0f);
    const at::Tensor result = at::full({1, 5}, 0.0f);
    packed.Multiply(rows.const_data_ptr<float>(), 4, 1, nullptr,
                    result.mutable_data_ptr<float>());
    const float* const r = result.const_data_ptr<float>();
    EXPECT_EQ(r[0], 8.0f);
    EXPECT_TRUE(std::isnan(r[1]));
    EXPECT_EQ(r[2], 8.0f);
    EXPECT_TRUE(std::isinf(r[3]));
    EXPECT_EQ(r[4], 8.0f);
  }
}

}  // namespace
}  // namespace djinn::worker
