#include "coordinator/admin/run_name.h"

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

TEST(RunNameTest, ANumberAloneIsOfAnyDevice) {
  const absl::StatusOr<RunName> name = ParseRunName("17");
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_FALSE(name->device.has_value());
  EXPECT_EQ(name->number, 17u);
}

TEST(RunNameTest, ShownNameIsParsed) {
  for (const MemberId device :
       {MemberId{0, 0}, MemberId{2, 0}, MemberId{2, 1}}) {
    const absl::StatusOr<RunName> name = ParseRunName(RunNameOf(device, 5));
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->device, device);
    EXPECT_EQ(name->number, 5u);
  }
  EXPECT_EQ(RunNameOf({0, 0}, 17), "0:17");
  EXPECT_EQ(RunNameOf({2, 1}, 5), "2.1:5");
}

TEST(RunNameTest, AnythingElseIsRefused) {
  for (const char* const text :
       {"", "0", ":", "0:", ":5", "0:0", "-1", "+1", "0: 5", " 5", "5 ", "x",
        "0.:5", ".1:5", "0.1.2:5", "0:1:2", "0:18446744073709551616",
        "4294967296:1"}) {
    const absl::StatusOr<RunName> name = ParseRunName(text);
    EXPECT_EQ(ErrorReason(name.status()), "RUN_MALFORMED") << text;
  }
}

}  // namespace
}  // namespace djinn::coordinator
