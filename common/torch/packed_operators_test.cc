#include "common/torch/packed_operators.h"

#include <functional>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/core/stack.h"
#include "common/torch/packed_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using torch::jit::Stack;

c10::IValue Call(const char* name, Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
  return stack.at(0);
}

// Returns a packed weight of 3 rows and 4 columns, with a bias.
c10::IValue PackedLinear() {
  const at::Tensor weight = at::quantize_per_tensor(
      at::arange(12, at::kFloat).view({3, 4}), 0.1, 0, at::kQInt8);
  return Call("quantized::linear_prepack", {weight, at::ones({3})});
}

at::Tensor OnParts(const at::Tensor& input, const PackedParts& parts) {
  DefinePackedOperators();
  return Call("djinn_packed::linear_dynamic",
              {input, parts.tensors, parts.layout, true})
      .toTensor();
}

at::Tensor Original(const at::Tensor& input, const c10::IValue& weight) {
  return Call("quantized::linear_dynamic", {input, weight, true}).toTensor();
}

TEST(PackedOperatorsTest, PartsComputeTheBitsOfTheObject) {
  const c10::IValue weight = PackedLinear();
  const at::Tensor input = at::randn({2, 4});
  EXPECT_TRUE(
      at::equal(OnParts(input, TakeApart(weight)), Original(input, weight)));
}

TEST(PackedOperatorsTest, WritesOfAPartAreSeen) {
  const at::Tensor input = at::ones({2, 4});
  PackedParts parts = TakeApart(PackedLinear());
  for (at::Tensor& tensor : parts.tensors) tensor = tensor.clone();
  const at::Tensor before = OnParts(input, parts);
  EXPECT_TRUE(at::equal(before, OnParts(input, parts)));
  for (at::Tensor& tensor : parts.tensors) {
    const at::Tensor first = OnParts(input, parts);
    tensor.add_(1);
    EXPECT_FALSE(at::equal(first, OnParts(input, parts))) << tensor;
  }
}

TEST(PackedOperatorsTest, AThreadsSourceProvidesTheObjects) {
  class Source final : public PackedSource {
   public:
    c10::IValue Get(const c10::Type&, at::TensorList tensors,
                    c10::IntArrayRef) override {
      asked = tensors.size();
      return PackedLinear();
    }
    size_t asked = 0;
  } source;
  const at::Tensor input = at::ones({1, 4});
  PackedParts parts = TakeApart(PackedLinear());
  parts.tensors[0] = at::zeros_like(parts.tensors[0]);
  const at::Tensor zeros = OnParts(input, parts);
  {
    const UsePackedSource use(&source);
    EXPECT_TRUE(
        at::equal(OnParts(input, parts), Original(input, PackedLinear())));
  }
  EXPECT_EQ(source.asked, parts.tensors.size());
  EXPECT_TRUE(at::equal(OnParts(input, parts), zeros));
}

TEST(PackedOperatorsTest, PartsThatDoNotBelongTogetherAreRefused) {
  const at::Tensor input = at::ones({2, 4});
  const PackedParts good = TakeApart(PackedLinear());
  ASSERT_EQ(good.tensors.size(), 4);
  const auto error_of = [&](const std::function<void(PackedParts*)>& change) {
    PackedParts parts = good;
    change(&parts);
    try {
      OnParts(input, parts);
      return std::string("none");
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
  };
  EXPECT_EQ(error_of([](PackedParts*) {}), "none");
  EXPECT_THAT(error_of([](PackedParts* parts) { parts->layout = {}; }),
              HasSubstr("no description"));
  EXPECT_THAT(error_of([](PackedParts* parts) { parts->layout[0] = 7; }),
              HasSubstr("unknown scheme, 7"));
  EXPECT_THAT(error_of([](PackedParts* parts) { parts->tensors.pop_back(); }),
              HasSubstr("too few parts"));
  EXPECT_THAT(error_of([](PackedParts* parts) {
                parts->tensors.push_back(parts->tensors[0]);
              }),
              HasSubstr("parts too many"));
  EXPECT_THAT(error_of([](PackedParts* parts) {
                parts->tensors[0] = parts->tensors[0].to(at::kByte);
              }),
              HasSubstr("matrix of int8"));
  EXPECT_THAT(error_of([](PackedParts* parts) {
                parts->tensors[1] = at::ones({2}, at::kDouble);
              }),
              HasSubstr("1 scales"));
  EXPECT_THAT(error_of([](PackedParts* parts) {
                parts->tensors[2] = at::full({1}, 300, at::kLong);
              }),
              HasSubstr("zero point outside int8"));
  EXPECT_THAT(
      error_of([](PackedParts* parts) { parts->tensors[3] = at::ones({2}); }),
      HasSubstr("must have 3 elements"));
}

TEST(PackedOperatorsTest, ObjectsOfOtherKindsStay) {
  const at::Tensor table = at::quantize_per_channel(
      at::ones({3, 4}), at::ones({3}), at::zeros({3}), 0, at::kQUInt8);
  EXPECT_THROW(TakeApart(Call("quantized::embedding_bag_prepack", {table})),
               c10::NotImplementedError);
}

}  // namespace
}  // namespace djinn
