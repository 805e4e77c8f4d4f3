#include "gpu_worker/registry/report_changes.h"

#include <string>
#include <vector>

#include "common/lease/lease_verifier.h"
#include "djinn/v1/lease.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::SignedLease LeaseOf(const std::string& id) {
  v1::LeaseClaims claims;
  claims.set_lease_id(id);
  v1::SignedLease lease;
  lease.set_claims(claims.SerializeAsString());
  return lease;
}

void Hold(const std::string& id, uint64_t bytes, v1::WorkerState* report) {
  v1::HeldSession* const held = report->add_sessions();
  *held->mutable_lease() = LeaseOf(id);
  held->set_storage_bytes(bytes);
}

void End(const std::string& id, bool measuring, v1::WorkerState* report) {
  v1::EndedLease* const ended = report->add_ended_leases();
  *ended->mutable_lease() = LeaseOf(id);
  ended->set_measuring(measuring);
}

template <typename Messages>
std::vector<std::string> Ids(const Messages& messages) {
  std::vector<std::string> ids;
  for (const auto& message : messages) {
    ids.push_back(UncheckedClaims(message.lease()).lease_id());
  }
  return ids;
}

TEST(ReportChangesTest, FirstReportIsCompleteAndLaterOnesNameChangesAlone) {
  ReportChanges changes;
  v1::WorkerState report;
  Hold("a", 1, &report);
  Hold("b", 1, &report);
  Hold("c", 1, &report);
  changes.Reduce(&report);
  EXPECT_TRUE(report.complete());
  EXPECT_THAT(Ids(report.sessions()), ElementsAre("a", "b", "c"));

  report.Clear();
  Hold("a", 1, &report);
  Hold("b", 1, &report);
  Hold("c", 2, &report);
  Hold("d", 1, &report);
  changes.Reduce(&report);
  EXPECT_FALSE(report.complete());
  EXPECT_THAT(Ids(report.sessions()), ElementsAre("c", "d"));
  EXPECT_THAT(report.released_lease_ids(), IsEmpty());
}

TEST(ReportChangesTest, LeaseThatIsGoneIsNamedOnce) {
  ReportChanges changes;
  v1::WorkerState report;
  Hold("a", 1, &report);
  Hold("b", 1, &report);
  changes.Reduce(&report);

  report.Clear();
  Hold("b", 1, &report);
  End("a", /*measuring=*/true, &report);
  changes.Reduce(&report);
  EXPECT_THAT(report.released_lease_ids(), ElementsAre("a"));
  EXPECT_THAT(Ids(report.ended_leases()), ElementsAre("a"));

  report.Clear();
  Hold("b", 1, &report);
  End("a", /*measuring=*/false, &report);
  changes.Reduce(&report);
  EXPECT_THAT(report.released_lease_ids(), IsEmpty());
  EXPECT_THAT(Ids(report.ended_leases()), ElementsAre("a"));

  report.Clear();
  Hold("b", 1, &report);
  changes.Reduce(&report);
  EXPECT_THAT(report.sessions(), IsEmpty());
  EXPECT_THAT(report.forgotten_lease_ids(), ElementsAre("a"));
}

}  // namespace
}  // namespace djinn::worker
