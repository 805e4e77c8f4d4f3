// Tests what clients report of lost workers, and what operators see of it.
#include "coordinator/cluster/reports.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/lineage.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportsTest : public ClusterTest {
 protected:
  ReportsTest()
      : session_(Open("red")),
        one_(Join(w0_)),
        lease_(Grant(session_, 0, one_, &w0_)) {}

  static v1::RecoveryReport Report() {
    v1::RecoveryReport report;
    report.set_kind(v1::RecoveryReport::WORKER_LOST);
    report.set_from_worker_id("w0");
    report.set_to_worker_id("w1");
    report.mutable_cause()->set_reason("WORKER_LOST");
    report.set_attempts(1);
    report.set_replayed_nodes(7);
    *report.mutable_total_time() = ToProtoDuration(absl::Seconds(2));
    *report.mutable_lease_time() = ToProtoDuration(absl::Seconds(1));
    return report;
  }
  std::string Metrics() {
    Exposition metrics;
    scrape::Collect(*cluster_, &metrics);
    return metrics.Text();
  }
  // Asks for the lineage. The answer is in `lineage_` when there is one.
  void Ask(uint64_t storage = 0) {
    v1::GetLineageRequest request;
    request.set_session_id(session_.owner);
    request.set_storage(storage);
    lineage::Get(*cluster_, request,
                 [this](absl::StatusOr<v1::SessionLineage> answer) {
                   lineage_ = std::move(answer);
                 });
  }

  StreamId session_, one_;
  v1::Lease lease_;
  std::optional<absl::StatusOr<v1::SessionLineage>> lineage_;
};

TEST_F(ReportsTest, RecoveryIsCountedShownAndExplained) {
  ASSERT_EQ(reports::NoteRecovery(*cluster_, session_, Report()),
            absl::OkStatus());
  clock_.Advance(absl::Seconds(3));
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("djinn_recoveries_total{kind=\"device_"
                                 "rebound\",result=\"done\"} 1\n"));
  EXPECT_THAT(metrics,
              HasSubstr("djinn_replayed_nodes_total{tenant=\"red\"} 7\n"));
  EXPECT_THAT(metrics, HasSubstr("djinn_recovery_duration_seconds_sum{kind="
                                 "\"device_rebound\",stage=\"total\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("djinn_recovery_duration_seconds_sum{kind="
                                 "\"device_rebound\",stage=\"lease\"} 1\n"));
  const v1::SessionInfo info = *views::GetSession(*cluster_, session_.owner);
  ASSERT_EQ(info.recoveries_size(), 1);
  EXPECT_EQ(info.recoveries(0).report().to_worker_id(), "w1");
  EXPECT_EQ(info.recoveries(0).age().seconds(), 3);
  const v1::SessionExplanation explanation =
      *explain::ExplainSession(*cluster_, session_.owner);
  ASSERT_EQ(explanation.devices_size(), 1);
  EXPECT_EQ(explanation.devices(0).recovery().report().replayed_nodes(), 7u);
}

TEST_F(ReportsTest, FailuresAreShownBeforeTheFirstOne) {
  for (const char* const kind :
       {"device_rebound", "local_fallback", "fallback_ended"}) {
    EXPECT_THAT(Metrics(),
                HasSubstr(absl::StrCat("djinn_recoveries_total{kind=\"", kind,
                                       "\",result=\"failed\"} 0\n")));
  }
}

TEST_F(ReportsTest, FailedRecoveryHasNoDuration) {
  v1::RecoveryReport report = Report();
  report.mutable_failure()->set_reason("WORKER_LOST");
  ASSERT_EQ(reports::NoteRecovery(*cluster_, session_, report),
            absl::OkStatus());
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("djinn_recoveries_total{kind=\"device_"
                                 "rebound\",result=\"failed\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("djinn_recovery_duration_seconds_sum{kind="
                                 "\"device_rebound\",stage=\"total\"} 0\n"));
}

TEST_F(ReportsTest, FallbackHasAKindOfItsOwn) {
  v1::RecoveryReport report = Report();
  report.set_kind(v1::RecoveryReport::LOCAL_FALLBACK);
  ASSERT_EQ(reports::NoteRecovery(*cluster_, session_, report),
            absl::OkStatus());
  EXPECT_THAT(Metrics(), HasSubstr("djinn_recoveries_total{kind=\"local_"
                                   "fallback\",result=\"done\"} 1\n"));
}

