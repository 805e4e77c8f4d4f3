#include "gpu_worker/settings.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SettingsTest : public testing::Test {
 protected:
  static WorkerConfig Running() {
    WorkerConfig config;
    config.worker_id = "w0";
    config.join_token = "join";
    config.capabilities = {"big"};
    config.speed.set_flops_per_second(7);
    return config;
  }
  std::string Metrics() {
    Exposition out;
    settings_.Collect(&out);
    return out.Text();
  }

  FakeClock clock_;
  Settings settings_{Running(), &clock_};
};

TEST_F(SettingsTest, AReloadReplacesWhatItCan) {
  EXPECT_FALSE(settings_.IsAdminToken(""));
  WorkerConfig read = Running();
  read.join_token = "new";
  read.admin_token = "admin";
  read.min_free_bytes = 5;
  read.drain_timeout = absl::Seconds(3);
  read.capabilities = {"small"};
  read.phases = {v1::PHASE_LLM_DECODE};
  read.price_per_hour = 2;
  read.link_bandwidth = 9;
  EXPECT_THAT(PendingSettings(Running(), read), IsEmpty());
  EXPECT_TRUE(settings_.Reload(read));
  EXPECT_EQ(settings_.join_token(), "new");
  EXPECT_TRUE(settings_.IsAdminToken("admin"));
  EXPECT_FALSE(settings_.IsAdminToken("new"));
  EXPECT_EQ(settings_.min_free_bytes(), 5u);
  EXPECT_EQ(settings_.drain_timeout(), absl::Seconds(3));
  v1::WorkerState state;
  settings_.AddFacts(&state);
  EXPECT_THAT(state.capabilities(), ElementsAre("small"));
  EXPECT_THAT(state.phases(), ElementsAre(v1::PHASE_LLM_DECODE));
  EXPECT_EQ(state.price_per_hour(), 2);
  EXPECT_EQ(state.link_bytes_per_second(), 9u);
}

TEST_F(SettingsTest, PendingSettingsHaveTheFilesNames) {
  WorkerConfig read = Running();
  read.listen = "127.0.0.1:1";
  read.coordinator_tls.server_name = "other";
  read.device_ordinal = 1;
  read.device_threads = 3;
  read.isolated = true;
  read.last_executor_port = 7163;
  read.content_disk_limit = 1;
  EXPECT_THAT(
      PendingSettings(Running(), read),
      ElementsAre("listen", "coordinator_tls", "device.kind", "device.threads",
                  "isolation.mode", "isolation.ports", "content_disk.limit"));
}

TEST_F(SettingsTest, AMeasuredSpeedIsNoDifference) {
  WorkerConfig read = Running();
  read.speed.Clear();
  EXPECT_THAT(PendingSettings(Running(), read), IsEmpty());
  WorkerConfig configured = Running();
  configured.calibrate = read.calibrate = false;
  EXPECT_THAT(PendingSettings(configured, read), ElementsAre("device.speed"));
}

TEST_F(SettingsTest, AFileWithErrorsChangesNothingAndShows) {
  EXPECT_THAT(Metrics(), HasSubstr("djinn_config_last_reload_successful 1\n"));
  clock_.Advance(absl::Seconds(7));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(settings_.Reload(absl::InvalidArgumentError("w.yaml:3: bad")));
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, HasSubstr("configuration not reloaded"));
  EXPECT_THAT(logged, HasSubstr("w.yaml:3: bad"));
  EXPECT_THAT(Metrics(), HasSubstr("djinn_config_last_reload_successful 0\n"));
  EXPECT_THAT(logged, HasSubstr("msg=audit who=SIGHUP what=ReloadConfig "
                                "result=INVALID_ARGUMENT"));
  EXPECT_EQ(settings_.join_token(), "join");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(settings_.Reload(Running()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("msg=audit who=SIGHUP what=ReloadConfig result=OK"));
  EXPECT_THAT(Metrics(), HasSubstr("djinn_config_last_reload_successful 1\n"));
}

}  // namespace
}  // namespace djinn::worker
