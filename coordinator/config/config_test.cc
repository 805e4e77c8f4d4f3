#include "coordinator/config/config.h"

#include <fstream>

#include "common/base/error.h"
#include "coordinator/config/tenants.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    for (const char* name : {"join", "admin", "red", "blue"}) {
      std::ofstream(testing::TempDir() + name) << name << "-token\n";
    }
  }

  absl::StatusOr<Config> Read(const std::string& text) {
    return ReadConfig(
        ConfigReader::FromText(text, "c.yaml", testing::TempDir()));
  }
  std::string Complaint(const std::string& text) {
    return std::string(Read(text).status().message());
  }
};

constexpr char kMinimal[] =
    "join_token_file: join\n"
    "admin_token_file: admin\n"
    "tenants: [{name: red, token_file: red}]\n";

TEST_F(ConfigTest, DefaultsFillAMinimalFile) {
  const absl::StatusOr<Config> config = Read(kMinimal);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->listen, "127.0.0.1:7070");
  EXPECT_EQ(config->session_timeout, absl::Seconds(30));
  EXPECT_EQ(config->join_token, "join-token");
  ASSERT_EQ(config->tenants.size(), 1u);
  EXPECT_EQ(config->tenants[0].token, "red-token");
  EXPECT_EQ(config->tenants[0].limits.memory_bytes(), uint64_t{16} << 30);
  EXPECT_EQ(config->tenants[0].limits.max_outstanding(), 256u);
}

TEST_F(ConfigTest, OperatorsHaveRolesAndTokensOfTheirOwn) {
  const std::string minimal = kMinimal;
  EXPECT_EQ(OperatorsOf(*Read(minimal)),
            (std::vector<Operator>{{"admin", Role::kAdmin, "admin-token"}}));
  const absl::StatusOr<Config> config = Read(
      minimal + "operators: [{name: vera, role: viewer, token_file: blue}]\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(OperatorsOf(*config),
            (std::vector<Operator>{{"admin", Role::kAdmin, "admin-token"},
                                   {"vera", Role::kViewer, "blue-token"}}));
  EXPECT_THAT(
      Complaint(minimal + "operators: [{name: vera, role: root, "
                          "token_file: red}, {name: admin, role: admin, "
                          "token_file: admin}]\n"),
      AllOf(HasSubstr("operators[0].role: viewer, operator or admin"),
            HasSubstr("operators: the name admin is given twice"),
            HasSubstr("the token of admin is also another principal's"),
            HasSubstr("the token of red is also another principal's")));
}

TEST_F(ConfigTest, PlacementIsAsTheClustersUnlessTheTenantSays) {
  absl::StatusOr<Config> config = Read(kMinimal);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->placement_policy, "minimize_latency");
  EXPECT_EQ(config->tenants[0].placement, PlacementWish());
  const std::string tokens = "join_token_file: join\nadmin_token_file: admin\n";
  config = Read(tokens +
                "placement_policy: load_balance\n"
                "tenants: [{name: red, token_file: red, placement: "
                "{policy: minimize_cost, required: [cuda, big]}}]\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->placement_policy, "load_balance");
  EXPECT_EQ(config->tenants[0].placement,
            (PlacementWish{"minimize_cost", {"cuda", "big"}}));
  EXPECT_THAT(
      Complaint(tokens + "placement_policy: best\n"
                         "tenants: [{name: red, token_file: red, placement: "
                         "{policy: fastest}}]\n"),
      AllOf(HasSubstr("there is no placement policy \"best\""),
            HasSubstr("tenants[0].placement.policy"),
            HasSubstr("expected load_balance, maximize_throughput")));
}

