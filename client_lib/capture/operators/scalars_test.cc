#include "client_lib/capture/operators/scalars.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

// Returns the marks in the key of add(tensors[0], tensors[1], alpha=number).
std::string MarksOf(const std::vector<at::Tensor>& tensors,
                    const c10::Scalar& number) {
  static const OperatorInfo* const info = new OperatorInfo(
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor"));
  std::string key = "call";
  AppendOverflows(*info, {tensors[0], tensors[1], number}, &key);
  return key.substr(4);
}

at::Tensor Zeros(c10::ScalarType type) { return at::zeros({2}, type); }

TEST(ScalarsTest, KeyHasAMarkForEachOverflow) {
  const at::Tensor bytes = Zeros(at::kByte), floats = Zeros(at::kFloat);
  EXPECT_EQ(MarksOf({bytes, bytes}, 2), "");
  EXPECT_EQ(MarksOf({bytes, bytes}, 255), "");
  EXPECT_EQ(MarksOf({bytes, bytes}, 256).size(), 4u);
  EXPECT_EQ(MarksOf({bytes, floats}, 256).size(), 2u);
  EXPECT_NE(MarksOf({bytes, floats}, 256), MarksOf({floats, bytes}, 256));
}

TEST(ScalarsTest, EveryKindOfNumberIsChecked) {
  const at::Tensor bytes = Zeros(at::kByte), halves = Zeros(at::kHalf),
                   floats = Zeros(at::kFloat), flags = Zeros(at::kBool);
  EXPECT_EQ(MarksOf({bytes, bytes}, true), "");
  EXPECT_EQ(MarksOf({bytes, bytes}, -1), "");
  EXPECT_NE(MarksOf({bytes, bytes}, -1.5), "");
  EXPECT_EQ(MarksOf({floats, floats}, -1e30), "");
  EXPECT_NE(MarksOf({floats, floats}, 1e300), "");
  EXPECT_EQ(MarksOf({halves, halves}, 65504.0), "");
  EXPECT_NE(MarksOf({halves, halves}, 1e9), "");
  EXPECT_EQ(MarksOf({halves, halves}, std::numeric_limits<double>::infinity()),
            "");
  EXPECT_EQ(MarksOf({flags, flags}, 300), "");
  EXPECT_NE(MarksOf({floats, floats}, c10::complex<double>(0, 1)), "");
  EXPECT_NE(MarksOf({Zeros(at::kLong), Zeros(at::kLong)},
                    std::numeric_limits<uint64_t>::max()),
            "");
}

TEST(ScalarsTest, OverflowRaisesPyTorchsError) {
  EXPECT_NO_THROW(CheckFits(at::kByte, 255));
  try {
    CheckFits(at::kByte, 256);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(),
                 "value cannot be converted to type uint8_t without overflow");
  }
}

}  // namespace
}  // namespace djinn::capture
