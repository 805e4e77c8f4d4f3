#include "gpu_worker/plan/result_check.h"

#include <cstring>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

srg::TensorView View(srg::Dimensions sizes, srg::Dimensions strides) {
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = std::move(sizes);
  view.strides = std::move(strides);
  return view;
}

class ResultCheckTest : public testing::Test {
 protected:
  // Makes a result of these values in memory of its own.
  NodeResult Fresh(const std::vector<float>& values, srg::TensorView view) {
    NodeResult result;
    result.buffer = device_.Allocate(values.size() * sizeof(float)).value();
    const std::string bytes(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(float));
    EXPECT_TRUE(device_.Write(result.buffer.get(), 0, bytes).ok());
    result.view = std::move(view);
    return result;
  }

  FakeDevice device_{1 << 20};
};

TEST_F(ResultCheckTest, ResultWithOtherStridesIsCopied) {
  NodeResult result = Fresh({1, 2, 3, 4, 5, 6}, View({2, 3}, {3, 1}));
  const srg::TensorView inferred = View({2, 3}, {1, 2});
  EXPECT_TRUE(CheckMetadata(inferred, result).ok());
  ASSERT_TRUE(NeedsCopy(&inferred, result));
  const auto copy =
      CopyResult(&device_, &inferred, result.buffer, &result.view).value();
  const std::vector<float> due = {1, 4, 2, 5, 3, 6};
  EXPECT_EQ(std::memcmp(device_.HostBytes(copy)->bytes.data(), due.data(),
                        due.size() * sizeof(float)),
            0);
  EXPECT_EQ(result.view.strides, inferred.strides);
}

TEST_F(ResultCheckTest, StridesOfDimensionsOfOneElementDoNotCount) {
  const NodeResult result = Fresh({1, 2}, View({1, 2}, {7, 1}));
  const srg::TensorView inferred = View({1, 2}, {2, 1});
  EXPECT_TRUE(CheckMetadata(inferred, result).ok());
  EXPECT_FALSE(NeedsCopy(&inferred, result));
}

TEST_F(ResultCheckTest, NoCopyLiesWithGaps) {
  const NodeResult result = Fresh({1, 2, 3, 4}, View({2, 2}, {2, 1}));
  EXPECT_EQ(ErrorReason(CheckMetadata(View({2, 2}, {4, 1}), result)),
            "METADATA_MISMATCH");
}

TEST_F(ResultCheckTest, OtherSizesAndTypesAreWrong) {
  const NodeResult result = Fresh({1, 2, 3, 4}, View({2, 2}, {2, 1}));
  EXPECT_EQ(ErrorReason(CheckMetadata(View({4}, {1}), result)),
            "METADATA_MISMATCH");
  srg::TensorView other = View({2, 2}, {2, 1});
  other.data_type = srg::DataType::kInt32;
  EXPECT_EQ(ErrorReason(CheckMetadata(other, result)), "METADATA_MISMATCH");
}

}  // namespace
}  // namespace djinn::worker
