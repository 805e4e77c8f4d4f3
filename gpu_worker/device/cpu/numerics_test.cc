#include "gpu_worker/device/cpu/numerics.h"

#include "ATen/Parallel.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr char kFirst[] =
    "processor\t: 0\nvendor_id\t: X\nmodel name\t: Fast: 3\ncpu MHz\t: 2000\n"
    "flags\t\t: avx2 fma\n";

TEST(NumericsTest, DescriptionOmitsSpeedAndNumberOfProcessors) {
  const auto one = DescribeProcessors(kFirst);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(*one, "vendor_id:X\nmodel name:Fast: 3\nflags:avx2 fma\n");
  // The speed and the number of processors make no difference.
  const std::string second =
      "processor\t: 1\nvendor_id\t: X\nmodel name\t: Fast: 3\n"
      "cpu MHz\t: 900\nflags\t\t: avx2 fma\n";
  EXPECT_EQ(DescribeProcessors(second), one);
  EXPECT_EQ(DescribeProcessors(absl::StrCat(kFirst, "\n", second, "\n")), one);
}

TEST(NumericsTest, ProcessorsOfSeveralKindsPromiseNothing) {
  const std::string slow =
      "processor\t: 1\nvendor_id\t: X\nmodel name\t: Slow\nflags\t: avx2\n";
  EXPECT_EQ(DescribeProcessors(absl::StrCat(kFirst, "\n", slow)), std::nullopt);
  EXPECT_EQ(DescribeProcessors(""), std::nullopt);
  EXPECT_EQ(DescribeProcessors("Hardware\t: a board\n"), std::nullopt);
}

TEST(NumericsTest, TheEnvironmentOfWhatComputesInAnyOrder) {
  const char* const entries[] = {"PATH=/bin", "OMP_DYNAMIC=true",
                                 "ATEN_CPU_CAPABILITY=avx2",
                                 "MKL_NUM_THREADS=3", nullptr};
  const char* const others[] = {"ATEN_CPU_CAPABILITY=avx2", "OMP_DYNAMIC=true",
                                "OMP_NUM_THREADS=2", "HOME=/", nullptr};
  EXPECT_EQ(DescribeEnvironment(entries),
            "ATEN_CPU_CAPABILITY=avx2\nOMP_DYNAMIC=true");
  EXPECT_EQ(DescribeEnvironment(entries), DescribeEnvironment(others));
}

TEST(NumericsTest, AProcessSaysTheSameEachTime) {
  EXPECT_EQ(CpuNumerics(), CpuNumerics());
  if (!CpuNumerics().empty()) {
    EXPECT_TRUE(absl::StartsWith(CpuNumerics(), "cpu-"));
    EXPECT_TRUE(absl::EndsWith(CpuNumerics(),
                               absl::StrCat("-", at::get_num_threads())));
  }
}

}  // namespace
}  // namespace djinn::worker