TEST_F(ReportsTest, LastEightRecoveriesAreKept) {
  for (int i = 0; i < 10; ++i) {
    v1::RecoveryReport report = Report();
    report.set_attempts(static_cast<uint32_t>(i));
    ASSERT_TRUE(reports::NoteRecovery(*cluster_, session_, report).ok());
  }
  const v1::SessionInfo info = *views::GetSession(*cluster_, session_.owner);
  ASSERT_EQ(info.recoveries_size(), 8);
  EXPECT_EQ(info.recoveries(0).report().attempts(), 2u);
}

TEST_F(ReportsTest, ReportsThatComeTooFastDoNotCount) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(reports::NoteRecovery(*cluster_, session_, Report()).ok());
  }
  EXPECT_THAT(Metrics(), HasSubstr("djinn_recoveries_total{kind=\"device_"
                                   "rebound\",result=\"done\"} 64\n"));
}

TEST_F(ReportsTest, ImpossibleReportsAreViolations) {
  v1::RecoveryReport report = Report();
  report.set_virtual_device(1u << 30);
  EXPECT_EQ(ErrorReason(reports::NoteRecovery(*cluster_, session_, report)),
            "PROTOCOL_VIOLATION");
  report = Report();
  report.mutable_cause()->set_message(std::string(5000, 'x'));
  EXPECT_EQ(ErrorReason(reports::NoteRecovery(*cluster_, session_, report)),
            "PROTOCOL_VIOLATION");
  v1::CheckpointReport checkpoint;
  checkpoint.set_bytes(UINT64_MAX);
  EXPECT_EQ(
      ErrorReason(reports::NoteCheckpoint(*cluster_, session_, checkpoint)),
      "PROTOCOL_VIOLATION");
  EXPECT_THAT(Metrics(), Not(HasSubstr("device_rebound\",result=\"done")));
}

TEST_F(ReportsTest, TextsOfRecoveriesAreCleanedAndCut) {
  v1::RecoveryReport report = Report();
  report.set_from_worker_id("w\x1b[2J0");
  report.mutable_cause()->set_message("a\nb\x7f\xc2\x9b\xc3\xa9");
  report.mutable_failure()->set_message(std::string(1023, 'x') + "\xc3\xa9");
  ASSERT_TRUE(reports::NoteRecovery(*cluster_, session_, report).ok());
  const v1::SessionInfo info = *views::GetSession(*cluster_, session_.owner);
  ASSERT_EQ(info.recoveries_size(), 1);
  const v1::RecoveryReport& kept = info.recoveries(0).report();
  EXPECT_EQ(kept.from_worker_id(), "w [2J0");
  EXPECT_EQ(kept.cause().message(), "a b  \xc3\xa9");
  EXPECT_EQ(kept.failure().message(), std::string(1023, 'x'));
}

TEST_F(ReportsTest, TextThatIsNoUtf8DoesNotArrive) {
  v1::RecoveryReport report = Report();
  report.mutable_cause()->set_message("a\xff");
  EXPECT_FALSE(
      v1::RecoveryReport().ParseFromString(report.SerializeAsString()));
}

TEST_F(ReportsTest, DurationsAreClampedToADay) {
  v1::RecoveryReport report = Report();
  report.mutable_total_time()->set_seconds(INT64_MAX);
  report.mutable_lease_time()->set_seconds(-5);
  ASSERT_TRUE(reports::NoteRecovery(*cluster_, session_, report).ok());
  v1::CheckpointReport checkpoint;
  checkpoint.mutable_took()->set_seconds(INT64_MAX);
  ASSERT_TRUE(reports::NoteCheckpoint(*cluster_, session_, checkpoint).ok());
  const v1::SessionInfo info = *views::GetSession(*cluster_, session_.owner);
  ASSERT_EQ(info.recoveries_size(), 1);
  EXPECT_EQ(info.recoveries(0).report().total_time().seconds(), 86400);
  EXPECT_EQ(info.recoveries(0).report().lease_time().seconds(), 0);
  EXPECT_THAT(Metrics(),
              HasSubstr("djinn_checkpoint_duration_seconds_sum 86400\n"));
}

TEST_F(ReportsTest, CheckpointsAreCounted) {
  v1::CheckpointReport report;
  report.set_bytes(1000);
  report.set_values(2);
  *report.mutable_took() = ToProtoDuration(absl::Seconds(1));
  ASSERT_TRUE(reports::NoteCheckpoint(*cluster_, session_, report).ok());
  report.mutable_failure()->set_reason("CHECKPOINT_MEMORY");
  ASSERT_TRUE(reports::NoteCheckpoint(*cluster_, session_, report).ok());
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("djinn_checkpoints_total{tenant=\"red\","
                                 "result=\"done\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("djinn_checkpoints_total{tenant=\"red\","
                                 "result=\"failed\"} 1\n"));
  EXPECT_THAT(metrics,
              HasSubstr("djinn_checkpoint_bytes_total{tenant=\"red\"} 1000\n"));
  EXPECT_THAT(metrics, HasSubstr("djinn_checkpoint_duration_seconds_sum 1\n"));
}

