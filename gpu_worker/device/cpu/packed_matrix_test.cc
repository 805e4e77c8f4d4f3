#include "gpu_worker/device/cpu/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
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
#include "gpu_worker/device/torch/torch_buffer.h"
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
  SumOrder order;
};

// The product and what it should be.
struct Products {
  at::Tensor actual, expected;
  at::Tensor rows, weight, bias;
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
                  c.bias ? bias.const_data_ptr<float>() : nullptr, c.order,
                  result.mutable_data_ptr<float>());
  at::set_num_threads(before);
  EXPECT_TRUE(result[c.rows].eq(7.0f).all().item<bool>());
  at::Tensor expected =
      at::matmul(rows.to(at::kDouble), weight.to(at::kDouble));
  if (c.bias) expected = expected + bias.to(at::kDouble);
  return {result.narrow(0, 0, c.rows), expected, rows, weight, bias};
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

TEST(PackedMatrixTest, WritesNothingOfNoRows) {
  for (const PackedKernel* kernel : Kernels()) {
    Multiply(*kernel, {.rows = 0, .depth = 40, .width = 40, .threads = 2});
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

// By the definition of SumOrder, one element at a time.
float SumOf(const float* row, const float* weight, int64_t weight_stride,
            int64_t depth, const SumOrder& order, float bias) {
  float total = 0;
  const int64_t part = order.PartOf(depth);
  for (int64_t begin = 0; begin < depth; begin += part) {
    const int64_t end = std::min(begin + part, depth);
    float sum = begin == 0 ? bias : 0;
    for (int64_t from = begin; from < end; from += order.block) {
      float block = 0;
      for (int64_t d = from; d < std::min(from + order.block, end); ++d) {
        block = std::fma(row[d], weight[d * weight_stride], block);
      }
      sum += block;
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

constexpr SumOrder kOrders[] = {{1, 384}, {1, 7}, {1, 2000}, {2, 384},
                                {2, 13},  {3, 9}, {4, 1}};

TEST(PackedMatrixTest, SumsInTheOrderAskedFor) {
  for (const PackedKernel* kernel : Kernels()) {
    for (const SumOrder& order : kOrders) {
      for (const int threads : {1, 2}) {
        // Panels that are cut short, and more rows than are taken at once.
        for (const int64_t rows : {1, 13, 1700}) {
          const Case c{.rows = rows,
                       .depth = 333,
                       .width = 50,
                       .threads = threads,
                       .order = order};
          const Products products = Multiply(*kernel, c);
          const float* const actual = products.actual.const_data_ptr<float>();
          for (const int64_t r : {int64_t{0}, rows / 2, rows - 1}) {
            for (int64_t w = 0; w < c.width; ++w) {
              ASSERT_EQ(actual[r * c.width + w],
                        SumOf(products.rows.const_data_ptr<float>() +
                                  r * products.rows.stride(0),
                              products.weight.const_data_ptr<float>() +
                                  w * products.weight.stride(1),
                              products.weight.stride(0), c.depth, order,
                              products.bias.const_data_ptr<float>()[w]))
                  << kernel->name << " " << order.parts << " " << order.block;
            }
          }
        }
      }
    }
  }
}

TEST(PackedKernelTest, ASumOfWhatVanishesHasTheSignOfItsBias) {
  constexpr int64_t kDepth = 5;
  for (const PackedKernel* kernel : Kernels()) {
    const int64_t width = kernel->panel_width;
    const std::vector<float> rows(kDepth, -1e-30f);
    const std::vector<float> panel(kDepth * width, 1e-30f);
    const std::vector<float> minus(width, -0.0f);
    std::vector<float> lanes(kDepth * kLanes);
    for (int64_t d = 0; d < kDepth; ++d) lanes[d * kLanes] = -1e-30f;
    for (const bool biased : {false, true}) {
      const auto expect_zeros = [&](const std::vector<float>& sums) {
        for (const float sum : sums) {
          EXPECT_EQ(sum, 0);
          EXPECT_EQ(std::signbit(sum), biased) << kernel->name;
        }
      };
      std::vector<float> result(width, 1);
      PanelProduct product;
      product.rows = rows.data();
      product.row_stride = kDepth;
      product.row_count = 1;
      product.depth = kDepth;
      product.panel = panel.data();
      product.bias = biased ? minus.data() : nullptr;
      product.result = result.data();
      product.result_stride = width;
      kernel->multiply(product);
      expect_zeros(result);
      ColumnsProduct few;
      few.lanes = lanes.data();
      few.row_count = 1;
      few.depth = kDepth;
      few.columns = panel.data();
      few.column_stride = kDepth;
      few.width = width;
      few.bias = biased ? minus.data() : nullptr;
      few.result = result.data();
      few.result_stride = width;
      result.assign(width, 1);
      kernel->multiply_columns(few);
      expect_zeros(result);
    }
  }
}

TEST(PackedKernelTest, MultipliesFewRowsWithColumnsAsTheyAre) {
  constexpr int64_t kDepth = 333, kStride = 340;
  for (const PackedKernel* kernel : Kernels()) {
    for (const SumOrder& order : kOrders) {
      for (const int64_t rows : {1, 8, 9, 16}) {
        for (const int64_t width : {1, 6, 12, 13, 50}) {
          for (const bool with_bias : {false, true}) {
            const at::Tensor lanes = at::full({kDepth, kLanes}, 0.0f);
            lanes.narrow(1, 0, rows).copy_(at::randn({kDepth, rows}));
            const at::Tensor row_major = lanes.t().contiguous();
            const at::Tensor columns = at::randn({width, kStride});
            const at::Tensor bias = at::randn({width});
            // A column and a row more, that must stay.
            const at::Tensor result = at::full({rows + 1, width + 1}, 7.0f);
            kernel->multiply_columns(
                {.lanes = lanes.const_data_ptr<float>(),
                 .row_count = rows,
                 .depth = kDepth,
                 .columns = columns.const_data_ptr<float>(),
                 .column_stride = kStride,
                 .width = width,
                 .order = order,
                 .bias = with_bias ? bias.const_data_ptr<float>() : nullptr,
                 .result = result.mutable_data_ptr<float>(),
                 .result_stride = width + 1});
            EXPECT_TRUE(result[rows].eq(7.0f).all().item<bool>());
            EXPECT_TRUE(result.select(1, width).eq(7.0f).all().item<bool>());
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t w = 0; w < width; ++w) {
                ASSERT_EQ(
                    result.const_data_ptr<float>()[r * (width + 1) + w],
                    SumOf(row_major.const_data_ptr<float>() + r * kDepth,
                          columns.const_data_ptr<float>() + w * kStride, 1,
                          kDepth, order,
                          with_bias ? bias.const_data_ptr<float>()[w] : 0.0f))
                    << kernel->name << " " << rows << " x " << width;
              }
            }
          }
        }
      }
    }
  }
}

TEST(PackedMatrixTest, ARowIsTheSameWhateverTheOthersAre) {
  constexpr int64_t kRows = 26, kDepth = 1000, kWidth = 70;
  const at::Tensor rows = at::randn({kRows, kDepth});
  rows[3][5] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor weight = at::randn({kDepth, kWidth});
  const at::Tensor bias = at::randn({kWidth});
  const MatrixLayout layout{0, kDepth, kWidth, kWidth, 1};
  for (const PackedKernel* kernel : Kernels()) {
    PackedMatrix packed(
        *kernel, layout,
        UninitialisedStorage(PackedMatrix::Bytes(*kernel, layout)), nullptr);
    ASSERT_TRUE(packed.Pack(weight.const_data_ptr<float>(), UINT64_MAX));
    const at::Tensor together = at::full({kRows, kWidth}, 0.0f);
    packed.Multiply(rows.const_data_ptr<float>(), kDepth, kRows,
                    bias.const_data_ptr<float>(), SumOrder(),
                    together.mutable_data_ptr<float>());
    for (int64_t row = 0; row < kRows; ++row) {
      const at::Tensor alone = at::full({kWidth}, 0.0f);
      packed.Multiply(rows[row].const_data_ptr<float>(), kDepth, 1,
                      bias.const_data_ptr<float>(), SumOrder(),
                      alone.mutable_data_ptr<float>());
      EXPECT_EQ(std::memcmp(alone.const_data_ptr(),
                            together[row].const_data_ptr(), alone.nbytes()),
                0)
          << kernel->name << " row " << row;
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
    packed.Multiply(rows.const_data_ptr<float>(), 4, 1, nullptr, SumOrder(),
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
