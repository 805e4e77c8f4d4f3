#include "coordinator/config/config_changes.h"

#include <string>

#include "coordinator/config/config.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ConfigChangesTest, EqualConfigurationsHaveNone) {
  EXPECT_EQ(ConfigChanges(TestConfig(), TestConfig()), "");
}

TEST(ConfigChangesTest, NamesWhoWasAddedChangedAndRemoved) {
  Config from = TestConfig();
  from.operators = {{"olga", Role::kOperator, "o"},
                    {"vera", Role::kViewer, "v"}};
  from.cohorts = {{.name = "lab"}};
  Config to = TestConfig();
  to.operators = {{"eva", Role::kAdmin, "e"}, {"vera", Role::kOperator, "w"}};
  to.tenants.front().token += "x";
  to.tenants.back().weight += 1;
  to.cohorts = {{.name = "lab", .weight = 2}};
  EXPECT_EQ(ConfigChanges(from, to),
            "added: operator eva (admin); changed: tenant " +
                to.tenants.front().name + " (token), tenant " +
                to.tenants.back().name +
                ", cohort lab, operator vera (viewer to operator, token); "
                "removed: operator olga");
}

TEST(ConfigChangesTest, TellsThatATokenChangedAndNotTheToken) {
  Config to = TestConfig();
  to.admin_token = "a-new-secret";
  to.join_token = "another-secret";
  const std::string changes = ConfigChanges(TestConfig(), to);
  EXPECT_EQ(changes, "changed: operator admin (token), join token");
  EXPECT_THAT(changes, Not(HasSubstr("secret")));
}

TEST(PendingSettingsTest, TenantsAreNone) {
  Config read = TestConfig();
  read.tenants.pop_back();
  EXPECT_THAT(PendingSettings(TestConfig(), read), IsEmpty());
}

TEST(PendingSettingsTest, TokensArePutIntoForce) {
  Config read = TestConfig();
  read.join_token = "another";
  read.admin_token = "one more";
  read.operators = {{"vera", Role::kViewer, "v"}};
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
  EXPECT_THAT(PendingSettings(TestConfig(), read),
              ElementsAre("listen", "tls.client_ca_file", "lease_valid_for",
                          "reclaim_loss_limit", "scaler.target_utilisation",
                          "recorded_jobs"));
}

}  // namespace
}  // namespace djinn::coordinator