TEST_F(ConfigTest, TheScalerIsOffUnlessItSaysWhere) {
  const std::string base = kMinimal;
  EXPECT_EQ(Read(base)->scaler.listen, "");
  const absl::StatusOr<Config> config =
      Read(base + "scaler: {listen: '127.0.0.1:0', target_utilisation: 0.5}\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->scaler.listen, "127.0.0.1:0");
  EXPECT_EQ(config->scaler.target_utilisation, 0.5);
  EXPECT_THAT(Complaint(base + "scaler: {listen: '0.0.0.0:7071'}\n"),
              HasSubstr("scaler.listen"));
  EXPECT_THAT(Complaint(base + "scaler: {target_utilisation: 0}\n"),
              HasSubstr("scaler.target_utilisation: expected 0.01 to 1"));
}

TEST_F(ConfigTest, MonitoringIsOffUnlessItSaysWhere) {
  EXPECT_EQ(Read(kMinimal)->monitoring.listen, "");
  const std::string base = kMinimal;
  const absl::StatusOr<Config> config =
      Read(base + "monitoring: {listen: '0.0.0.0:9464', insecure: true}\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->monitoring.listen, "0.0.0.0:9464");
  EXPECT_THAT(Complaint(base + "monitoring: {listen: '0.0.0.0:9464'}\n"),
              HasSubstr("monitoring.listen"));
  EXPECT_THAT(Complaint(base + "monitoring: {listen: 'unix:/run/m'}\n"),
              HasSubstr("expected host:port"));
  EXPECT_THAT(Complaint(base + "monitoring: {insecure: true}\n"),
              HasSubstr("there is no listen beside it"));
  EXPECT_THAT(Complaint(base + "monitoring: {port: 1}\n"),
              HasSubstr("monitoring.port"));
}

TEST_F(ConfigTest, CreditsAreNotLimitedUnlessGiven) {
  EXPECT_FALSE(Read(kMinimal)->tenants[0].credits.limited());
  const auto with = [](const std::string& credits) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, credits: {" +
           credits + "}}]\n";
  };
  const CreditLimits credits =
      Read(with("device_time: 1h, period: 24h"))->tenants[0].credits;
  EXPECT_EQ(credits.device_time, absl::Hours(1));
  EXPECT_EQ(credits.bytes, std::nullopt);
  EXPECT_EQ(credits.period, absl::Hours(24));
  // A credit of nothing is a limit, too.
  EXPECT_EQ(Read(with("bytes: 0"))->tenants[0].credits.bytes, 0u);
  EXPECT_THAT(Complaint(with("period: 24h")), HasSubstr("tenants[0].credits"));
  EXPECT_THAT(Complaint(with("bytes: 1, period: 1s")),
              HasSubstr("must be at least 1m"));
  EXPECT_THAT(Complaint(std::string(kMinimal) + "lease_key_lifetime: 1m\n"),
              HasSubstr("lease_key_lifetime"));
}

TEST_F(ConfigTest, WeightsAndPrioritiesHaveTheirRange) {
  const auto with = [](const std::string& rest) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, " +
           rest + "}]\n";
  };
  EXPECT_EQ(Read(kMinimal)->tenants[0].weight, 1);
  EXPECT_EQ(Read(kMinimal)->tenants[0].max_priority_class,
            v1::PRIORITY_CLASS_REALTIME);
  const Tenant tenant =
      Read(with("fairSharing: {weight: 2.5}, max_priority_class: batch"))
          ->tenants[0];
  EXPECT_EQ(tenant.weight, 2.5);
  EXPECT_EQ(tenant.max_priority_class, v1::PRIORITY_CLASS_BATCH);
  EXPECT_THAT(Complaint(with("fairSharing: {weight: 0}")),
              HasSubstr("fairSharing.weight: expected 0.001 to 1000, got 0"));
  EXPECT_THAT(Complaint(with("fairSharing: {weight: nan}")),
              HasSubstr("fairSharing.weight: expected a number from 0 on"));
  EXPECT_THAT(Complaint(with("fairSharing: {weight: much}")),
              HasSubstr("from 0 on, got \"much\""));
  EXPECT_THAT(Complaint(with("max_priority_class: now")),
              HasSubstr("expected batch, interactive or realtime"));
}

TEST_F(ConfigTest, ContentsAndProductsAreSharedByThoseWhoSaySo) {
  const auto with = [](const std::string& key, const std::string& value) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, " +
           key + ": " + value + "}]\n";
  };
  EXPECT_FALSE(Read(kMinimal)->tenants[0].share_contents);
  EXPECT_FALSE(Read(kMinimal)->tenants[0].batch_with_others);
  EXPECT_TRUE(Read(with("share_contents", "true"))->tenants[0].share_contents);
  EXPECT_TRUE(
      Read(with("batch_with_others", "true"))->tenants[0].batch_with_others);
  EXPECT_THAT(Complaint(with("share_contents", "some")),
              HasSubstr("tenants[0].share_contents"));
  EXPECT_THAT(Complaint(with("batch_with_others", "some")),
              HasSubstr("tenants[0].batch_with_others"));
}

