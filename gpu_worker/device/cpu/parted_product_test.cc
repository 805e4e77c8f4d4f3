#include "gpu_worker/device/cpu/parted_product.h"

#include <algorithm>
#include <memory>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/randn.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

const c10::FunctionSchema& SchemaOf(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").schema();
}

// A call with these operands in slots 0 and 1, and its input.
struct Call {
  Call(const at::Tensor& left, const at::Tensor& right) {
    uint32_t slot = 0;
    for (const at::Tensor& tensor : {left, right}) {
      Operand operand;
      EXPECT_TRUE(DescribeTensor(tensor, &operand.view));
      operand.view.slot = slot;
      operand.extent_bytes = tensor.storage().nbytes();
      slots.push_back(std::make_shared<TorchBuffer>(tensor.storage()));
      call.places.push_back({.argument = slot++, .source = operand});
    }
    input.slots = slots;
  }

  std::vector<std::shared_ptr<Buffer>> slots;
  CallTemplate call;
  NodeInput input;
};

at::Tensor ResultOf(const NodeResult& result) {
  return MakeTensor(result.view,
                    static_cast<const TorchBuffer&>(*result.buffer).storage());
}

TEST(PartedProductTest, EveryWayIsTheProductOfItsParts) {
  const ThreadScope threads(/*one_thread=*/true);
  const at::Tensor left = at::randn({8, 10}).t();
  const at::Tensor right = at::randn({8, 33});
  const Call call(left, right);
  const auto product =
      PartedProduct::Match(SchemaOf("aten::mm"), call.call, /*threads=*/2);
  ASSERT_TRUE(product.has_value());
  // Rows in fives, sixes and eights; columns by 17, 18, 20, 24 and 32.
  ASSERT_EQ(product->ways(), 8u);
  for (size_t way = 0; way < product->ways(); ++way) {
    std::vector<NodeResult> results;
    ASSERT_TRUE(product->Run(way, call.input, &results).ok());
    ASSERT_EQ(results.size(), 1u);
    // Sums of eight in another order: near zero, what is left of them differs.
    EXPECT_TRUE(ResultOf(results[0])
                    .allclose(at::mm(left, right), /*rtol=*/1e-5,
                              /*atol=*/1e-6));
  }
  std::vector<NodeResult> results;
  ASSERT_TRUE(product->Run(/*way=*/2, call.input, &results).ok());
  const at::Tensor eights = ResultOf(results[0]);
  EXPECT_TRUE(
      eights.narrow(0, 0, 8).equal(at::mm(left.narrow(0, 0, 8), right)));
  EXPECT_TRUE(
      eights.narrow(0, 8, 2).equal(at::mm(left.narrow(0, 8, 2), right)));
}

TEST(PartedProductTest, OtherCallsAreNot) {
  const at::Tensor matrix = at::randn({4, 4});
  const Call call(matrix, matrix);
  EXPECT_TRUE(PartedProduct::Match(SchemaOf("aten::mm"), call.call, 2));
  EXPECT_FALSE(PartedProduct::Match(SchemaOf("aten::bmm"), call.call, 2));
  EXPECT_FALSE(PartedProduct::Match(SchemaOf("aten::mm"), call.call, 1));
  const Call doubles(matrix.to(at::kDouble), matrix.to(at::kDouble));
  EXPECT_FALSE(PartedProduct::Match(SchemaOf("aten::mm"), doubles.call, 2));
  const Call single(at::randn({1, 4}), at::randn({4, 1}));
  EXPECT_FALSE(PartedProduct::Match(SchemaOf("aten::mm"), single.call, 2));
}

TEST(PartedProductTest, WithoutItsOperandsNothingHappens) {
  const at::Tensor matrix = at::randn({4, 4});
  Call call(matrix, matrix);
  const auto product = PartedProduct::Match(SchemaOf("aten::mm"), call.call, 2);
  ASSERT_TRUE(product.has_value());
  call.slots[1] = std::make_shared<TorchBuffer>(UninitialisedStorage(8));
  call.input.slots = call.slots;
  std::vector<NodeResult> results;
  EXPECT_FALSE(product->Run(0, call.input, &results).ok());
  EXPECT_TRUE(results.empty());
}

}  // namespace
}  // namespace djinn::worker
