#include "client_lib/capture/operators/host_use.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

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
