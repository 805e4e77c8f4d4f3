#include "tests/bench/check.h"

#include <cmath>
#include <string>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace djinn::bench {
namespace {

std::string ErrorOf(const Agreement& agreement, const std::string& what,
                    double tolerance) {
  std::string error;
  agreement.ExpectWithin(tolerance, what, &error);
  return error;
}

TEST(AgreementTest, SaysWhetherBitsAreEqual) {
  Agreement agreement;
  agreement.Add(at::full({2, 3}, 1.5), at::full({2, 3}, 1.5));
  EXPECT_EQ(agreement.Describe("results"), "1 results, equal bits");
  EXPECT_EQ(ErrorOf(agreement, "results", 0), "");
}

TEST(AgreementTest, IsRelativeToTheLargestValue) {
  Agreement agreement;
  agreement.Add(at::full({1}, 1000.0), at::full({1}, 1001.0));
  EXPECT_EQ(agreement.Describe("sums"), "1 sums, within 0.001");
  EXPECT_EQ(ErrorOf(agreement, "sums", 1e-2), "");
  EXPECT_EQ(ErrorOf(agreement, "sums", 1e-5),
            "sums differ by 0.001 from local ones, not at most 1e-05");
}

TEST(AgreementTest, IsAbsoluteNearZero) {
  Agreement agreement;
  agreement.Add(at::zeros({4}), at::full({4}, 1e-6));
  EXPECT_EQ(ErrorOf(agreement, "values", 1e-5), "");
}

TEST(AgreementTest, AnotherShapeIsWrong) {
  Agreement agreement;
  agreement.Add(at::zeros({4}), at::zeros({2, 2}));
  EXPECT_NE(ErrorOf(agreement, "values", 1e9), "");
}

TEST(AgreementTest, NotANumberIsWrong) {
  Agreement agreement;
  agreement.Add(at::zeros({4}), at::full({4}, std::nan("")));
  agreement.Add(at::zeros({4}), at::zeros({4}));
  EXPECT_NE(ErrorOf(agreement, "values", 1e9), "");
}

TEST(AgreementTest, NothingComparedIsWrong) {
  EXPECT_EQ(ErrorOf(Agreement(), "values", 1), "no values were compared");
}

TEST(ExpectTest, CollectsWhatIsOutOfBounds) {
  std::string error;
  ExpectAtLeast("reads", 3, 3, &error);
  ExpectAtMost("uploads", 3, 3, &error);
  EXPECT_EQ(error, "");
  ExpectAtLeast("reads", 2, 3, &error);
  ExpectAtMost("uploads", 4, 3, &error);
  EXPECT_EQ(error, "reads is 2, not at least 3; uploads is 4, not at most 3");
}

}  // namespace
}  // namespace djinn::bench