TEST_F(ConfigTest, CohortsHaveQuotasToo) {
  const auto with = [](const std::string& cohorts) {
    return std::string(kMinimal) + "cohorts: [" + cohorts + "]\n";
  };
  EXPECT_TRUE(Read(kMinimal)->cohorts.empty());
  const absl::StatusOr<Config> config =
      Read(with("{name: lab, quota: {memory_bytes: {nominalQuota: 1GiB}}}, "
                "{name: lab/vision, fairSharing: {weight: 2}, quota: {"
                "memory_bytes: {lendingLimit: 2GiB}, "
                "bytes_per_second: {nominalQuota: 10MB}, "
                "device_seconds_per_second: {nominalQuota: 2.5, "
                "borrowingLimit: 1}}}"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cohorts[0].name, "lab");
  EXPECT_EQ(config->cohorts[0].weight, 1);
  EXPECT_EQ(config->cohorts[0].quotas[0].nominal, int64_t{1} << 30);
  EXPECT_FALSE(config->cohorts[0].quotas[1].limited());
  EXPECT_FALSE(config->cohorts[0].device_rate.has_value());
  const Cohort& vision = config->cohorts[1];
  EXPECT_EQ(vision.weight, 2);
  // The cohort owns nothing.
  EXPECT_EQ(vision.quotas[0].nominal, 0);
  EXPECT_EQ(vision.quotas[0].lending_limit, int64_t{2} << 30);
  EXPECT_EQ(vision.device_rate->nominal, 2.5);
  EXPECT_EQ(vision.device_rate->borrowing_limit, 1);
  EXPECT_EQ(vision.byte_rate->nominal, 1e7);
  EXPECT_THAT(Complaint(with("{name: lab/}")),
              HasSubstr("cohorts[0].name: expected names with a / between"));
  EXPECT_THAT(Complaint(with("{fairSharing: {weight: 0}}")),
              AllOf(HasSubstr("cohorts[0].name"),
                    HasSubstr("cohorts[0].fairSharing.weight")));
  EXPECT_THAT(Complaint(with("{name: lab}, {name: lab}")),
              HasSubstr("the name lab is given twice"));
  EXPECT_THAT(
      Complaint(with("{name: lab, quota: {memory_bytes: {lendingLimit: 1}}}")),
      HasSubstr("there is no cohort around it"));
  EXPECT_THAT(Complaint(with("{name: lab, quota: {memory: {}}}")),
              HasSubstr("quota.memory: unknown key"));
}

TEST_F(ConfigTest, QuotasAreKueues) {
  const auto with = [](const std::string& rest) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, " +
           rest + "}]\n";
  };
  const Tenant tenant = Read(with("cohort: lab/vision, quota: {"
                                  "memory_bytes: {nominalQuota: 1GiB, "
                                  "borrowingLimit: 0, lendingLimit: 512MiB}, "
                                  "bytes_per_second: {nominalQuota: 10MB}, "
                                  "device_seconds_per_second: "
                                  "{nominalQuota: 2.5, borrowingLimit: 1}}"))
                            ->tenants[0];
  EXPECT_EQ(tenant.cohort, "lab/vision");
  EXPECT_EQ(tenant.quotas[0].nominal, 1 << 30);
  EXPECT_EQ(tenant.quotas[0].borrowing_limit, 0);
  EXPECT_EQ(tenant.quotas[0].lending_limit, 512 << 20);
  EXPECT_FALSE(tenant.quotas[1].limited());
  EXPECT_EQ(tenant.device_rate->nominal, 2.5);
  EXPECT_EQ(tenant.device_rate->borrowing_limit, 1);
  EXPECT_TRUE(tenant.credits.device_time_rated);
  EXPECT_EQ(tenant.byte_rate->nominal, 1e7);
  EXPECT_TRUE(tenant.credits.bytes_rated);
  EXPECT_FALSE(Read(kMinimal)->tenants[0].device_rate.has_value());
  EXPECT_THAT(
      Complaint(with("quota: {outstanding_messages: {lendingLimit: 1}}")),
      AllOf(HasSubstr("outstanding_messages.nominalQuota: is missing"),
            HasSubstr("there is no cohort")));
  EXPECT_THAT(Complaint(with("quota: {memory: {nominalQuota: 1}}")),
              HasSubstr("quota.memory: unknown key"));
  EXPECT_THAT(Complaint(with("cohort: /lab")),
              HasSubstr("expected names with a / between them"));
}

