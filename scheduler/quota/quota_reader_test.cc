#include "scheduler/quota/quota_reader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Resource kBoth[] = {Resource::kMemoryBytes,
                              Resource::kOutstandingMessages};

TEST(QuotaReaderTest, ReadsWhatIsThere) {
  ConfigReader reader = ConfigReader::FromText(
      "memory_bytes: {nominalQuota: 2GiB, borrowingLimit: 1GiB, "
      "lendingLimit: 0}\n"
      "outstanding_messages: {nominalQuota: 12}\n"
      "device_seconds_per_second: {nominalQuota: 2.5, borrowingLimit: 1}\n"
      "bytes_per_second: {nominalQuota: 1MB}\n",
      "q.yaml");
  ConfigMap map = reader.root();
  const QuotaOwner owner = TenantAsOwner("lab");
  Quotas quotas;
  ReadQuotas(&map, owner, kBoth, &quotas);
  EXPECT_EQ(quotas[static_cast<size_t>(Resource::kMemoryBytes)],
            (Quota{.nominal = int64_t{2} << 30,
                   .borrowing_limit = int64_t{1} << 30,
                   .lending_limit = 0}));
  EXPECT_EQ(quotas[static_cast<size_t>(Resource::kOutstandingMessages)],
            (Quota{.nominal = 12}));
  EXPECT_FALSE(quotas[static_cast<size_t>(Resource::kStorageBytes)].limited());
  EXPECT_EQ(ReadRateQuota(&map, "device_seconds_per_second", RateUnit::kSeconds,
                          owner),
            (RateQuota{.nominal = 2.5, .borrowing_limit = 1}));
  EXPECT_EQ(ReadRateQuota(&map, "bytes_per_second", RateUnit::kBytes, owner),
            (RateQuota{.nominal = 1e6}));
  EXPECT_EQ(ReadRateQuota(&map, "colours", RateUnit::kBytes, owner),
            std::nullopt);
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(QuotaReaderTest, SaysWhatIsWrong) {
  ConfigReader reader = ConfigReader::FromText(
      "tenant:\n"
      "  memory_bytes: {lendingLimit: 1GiB}\n"
      "  outstanding_messages: {nominalQuota: many}\n"
      "  colours: {nominalQuota: 1}\n"
      "cohort:\n"
      "  memory_bytes: {borrowingLimit: 1GiB}\n"
      "names: [a]\n",
      "q.yaml");
  ConfigMap root = reader.root();
  ConfigMap tenant = root.Map("tenant");
  ConfigMap cohort = root.Map("cohort");
  Quotas quotas;
  ReadQuotas(&tenant, TenantAsOwner(""), kBoth, &quotas);
  ReadQuotas(&cohort, CohortAsOwner("lab"), kBoth, &quotas);
  CheckCohortName(&root, "names", "lab//vision");
  CheckCohortName(&root, "cohort", "lab/vision");
  CheckCohortName(&root, "cohort", "");
  EXPECT_THAT(
      std::string(reader.Finish().message()),
      AllOf(HasSubstr("tenant.memory_bytes.nominalQuota: is missing"),
            HasSubstr("tenant.memory_bytes.lendingLimit: there is no cohort to "
                      "borrow from or lend to"),
            HasSubstr("tenant.outstanding_messages.nominalQuota"),
            HasSubstr("tenant.colours"),
            HasSubstr("cohort.memory_bytes.borrowingLimit: there is no cohort "
                      "around it to borrow from or lend to"),
            Not(HasSubstr("cohort.memory_bytes.nominalQuota")),
            HasSubstr("names: expected names with a / between them, got "
                      "\"lab//vision\"")));
}

// A cohort inside another one has neighbours.
TEST(QuotaReaderTest, AnInnerCohortBorrowsAndLends) {
  EXPECT_TRUE(CohortAsOwner("lab/vision").has_neighbours);
  EXPECT_FALSE(CohortAsOwner("lab/vision").needs_nominal);
}

}  // namespace
}  // namespace djinn::scheduler
