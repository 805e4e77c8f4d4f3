#include "gpu_worker/device/cpu/product_trial.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/randn.h"
#include "absl/status/status.h"
#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr uint32_t kBias = 0, kRows = 1, kWeight = 2;

const float* FloatsOf(const NodeInput& input, uint32_t slot) {
  return reinterpret_cast<const float*>(
      static_cast<const TorchBuffer&>(*input.slots[slot]).data());
}

// addmm of dense rows with a transposed weight, summed up in an order of the
// test's.
class ProductTrialTest : public testing::Test {
 protected:
  void SetUp() override {
    if (BestPackedKernel() == nullptr) GTEST_SKIP() << "no kernel here";
  }

  std::optional<PackedCall> Product(int64_t rows, int64_t depth) {
    const EncodedCall call =
        tester_.Encode("aten::addmm", "",
                       {at::randn({width_}), at::randn({rows, depth}),
                        at::randn({width_, depth}).t()},
                       {at::randn({rows, width_})});
    const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "");
    operands_ = call.slots;
    return PackedCall::Match(
        op.schema(), BuildCallTemplate(op.schema(), call.node().arguments,
                                       c10::Device(c10::kCPU))
                         .value());
  }
  ProductFacts Try(int64_t rows, int64_t depth, const SumOrder& together,
                   const SumOrder& alone, const ProductFacts* hint = nullptr) {
    const std::optional<PackedCall> product = Product(rows, depth);
    if (!product.has_value()) {
      ADD_FAILURE() << "no product";
      return {};
    }
    return TryProduct(
        *product,
        [&](const NodeInput& input, std::vector<NodeResult>* results) {
          ++calls_;
          if (!status_.ok()) return status_;
          const SumOrder& order = at::get_num_threads() == 1 ? alone : together;
          Sum(rows, depth, order, input, results);
          return absl::OkStatus();
        },
        hint);
  }

  void Sum(int64_t rows, int64_t depth, const SumOrder& order,
           const NodeInput& input, std::vector<NodeResult>* results) {
    c10::Storage storage =
        UninitialisedStorage(static_cast<uint64_t>(rows * width_) * 4);
    auto* const to = static_cast<float*>(storage.mutable_data());
    const int64_t part = order.PartOf(depth);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t w = 0; w < width_; ++w) {
        const float* const a = FloatsOf(input, kRows) + r * depth;
        const float* const b = FloatsOf(input, kWeight) + w * depth;
        float total = 0;
        for (int64_t begin = 0; begin < depth; begin += part) {
          const int64_t end = std::min(begin + part, depth);
          const float bias = FloatsOf(input, kBias)[w];
          // -0 and what is added to it is that.
          float sum = begin > 0 ? -0.0f : bias_last_ ? 0.0f : bias;
          for (int64_t from = begin; from < end; from += order.block) {
            float block = 0;
            for (int64_t d = from; d < std::min(from + order.block, end); ++d) {
              block = std::fma(a[d], b[d], block);
            }
            sum += block;
          }
          total = begin == 0 ? sum : total + sum;
        }
        if (bias_last_) total += FloatsOf(input, kBias)[w];
        to[r * width_ + w] = total;
      }
    }
    NodeResult result;
    result.view.data_type = srg::DataType::kFloat32;
    result.view.sizes = {rows, width_};
    result.view.strides = {width_, 1};
    result.buffer = std::make_shared<TorchBuffer>(std::move(storage));
    results->push_back(std::move(result));
  }

  // On other operands than those that were made up.
  std::string BytesOfSum(int64_t rows, int64_t depth, const SumOrder& order) {
    NodeInput input;
    input.slots = operands_;
    std::vector<NodeResult> results;
    Sum(rows, depth, order, input, &results);
    return ProgramTester::BytesOf(*results[0].buffer);
  }

  int64_t width_ = 40;
  // To a sum that begins with zero, as MKL's does in small products.
  bool bias_last_ = false;
  ProgramTester tester_;
  std::vector<std::shared_ptr<Buffer>> operands_;
  absl::Status status_;
  int calls_ = 0;
};

TEST_F(ProductTrialTest, NobodyLaysDeepRowsOutAnew) {
  constexpr int64_t kMost = (1 << 20) / kLanes;
  EXPECT_TRUE(Product(kLanes, kMost)->has_few_rows());
  EXPECT_FALSE(Product(kLanes + 1, kMost)->has_few_rows());
  EXPECT_FALSE(Product(1, kMost + 1)->has_few_rows());
}