TEST_F(ConfigTest, ReadsEverything) {
  const absl::StatusOr<Config> config = Read(R"(
listen: unix:/run/djinn/c.sock
insecure: true
session_timeout: 5s
worker_timeout: 3s
heartbeat_interval: 500ms
lease_valid_for: 1m
lease_request_timeout: 2s
line_patience: 1500ms
reclaim_spares_for: 20s
reclaim_loss_limit: 90s
graph_store_size: 1MiB
state_file: state.db
join_token_file: join
admin_token_file: admin
tenants:
  - name: red
    token_file: red
    max_sessions: 2
    limits:
      memory: 1GiB
      max_outstanding: 8
      max_outstanding_bytes: 2MiB
      inline_bytes: 8KiB
      max_graphs: 9
)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heartbeat_interval, absl::Milliseconds(500));
  EXPECT_EQ(config->worker_silence, absl::Seconds(3));
  EXPECT_EQ(config->reclaim_spares_for, absl::Seconds(20));
  EXPECT_EQ(config->reclaim_loss_limit, absl::Seconds(90));
  EXPECT_EQ(config->state_file, testing::TempDir() + "/state.db");
  EXPECT_EQ(config->tenants[0].max_sessions, 2u);
  EXPECT_EQ(config->tenants[0].limits.inline_bytes(), 8192u);
  EXPECT_EQ(config->tenants[0].limits.max_graphs(), 9u);
}

