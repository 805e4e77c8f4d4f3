// Tests that packed weights are packed once, that no change of a part leaves an
// old object in use, and that the objects stay within their limits.
#include "gpu_worker/device/cpu/packed_objects.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "c10/core/InferenceMode.h"
#include "common/torch/packed_operators.h"
#include "gpu_worker/device/cpu/fake_spare_memory.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kIn = 8, kOut = 4;
// Bytes of a weight's parts: its numbers, a scale and a zero point.
constexpr uint64_t kPartBytes = kIn * kOut + 8 + 8;
constexpr uint64_t kObjectBytes = 2 * kPartBytes;

std::shared_ptr<Buffer> BufferOf(const at::Tensor& tensor) {
  return std::make_shared<TorchBuffer>(tensor.clone().storage());
}

// A packed weight's parts as buffers.
struct Weight {
  explicit Weight(int value)
      : slots({BufferOf(at::full({kOut, kIn}, value, at::kChar)),
               BufferOf(at::ones({1}, at::kDouble)),
               BufferOf(at::zeros({1}, at::kLong))}) {}

  at::Tensor Part(size_t slot) const {
    constexpr c10::ScalarType kTypes[] = {at::kChar, at::kDouble, at::kLong};
    const auto& buffer = static_cast<const TorchBuffer&>(*slots[slot]);
    const at::Tensor flat = at::empty({0}, kTypes[slot]).set_(buffer.storage());
    return slot == 0 ? flat.view({kOut, kIn}) : flat;
  }
  void Write(size_t slot, int value) const {
    static_cast<const TorchBuffer&>(*slots[slot]).WillBeWritten();
    Part(slot).fill_(value);
  }

  std::vector<std::shared_ptr<Buffer>> slots;
};

class PackedObjectsTest : public testing::Test {
 protected:
  void SetUp() override {
    DefinePackedOperators();
    objects_.SetSpareMemory(&spare_);
  }
  void TearDown() override { objects_.SetSpareMemory(nullptr); }

  // Returns an element of a product of ones and the weight.
  float Multiply(const Weight& weight) {
    const c10::InferenceMode inference;
    NodeInput input{weight.slots, {}, {}};
    input.tenant = &tenant_;
    const std::vector<uint32_t> seen = {0, 1, 2};
    const PackedObjects::ForCall objects(&objects_, input, seen);
    torch::jit::Stack stack = {
        at::ones({1, kIn}),
        std::vector{weight.Part(0), weight.Part(1), weight.Part(2)},
        std::vector<int64_t>{1, 0}, true};
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("djinn_packed::linear_dynamic", "")
        .callBoxed(stack);
    return stack[0].toTensor()[0][0].item<float>();
  }

  // The number of times that a weight was packed and kept.
  size_t packed() const { return spare_.tenants.size(); }

  const std::string tenant_ = "tenant";
  FakeSpareMemory spare_;
  PackedObjects objects_{4 * kObjectBytes};
};

TEST_F(PackedObjectsTest, AnUnchangedWeightIsPackedOnce) {
  const Weight weight(2);
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(Multiply(weight), 16);
  EXPECT_EQ(spare_.tenants, std::vector<std::string>{tenant_});
  EXPECT_EQ(spare_.used(), kObjectBytes);
  EXPECT_EQ(objects_.bytes(), kObjectBytes);
}

TEST_F(PackedObjectsTest, AWriteOfAnyPartIsSeen) {
  const Weight weight(2);
  EXPECT_FLOAT_EQ(Multiply(weight), 16);
  weight.Write(0, 3);
  EXPECT_EQ(spare_.used(), 0u);
  EXPECT_FLOAT_EQ(Multiply(weight), 24);
  weight.Write(1, 2);
  EXPECT_FLOAT_EQ(Multiply(weight), 48);
  weight.Write(2, 1);
  EXPECT_FLOAT_EQ(Multiply(weight), 32);
  EXPECT_EQ(packed(), 4u);
}

TEST_F(PackedObjectsTest, AnObjectEndsWithItsBuffer) {
  {
    EXPECT_FLOAT_EQ(Multiply(Weight(2)), 16);
  }
  EXPECT_EQ(spare_.used(), 0u);
  EXPECT_EQ(objects_.bytes(), 0u);
}

TEST_F(PackedObjectsTest, ObjectsThatAWrittenPartMadeUselessAreBounded) {
  const Weight weight(2);
  for (int i = 0; i < 20; ++i) {
    weight.Write(1, i + 1);
    EXPECT_FLOAT_EQ(Multiply(weight), 16 * (i + 1));
    EXPECT_LE(objects_.bytes(), 4 * kObjectBytes);
  }
}

TEST_F(PackedObjectsTest, TheLeastRecentlyUsedObjectsMakeRoom) {
  std::vector<Weight> weights;
  for (int i = 1; i <= 4; ++i) weights.emplace_back(i);
  for (int i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(Multiply(weights[i]), 8 * (i + 1));
  EXPECT_FLOAT_EQ(Multiply(weights[0]), 8);
  EXPECT_EQ(packed(), 4u);
  const Weight fifth(5);
  EXPECT_FLOAT_EQ(Multiply(fifth), 40);
  EXPECT_EQ(objects_.bytes(), 4 * kObjectBytes);
  EXPECT_FLOAT_EQ(Multiply(weights[0]), 8);
  EXPECT_EQ(packed(), 5u);
  EXPECT_FLOAT_EQ(Multiply(weights[1]), 16);
  EXPECT_EQ(packed(), 6u);
}

TEST_F(PackedObjectsTest, WithoutMemoryAWeightIsPackedForTheCall) {
  spare_.limit = kObjectBytes - 1;
  const Weight weight(2);
  for (int i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(Multiply(weight), 16);
  EXPECT_EQ(packed(), 2u);
  EXPECT_EQ(objects_.bytes(), 0u);
}

TEST_F(PackedObjectsTest, PressureReleasesObjects) {
  const Weight one(1), two(2);
  Multiply(one);
  Multiply(two);
  EXPECT_EQ(objects_.Release(1), kObjectBytes);
  EXPECT_EQ(spare_.used(), kObjectBytes);
  EXPECT_FLOAT_EQ(Multiply(two), 16);
  EXPECT_EQ(packed(), 2u);
  EXPECT_FLOAT_EQ(Multiply(one), 8);
  EXPECT_EQ(packed(), 3u);
}

}  // namespace
}  // namespace djinn::worker