TEST_F(ProductTrialTest, FindsEveryOrderThatItTries) {
  for (const int64_t rows : {8, 20}) {
    for (const int64_t depth : {100, 513, 784, 1000}) {
      for (const SumOrder& order : OrdersToTry(depth, 2)) {
        const ProductFacts facts = Try(rows, depth, order, order);
        EXPECT_TRUE(facts.alone_is_equal);
        ASSERT_TRUE(facts.order.has_value());
        // Another one may mean the same.
        EXPECT_EQ(BytesOfSum(rows, depth, *facts.order),
                  BytesOfSum(rows, depth, order))
            << depth << ": " << order.parts << " " << order.block;
      }
    }
  }
}

TEST_F(ProductTrialTest, AnOrderWithOtherSignsOfZeroIsNone) {
  const SumOrder order{1, 100};
  EXPECT_TRUE(Try(8, 100, order, order).order.has_value());
  bias_last_ = true;
  const ProductFacts facts = Try(8, 100, order, order);
  EXPECT_TRUE(facts.alone_is_equal);
  EXPECT_FALSE(facts.order.has_value());
}

TEST_F(ProductTrialTest, SeesThatOneThreadDiffers) {
  const ProductFacts facts = Try(20, 784, {2, 196}, {1, 384});
  EXPECT_FALSE(facts.alone_is_equal);
  EXPECT_EQ(facts.order, (SumOrder{2, 196}));
}

TEST_F(ProductTrialTest, AnUnknownOrderIsNone) {
  const ProductFacts facts = Try(20, 784, {1, 100}, {1, 100});
  EXPECT_TRUE(facts.alone_is_equal);
  EXPECT_FALSE(facts.order.has_value());
}

TEST_F(ProductTrialTest, FewElementsMatchNoOrderByChance) {
  for (width_ = 1; width_ <= 2; ++width_) {
    for (const int64_t depth : {1024, 1536, 2048, 3072, 4096}) {
      EXPECT_FALSE(Try(1, depth, {1, 100}, {1, 100}).order.has_value())
          << depth;
      EXPECT_FALSE(Try(1, depth, {1, 384}, {1, 100}).alone_is_equal) << depth;
    }
  }
}

TEST_F(ProductTrialTest, AHintIsComparedLikeAnyOtherOrder) {
  const SumOrder real{2, 196}, other{1, 384};
  const ProductFacts right{.alone_is_equal = false, .order = real};
  ProductFacts facts = Try(20, 784, real, other, &right);
  EXPECT_FALSE(facts.alone_is_equal);
  EXPECT_EQ(facts.order, real);
  // Once for sums and once for signs: one thread is not tried.
  EXPECT_EQ(calls_, 2);
  // Of what a wrong one says nothing is believed.
  const ProductFacts wrong{.alone_is_equal = true, .order = other};
  facts = Try(20, 784, real, other, &wrong);
  EXPECT_FALSE(facts.alone_is_equal);
  EXPECT_EQ(facts.order, real);
  const ProductFacts absurd{.alone_is_equal = true, .order = SumOrder{0, -1}};
  facts = Try(20, 784, real, other, &absurd);
  EXPECT_FALSE(facts.alone_is_equal);
  EXPECT_EQ(facts.order, real);
  // That nothing is equal is always right.
  const ProductFacts nothing;
  facts = Try(20, 784, real, real, &nothing);
  EXPECT_FALSE(facts.alone_is_equal);
  EXPECT_FALSE(facts.order.has_value());
}

TEST_F(ProductTrialTest, NothingIsEqualWhereSomethingFails) {
  status_ = absl::InternalError("no");
  const ProductFacts facts = Try(20, 784, {1, 384}, {1, 384});
  EXPECT_EQ(calls_, 1);
  EXPECT_FALSE(facts.alone_is_equal);
  EXPECT_FALSE(facts.order.has_value());
}

TEST_F(ProductTrialTest, LargeOnesAreNotTried) {
  const int64_t depth = kMaxTrialBytes / (width_ * sizeof(float));
  const ProductFacts facts = Try(1, depth, {1, 384}, {1, 384});
  EXPECT_EQ(calls_, 0);
  EXPECT_FALSE(facts.order.has_value());
}

TEST(OrdersToTryTest, NamesEachOnce) {
  for (const int64_t depth : {1, 2, 384, 385, 784, 5000}) {
    const std::vector<SumOrder> orders = OrdersToTry(depth, 4);
    ASSERT_FALSE(orders.empty());
    for (size_t i = 0; i < orders.size(); ++i) {
      EXPECT_GE(orders[i].block, 1);
      EXPECT_LE(orders[i].parts, depth);
      EXPECT_EQ(std::count(orders.begin(), orders.end(), orders[i]), 1);
    }
  }
}

}  // namespace
}  // namespace djinn::worker