TEST_F(ConfigTest, EtcdIsOffUnlessThereAreServers) {
  const std::string minimal = kMinimal;
  EXPECT_FALSE(Read(minimal)->etcd.enabled());
  const absl::StatusOr<Config> config =
      Read(minimal +
           "etcd: {endpoints: [127.0.0.1:2379, 127.0.0.1:2380], lease: 3s}\n"
           "advertise: 127.0.0.1:7071\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->etcd.enabled());
  EXPECT_EQ(config->etcd.endpoints.size(), 2u);
  EXPECT_EQ(config->etcd.prefix, "djinn");
  EXPECT_EQ(config->etcd.lease, absl::Seconds(3));
  EXPECT_EQ(config->advertise, "127.0.0.1:7071");
  EXPECT_THAT(Complaint(minimal + "etcd: {lease: 1500ms, prefix: a/}\n"),
              AllOf(HasSubstr("etcd.endpoints: needs at least one"),
                    HasSubstr("etcd.lease: must be whole seconds"),
                    HasSubstr("etcd.prefix: must not be empty")));
  EXPECT_THAT(Complaint(minimal + "etcd: {endpoints: [10.0.0.1:2379]}\n"),
              HasSubstr("etcd.endpoints: "));
  EXPECT_TRUE(
      Read(minimal + "etcd: {endpoints: [10.0.0.1:2379], insecure: true}\n")
          .ok());
  EXPECT_THAT(Complaint(minimal + "etcd: {endpoints: [127.0.0.1:2379]}\n"
                                  "state_file: state.db\n"),
              HasSubstr("state_file: not together with etcd"));
  EXPECT_THAT(Complaint(minimal + "advertise: 127.0.0.1:1\n"),
              HasSubstr("advertise: has no effect without etcd"));
}

TEST_F(ConfigTest, SaysWhatIsWrong) {
  EXPECT_THAT(Complaint(std::string(kMinimal) + "lisen: x\n"),
              HasSubstr("c.yaml:4: lisen: unknown key"));
  EXPECT_THAT(Complaint(std::string(kMinimal) + "listen: 0.0.0.0:7070\n"),
              HasSubstr("not on the loopback"));
  EXPECT_THAT(Complaint(std::string(kMinimal) + "worker_timeout: 1s\n"),
              HasSubstr("must exceed heartbeat_interval"));
  EXPECT_THAT(Complaint(std::string(kMinimal) + "worker_silence: 2s\n"),
              HasSubstr("worker_silence: must exceed heartbeat_interval"));
  EXPECT_THAT(Complaint(std::string(kMinimal) + "reclaim_loss_limit: 0s\n"),
              HasSubstr("reclaim_loss_limit: must be at least 1s"));
  EXPECT_THAT(Complaint("join_token_file: join\nadmin_token_file: admin\n"),
              HasSubstr("needs at least one"));
}

TEST_F(ConfigTest, RefusesLimitsThatNoClientCanUse) {
  const auto complaint = [this](const std::string& limit) {
    return Complaint(
        "join_token_file: join\n"
        "admin_token_file: admin\n"
        "tenants:\n"
        "  - name: red\n"
        "    token_file: red\n"
        "    limits:\n"
        "      " +
        limit + "\n");
  };
  EXPECT_THAT(complaint("inline_bytes: 8191"),
              AllOf(HasSubstr("c.yaml:7: "),
                    HasSubstr("limits.inline_bytes: expected at least 8192 "
                              "(8KiB), got 8191")));
  EXPECT_THAT(complaint("inline_bytes: 33MiB"),
              HasSubstr("must not exceed 32MiB, got 34603008"));
  EXPECT_THAT(
      complaint("max_outstanding: 1"),
      AllOf(HasSubstr("c.yaml:7: "),
            HasSubstr("max_outstanding: expected 2 to "), HasSubstr("got 1")));
  EXPECT_THAT(complaint("max_graphs: 0"),
              HasSubstr("max_graphs: expected 1 to "));
  EXPECT_THAT(complaint("memory: 0"),
              HasSubstr("memory: expected at least 1, got 0"));
  // The default of inline_bytes counts.
  EXPECT_THAT(complaint("max_outstanding_bytes: 1MiB"),
              AllOf(HasSubstr("c.yaml:7: "),
                    HasSubstr("max_outstanding_bytes: expected at least "
                              "1114112 (inline_bytes and 1MiB), got 1048576")));
  EXPECT_EQ(complaint("max_outstanding_bytes: 1114112"), "");
}

TEST_F(ConfigTest, PartsOfTheMemoryAreLimitedWhereItSaysSo) {
  const auto with = [](const std::string& keys) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, " +
           keys + "}]\n";
  };
  absl::StatusOr<Config> config = Read(kMinimal);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->tenants[0].limits.has_content_bytes());
  EXPECT_FALSE(config->tenants[0].totals.has_storage_bytes());
  config = Read(
      with("limits: {memory: 4GiB, content_memory: 3GiB, storage_memory: 2GiB, "
           "cache_memory: 1GiB},"
           "totals: {memory: 9GiB, content_memory: 0, cache_memory: 8GiB},"
           "quota: {content_bytes: {nominalQuota: 6GiB}, "
           "cache_bytes: {nominalQuota: 7GiB}}"));
  ASSERT_TRUE(config.ok()) << config.status();
  const Tenant& red = config->tenants[0];
  EXPECT_EQ(red.limits.content_bytes(), uint64_t{3} << 30);
  EXPECT_EQ(red.limits.storage_bytes(), uint64_t{2} << 30);
  EXPECT_TRUE(red.totals.has_content_bytes());
  EXPECT_EQ(red.totals.content_bytes(), 0u);
  EXPECT_FALSE(red.totals.has_storage_bytes());
  EXPECT_EQ(red.limits.cache_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(red.totals.cache_bytes(), uint64_t{8} << 30);
  const auto cache = static_cast<size_t>(scheduler::Resource::kCacheBytes);
  EXPECT_EQ(red.quotas[cache].nominal, int64_t{7} << 30);
  EXPECT_EQ(LeaseQuota(red)[cache], int64_t{1} << 30);
  const auto content = static_cast<size_t>(scheduler::Resource::kContentBytes);
  const auto storage = static_cast<size_t>(scheduler::Resource::kStorageBytes);
  EXPECT_EQ(red.quotas[content].nominal, int64_t{6} << 30);
  EXPECT_FALSE(red.quotas[storage].limited());
  EXPECT_EQ(LeaseQuota(red)[content], int64_t{3} << 30);
  // A part without a limit of its own may take all.
  config = Read(with("limits: {memory: 4GiB, content_memory: 3GiB}"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(LeaseQuota(config->tenants[0])[storage], int64_t{4} << 30);
  EXPECT_EQ(LeaseQuota(config->tenants[0])[cache], int64_t{4} << 30);
  EXPECT_THAT(Complaint(with("limits: {memory: 1GiB, cache_memory: 2GiB}")),
              HasSubstr("tenants[0].limits.cache_memory: is a part of "));
  EXPECT_THAT(Complaint(with("limits: {memory: 1GiB, storage_memory: 2GiB}")),
              HasSubstr("tenants[0].limits.storage_memory: is a part of "
                        "memory, and must not exceed its 1073741824, got "
                        "2147483648"));
  EXPECT_THAT(Complaint(with("totals: {memory: 1GiB, content_memory: 2GiB}")),
              HasSubstr("tenants[0].totals.content_memory: is a part of "));
}

TEST_F(ConfigTest, ModelsAreNotLimitedUnlessTheTenantsAre) {
  absl::StatusOr<Config> config = Read(kMinimal);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->tenants[0].totals.has_max_models());
  EXPECT_FALSE(config->tenants[0].totals.has_model_bytes());
  const auto with = [](const std::string& totals) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, totals: {" +
           totals + "}}]\n";
  };
  config = Read(with("max_models: 3, model_bytes: 2GiB"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tenants[0].totals.max_models(), 3u);
  EXPECT_EQ(config->tenants[0].totals.model_bytes(), uint64_t{2} << 30);
  // Zero is a limit, too.
  config = Read(with("max_models: 0"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->tenants[0].totals.has_max_models());
  EXPECT_EQ(config->tenants[0].totals.max_models(), 0u);
  EXPECT_THAT(Complaint(with("max_models: 5000000000")),
              HasSubstr("tenants[0].totals.max_models: expected 0 to "));
  EXPECT_THAT(Complaint(with("model_bytes: many")),
              HasSubstr("tenants[0].totals.model_bytes: "));
}

TEST_F(ConfigTest, ATenantMayHaveAShorterLimitOfNodesThanWorkers) {
  EXPECT_FALSE(Read(kMinimal)->tenants[0].totals.has_node_limit());
  const auto with = [](const std::string& limit) {
    return "join_token_file: join\nadmin_token_file: admin\n"
           "tenants: [{name: red, token_file: red, node_limit: " +
           limit + "}]\n";
  };
  const absl::StatusOr<Config> config = Read(with("1m30s"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tenants[0].totals.node_limit().seconds(), 90);
  EXPECT_THAT(Complaint(with("4s")),
              HasSubstr("tenants[0].node_limit: at least 5s"));
}

TEST_F(ConfigTest, OneCredentialOnePrincipal) {
  EXPECT_THAT(Complaint("join_token_file: join\n"
                        "admin_token_file: admin\n"
                        "tenants: [{name: red, token_file: red},"
                        " {name: blue, token_file: red}]\n"),
              HasSubstr("another principal's"));
  EXPECT_THAT(Complaint("join_token_file: join\n"
                        "admin_token_file: join\n"
                        "tenants: [{name: red, token_file: red}]\n"),
              HasSubstr("must be another one"));
}

TEST(TenantsTest, TokensDecide) {
  const Tenants tenants({TestTenant("red"), TestTenant("blue")});
  EXPECT_EQ(tenants.Authenticate("blue-token").value()->name, "blue");
  EXPECT_EQ(ErrorReason(tenants.Authenticate("blue").status()),
            "TOKEN_UNKNOWN");
  EXPECT_EQ(ErrorReason(tenants.Authenticate("").status()), "TOKEN_UNKNOWN");
  EXPECT_EQ(tenants.Find("green"), nullptr);
}

}  // namespace

}  // namespace djinn::coordinator
