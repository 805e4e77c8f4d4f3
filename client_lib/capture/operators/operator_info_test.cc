#include "client_lib/capture/operators/operator_info.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::ElementsAre;

OperatorInfo InfoOf(const char* name, const char* overload = "") {
  return OperatorInfo(
      c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

TEST(OperatorInfoTest, FunctionalOperatorReturnsANewTensor) {
  const OperatorInfo info = InfoOf("aten::add", "Tensor");
  EXPECT_EQ(info.name, "aten::add.Tensor");
  EXPECT_TRUE(info.fresh_results);
  EXPECT_FALSE(info.writes || info.is_view || info.is_out || info.may_draw);
  EXPECT_THAT(info.returned_arguments, ElementsAre(-1));
  EXPECT_EQ(info.arguments[0].kind, ArgumentKind::kTensor);
  EXPECT_EQ(info.arguments[2].kind, ArgumentKind::kScalar);
  EXPECT_TRUE(info.takes_numbers);
  EXPECT_EQ(info.refusal, "");
}

TEST(OperatorInfoTest, InPlaceOperatorReturnsItsArgument) {
  const OperatorInfo info = InfoOf("aten::add_", "Tensor");
  EXPECT_TRUE(info.writes);
  EXPECT_FALSE(info.fresh_results || info.is_out);
  EXPECT_THAT(info.returned_arguments, ElementsAre(0));
  EXPECT_EQ(info.arguments[0].access, kWrites);
  EXPECT_EQ(info.arguments[1].access, kReads);
  EXPECT_TRUE(info.output_rules.elementwise);
}

TEST(OperatorInfoTest, OutOperatorMarksItsOutput) {
  const OperatorInfo info = InfoOf("aten::add", "out");
  EXPECT_TRUE(info.is_out);
  EXPECT_TRUE(info.arguments.back().is_out);
  EXPECT_NE(info.arguments.back().access, kReads);
}

TEST(OperatorInfoTest, ViewIsNoWrite) {
  const OperatorInfo info = InfoOf("aten::transpose", "int");
  EXPECT_TRUE(info.is_view);
  EXPECT_FALSE(info.writes);
}

TEST(OperatorInfoTest, RandomOperatorMayDraw) {
  EXPECT_TRUE(InfoOf("aten::bernoulli").may_draw);
  EXPECT_TRUE(InfoOf("aten::native_dropout").may_draw);
}

TEST(OperatorInfoTest, ArgumentsWithSpecialMeaningsAreFound) {
  EXPECT_EQ(InfoOf("aten::masked_fill_", "Scalar").filling, 2u);
  EXPECT_EQ(InfoOf("aten::add", "Tensor").filling, std::nullopt);
  EXPECT_EQ(InfoOf("aten::new_zeros").other_device, 4u);
  EXPECT_TRUE(InfoOf("aten::arange").reals_shape);
  EXPECT_TRUE(InfoOf("aten::index", "Tensor").takes_cpu_indices);
  EXPECT_EQ(InfoOf("aten::index", "Tensor").arguments[1].kind,
            ArgumentKind::kTensorList);
}

TEST(OperatorInfoTest, ListOfTensorsIsMarkedAmongTheReturns) {
  const OperatorInfo info = InfoOf("aten::unbind_copy", "int");
  EXPECT_THAT(info.returns_list, ElementsAre(true));
}

HostUse UseOf(const char* name, const char* overload) {
  return HostUseOf(
      c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).schema());
}

TEST(HostUseTest, OperatorThatReturnsOneTensorAndWritesNothing) {
  EXPECT_EQ(UseOf("aten::all", ""), HostUse::kReturns);
  EXPECT_EQ(UseOf("aten::all", "dim"), HostUse::kReturns);
  EXPECT_EQ(UseOf("aten::eq", "Scalar"), HostUse::kReturns);
  EXPECT_EQ(UseOf("aten::add", "Tensor"), HostUse::kReturns);
  EXPECT_EQ(UseOf("aten::cat", ""), HostUse::kReturns);
  EXPECT_EQ(UseOf("aten::ones_like", ""), HostUse::kReturns);
  EXPECT_EQ(UseOf("aten::max", ""), HostUse::kReturns);
}

TEST(HostUseTest, OperatorThatOverwritesItsFirstArgument) {
  EXPECT_EQ(UseOf("aten::copy_", ""), HostUse::kOverwrites);
  EXPECT_EQ(UseOf("aten::fill_", "Scalar"), HostUse::kOverwrites);
  EXPECT_EQ(UseOf("aten::zero_", ""), HostUse::kOverwrites);
}

TEST(HostUseTest, OtherOperatorsAreExcluded) {
  EXPECT_EQ(UseOf("aten::add", "out"), HostUse::kNone);
  EXPECT_EQ(UseOf("aten::add_", "Tensor"), HostUse::kNone);
  EXPECT_EQ(UseOf("aten::max", "dim"), HostUse::kNone);
  EXPECT_EQ(UseOf("aten::div", "Tensor"), HostUse::kNone);
  EXPECT_EQ(UseOf("aten::masked_fill_", "Scalar"), HostUse::kNone);
  EXPECT_EQ(UseOf("aten::randint", ""), HostUse::kNone);
}

}  // namespace

}  // namespace djinn::capture
