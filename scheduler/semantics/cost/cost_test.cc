#include "scheduler/semantics/cost/cost.h"

#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {
namespace {

using Integers = std::vector<int64_t>;

Cost CostOfLast(const Builder& builder) {
  const Frame frame(builder.graph());
  return CostOf(frame, builder.last());
}

TEST(CostTest, ProductsCountTwiceForEachTerm) {
  Builder b;
  b.Linear(b.Bound({2, 5, 16}), 32);
  EXPECT_EQ(CostOfLast(b).flops, 2u * 10 * 16 * 32);
  EXPECT_EQ(CostOfLast(b).read_bytes, 4u * (160 + 512));
  EXPECT_EQ(CostOfLast(b).written_bytes, 4u * 320);
  b.Call("addmm", {b.Bound({8}), b.Bound({4, 16}), b.Bound({16, 8})}, {4, 8});
  EXPECT_EQ(CostOfLast(b).flops, 2u * 4 * 16 * 8);
  b.Call("bmm", {b.Bound({3, 4, 16}), b.Bound({3, 16, 8})}, {3, 4, 8});
  EXPECT_EQ(CostOfLast(b).flops, 2u * 3 * 4 * 16 * 8);
}

TEST(CostTest, Convolutions) {
  Builder b;
  const auto convolve = [&b](bool transposed, Shape in, Shape weight,
                             Shape out) {
    b.Call("convolution",
           {b.Bound(in), b.Bound(weight), std::monostate(), Integers{1, 1},
            Integers{0, 0}, Integers{1, 1}, transposed, Integers{0, 0},
            int64_t{1}},
           out);
    return CostOfLast(b).flops;
  };
  EXPECT_EQ(convolve(false, {2, 3, 8, 8}, {16, 3, 3, 3}, {2, 16, 6, 6}),
            2u * 2 * 36 * 16 * 3 * 9);
  EXPECT_EQ(convolve(true, {2, 16, 6, 6}, {16, 3, 3, 3}, {2, 3, 8, 8}),
            2u * 2 * 36 * 16 * 3 * 9);
}

TEST(CostTest, AttentionIsTwoProducts) {
  Builder b;
  b.Call("scaled_dot_product_attention",
         {b.Bound({2, 4, 5, 8}), b.Bound({2, 4, 7, 8}), b.Bound({2, 4, 7, 8})},
         {2, 4, 5, 8});
  EXPECT_EQ(CostOfLast(b).flops, 2u * 2 * 4 * 5 * 7 * (8 + 8));
}

TEST(CostTest, TablesAreReadByRows) {
  Builder b;
  b.Call("embedding", {b.Bound({1000, 16}), b.Integers({2, 3})}, {2, 3, 16});
  EXPECT_EQ(CostOfLast(b).flops, 0u);
  EXPECT_EQ(CostOfLast(b).read_bytes, 4u * 96 + 8 * 6);
  EXPECT_EQ(CostOfLast(b).written_bytes, 4u * 96);
}

TEST(CostTest, RepeatedElementsAreReadOnce) {
  Builder b;
  srg::TensorView repeated = b.Bound({4, 8});
  repeated.strides[0] = 0;
  b.Call("add", {repeated, b.Bound({4, 8})}, {4, 8});
  EXPECT_EQ(CostOfLast(b).read_bytes, 4u * (8 + 32));
  EXPECT_EQ(CostOfLast(b).flops, 32u);
}

TEST(CostTest, WritesInPlaceCount) {
  Builder b;
  b.Write("relu_", {b.Bound({4, 8})});
  EXPECT_EQ(CostOfLast(b).read_bytes, 128u);
  EXPECT_EQ(CostOfLast(b).written_bytes, 128u);
}

TEST(CostTest, RecurrentStepsTakeAllWeights) {
  Builder b;
  const auto state = b.Bound({1, 2, 8});
  b.Call("lstm",
         {b.Bound({2, 5, 4}), std::vector<srg::TensorListEntry>{state, state},
          std::vector<srg::TensorListEntry>{b.Bound({32, 4}), b.Bound({32, 8}),
                                            b.Bound({32})}},
         {2, 5, 8});
  EXPECT_EQ(CostOfLast(b).flops, 2u * 10 * (32 * 4 + 32 * 8));
}

}  // namespace
}  // namespace djinn::semantics
