#include "coordinator/ctl/table.h"

#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

TEST(TableTest, ColumnsAreAligned) {
  EXPECT_EQ(FormatTable({{"NAME", "N"}, {"a", "1"}, {"longer", "22"}}),
            "NAME    N\n"
            "a       1\n"
            "longer  22\n");
}

TEST(TableTest, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(FormatTable({{"NAME"}, {"a\x1b[31m\nb"}}), "NAME\na [31m b\n");
}

TEST(TableTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0B");
  EXPECT_EQ(FormatBytes(999), "999B");
  EXPECT_EQ(FormatBytes(90'900'000), "90.9MB");
  EXPECT_EQ(FormatBytes(999'999), "1.0MB");
}

TEST(TableTest, ShortDurations) {
  const auto text = [](int64_t seconds, int32_t nanos) {
    google::protobuf::Duration duration;
    duration.set_seconds(seconds);
    duration.set_nanos(nanos);
    return FormatShortDuration(duration);
  };
  EXPECT_EQ(text(0, 0), "0");
  EXPECT_EQ(text(0, 12'345), "12.3us");
  EXPECT_EQ(text(0, 1'614'999), "1.61ms");
  EXPECT_EQ(text(1, 611'900'000), "1.611s");
  EXPECT_EQ(text(63, 0), "1m3s");
}

template <typename Info>
void ExpectSameWidth() {
  EXPECT_EQ(Header(Info()).size(), Cells(Info()).size());
  EXPECT_EQ(WideHeader(Info()).size(), WideCells(Info()).size());
}

TEST(TableTest, EveryHeaderHasItsCells) {
  ExpectSameWidth<v1::WorkerInfo>();
  ExpectSameWidth<v1::SessionInfo>();
  ExpectSameWidth<v1::TenantInfo>();
  ExpectSameWidth<v1::LeaseInfo>();
  ExpectSameWidth<v1::GraphInfo>();
  ExpectSameWidth<v1::QueueInfo>();
  EXPECT_EQ(Header(v1::RunInfo()).size(), Cells(v1::RunInfo()).size());
}

TEST(TableTest, AGpuThatFailsStandsInPlaceOfTheState) {
  v1::WorkerInfo info;
  info.set_state(v1::WorkerInfo::ACTIVE);
  info.mutable_gpu_health()->set_source("NVML");
  EXPECT_EQ(Cells(info)[1], "ACTIVE");
  EXPECT_EQ(WideCells(info)[0], "yes");
  EXPECT_EQ(WideCells(info).back(), "NVML");
  v1::GpuHealth& gpu = *info.mutable_gpu_health();
  gpu.set_failure("Xid 79");
  gpu.set_temperature_celsius(41);
  gpu.set_uncorrected_ecc_errors(0);
  gpu.set_xid_count(2);
  gpu.set_last_xid(79);
  EXPECT_EQ(Cells(info)[1], "GPU-FAILS");
  EXPECT_EQ(WideCells(info)[0], "gpu fails");
  EXPECT_EQ(WideCells(info).back(),
            "fails: Xid 79; 41 C; 0 uncorrected ECC errors; 2 Xids, the last "
            "79; NVML");
  info.set_state(v1::WorkerInfo::LOST);
  EXPECT_EQ(Cells(info)[1], "LOST");
}

TEST(TableTest, ATenantShowsWhetherItsQuotaIsSet) {
  v1::TenantInfo info;
  EXPECT_EQ(Cells(info)[9], "-");
  info.add_quotas();
  EXPECT_EQ(Cells(info)[9], "configured");
  info.mutable_quotas(0)->mutable_override()->set_set_by("olga");
  EXPECT_EQ(Cells(info)[9], "set");
}

TEST(TableTest, AQueueShowsWhatWaitsAndWhetherItMay) {
  v1::QueueInfo info;
  info.set_tenant("red");
  info.mutable_standing()->set_waiting_count(3);
  info.mutable_standing()->set_lease_count(1);
  info.mutable_standing()->set_weight(2);
  info.mutable_standing()->set_fair_share(0.5);
  info.mutable_standing()->set_device_time_share(0.25);
  EXPECT_EQ(Cells(info),
            (Row{"red", "active", "3", "-", "-", "1", "2", "50.0%", "25.0%"}));
  info.mutable_oldest_wait()->set_seconds(4);
  info.set_first_place(2);
  info.set_line_length(7);
  v1::WaitingFor* const waiting = info.add_waiting();
  waiting->set_reason("NO_CAPACITY");
  waiting->set_count(2);
  info.add_waiting()->set_count(1);
  EXPECT_EQ(Cells(info)[3], "4.0s");
  EXPECT_EQ(Cells(info)[4], "2/7");
  EXPECT_EQ(WideCells(info)[3], "-");
  EXPECT_EQ(WideCells(info)[4], "2 NO_CAPACITY, 1 -");
  info.mutable_stop()->mutable_stop_time()->set_seconds(43200);
  EXPECT_EQ(Cells(info)[1], "stopped");
  EXPECT_EQ(WideCells(info)[3], "1970-01-01T12:00:00+00:00");
  info.mutable_stop()->set_drain(true);
  EXPECT_EQ(Cells(info)[1], "drained");
}

}  // namespace
}  // namespace djinn::ctl
