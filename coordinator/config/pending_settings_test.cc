#include "coordinator/config/pending_settings.h"

#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PendingSettingsTest, TenantsAreNone) {
  Config read = TestConfig();
  read.tenants.pop_back();
  EXPECT_THAT(PendingSettings(TestConfig(), read), IsEmpty());
}

TEST(PendingSettingsTest, NamesWhatDiffersAsTheFileDoes) {
  Config read = TestConfig();
  read.listen = "127.0.0.1:1";
  read.tls.client_ca_file = "ca.crt";
  read.lease_valid_for += absl::Seconds(1);
  read.reclaim_loss_limit = absl::Minutes(2);
  read.scaler.target_utilisation = 0.5;
  read.recorded_jobs = 7;
  read.admin_token = "another";
  EXPECT_THAT(PendingSettings(TestConfig(), read),
              ElementsAre("listen", "tls.client_ca_file", "lease_valid_for",
                          "reclaim_loss_limit", "scaler.target_utilisation",
                          "recorded_jobs", "admin_token_file"));
}

}  // namespace
}  // namespace djinn::coordinator
