#include "scheduler/placement/policy.h"

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class Impostor : public Policy {
 public:
  absl::string_view name() const override { return "minimize_latency"; }
  double Score(const Terms&) const override { return 0; }
};

double Score(absl::string_view policy, const Terms& terms) {
  return (*FindPolicy(policy))->Score(terms);
}

TEST(PolicyTest, OursAndOthersAreFoundByName) {
  EXPECT_THAT(
      PolicyNames(),
      IsSupersetOf({"fewest_bytes", "load_balance", "maximize_throughput",
                    "minimize_cost", "minimize_latency"}));
  for (const std::string& name : PolicyNames()) {
    EXPECT_EQ((*FindPolicy(name))->name(), name);
  }
}

TEST(PolicyTest, AnUnknownNameIsRefusedWithThoseThereAre) {
  const absl::Status status = FindPolicy("fastest").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(ErrorReason(status), "POLICY_UNKNOWN");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("load_balance, maximize_throughput, minimize_cost"));
}

TEST(PolicyTest, ANameIsTakenOnce) {
  const Policy* const ours = *FindPolicy("minimize_latency");
  EXPECT_FALSE(RegisterPolicy(std::make_unique<Impostor>()));
  EXPECT_EQ(*FindPolicy("minimize_latency"), ours);
}

TEST(PolicyTest, ScoresAreTheDocumentedFormulas) {
  Terms terms;
  terms.queue_seconds = 3;
  terms.transfer_seconds = 0.5;
  terms.compute_seconds = 1.5;
  terms.cost = 7;
  terms.load = 0.25;
  EXPECT_DOUBLE_EQ(Score("minimize_latency", terms), 5);
  EXPECT_DOUBLE_EQ(Score("maximize_throughput", terms), 2 * (2 * 3 + 2));
  EXPECT_DOUBLE_EQ(Score("minimize_cost", terms), 7);
  EXPECT_DOUBLE_EQ(Score("load_balance", terms), 0.25 + 5.0 / 60);
}

}  // namespace
}  // namespace djinn::scheduler