TEST_F(ReportsTest, LineageIsTheClientsAnswer) {
  Ask(5);
  EXPECT_FALSE(lineage_.has_value());
  const v1::LineageQuestion question = Next(session_)->lineage();
  EXPECT_EQ(question.storage(), 5u);
  v1::LineageAnswer answer;
  answer.set_number(question.number());
  v1::DeviceLineage* const device = answer.add_devices();
  device->set_mode("replay");
  device->add_values()->set_storage(5);
  // Another session cannot answer.
  const StreamId other = Open("red");
  ASSERT_TRUE(reports::TakeLineage(*cluster_, other, answer).ok());
  EXPECT_FALSE(lineage_.has_value());
  ASSERT_TRUE(reports::TakeLineage(*cluster_, session_, answer).ok());
  ASSERT_TRUE(lineage_.has_value() && lineage_->ok());
  EXPECT_EQ((*lineage_)->tenant(), "red");
  EXPECT_EQ((*lineage_)->devices(0).mode(), "replay");
  // A second answer has no question.
  ASSERT_TRUE(reports::TakeLineage(*cluster_, session_, answer).ok());
}

TEST_F(ReportsTest, LineageOfAnUnknownStorageIsNotFound) {
  Ask(5);
  v1::LineageAnswer answer;
  answer.set_number(Next(session_)->lineage().number());
  answer.add_devices()->set_mode("replay");
  answer.add_devices()->set_obstacle("recovery is off");
  ASSERT_TRUE(reports::TakeLineage(*cluster_, session_, answer).ok());
  ASSERT_TRUE(lineage_.has_value());
  EXPECT_EQ(lineage_->status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(lineage_->status()), "STORAGE_UNKNOWN");
  EXPECT_THAT(std::string(lineage_->status().message()),
              HasSubstr("keeps no value for storage 5; device 0: recovery"));
}

TEST_F(ReportsTest, TextsOfLineageAreCleaned) {
  Ask();
  v1::LineageAnswer answer;
  answer.set_number(Next(session_)->lineage().number());
  v1::DeviceLineage* const device = answer.add_devices();
  device->set_mode("\x1b]0;m");
  device->set_obstacle("\ro");
  device->add_values()->set_why("\tw");
  device->add_graph()->set_text("\bt");
  ASSERT_TRUE(reports::TakeLineage(*cluster_, session_, answer).ok());
  ASSERT_TRUE(lineage_.has_value() && lineage_->ok());
  const v1::DeviceLineage& shown = (*lineage_)->devices(0);
  EXPECT_EQ(shown.mode(), " ]0;m");
  EXPECT_EQ(shown.obstacle(), " o");
  EXPECT_EQ(shown.values(0).why(), " w");
  EXPECT_EQ(shown.graph(0).text(), " t");
}

TEST_F(ReportsTest, LargeLineageIsAViolation) {
  v1::LineageAnswer answer;
  answer.add_devices()->set_mode(std::string(48 << 10, 'x'));
  EXPECT_EQ(ErrorReason(reports::TakeLineage(*cluster_, session_, answer)),
            "PROTOCOL_VIOLATION");
}

TEST_F(ReportsTest, SilentClientIsAnError) {
  Ask();
  clock_.Advance(LineageInquiries::kPatience);
  coordinator::Tick(*cluster_);
  ASSERT_TRUE(lineage_.has_value());
  EXPECT_EQ(ErrorReason(lineage_->status()), "CLIENT_SILENT");
}

TEST_F(ReportsTest, DetachedClientIsNotAsked) {
  sessions::Detach(*cluster_, session_);
  Ask();
  ASSERT_TRUE(lineage_.has_value());
  EXPECT_EQ(ErrorReason(lineage_->status()), "SESSION_DETACHED");
}

TEST_F(ReportsTest, StoppingEndsQuestions) {
  Ask();
  coordinator::Stop(*cluster_);
  ASSERT_TRUE(lineage_.has_value());
  EXPECT_EQ(ErrorReason(lineage_->status()), "COORDINATOR_STOPPING");
}

}  // namespace
}  // namespace djinn::coordinator
