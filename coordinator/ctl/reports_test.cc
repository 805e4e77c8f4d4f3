#include "coordinator/ctl/reports.h"

#include <string>
#include <vector>

#include "coordinator/ctl/parse_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;

TEST(TopTest, TheBusiestWorkerIsFirstAndALostOneLast) {
  EXPECT_EQ(TopWorkers(Parse<v1::ListWorkersResponse>(R"pb(
              workers { worker_id: "gone" memory_bytes: 1000 lease_count: 0 }
              workers {
                worker_id: "idle"
                memory_bytes: 1000
                free_bytes: 1000
                memory {}
              }
              workers {
                worker_id: "busy"
                memory_bytes: 1000000
                free_bytes: 750000
                queued_runs: 7
                lease_count: 2
                session_count: 1
                busy_share: 0.934
                memory {}
              }
            )pb")),
            "WORKER  BUSY  MEMORY         QUEUED  LEASES  SESSIONS\n"
            "busy    93%   250.0kB (25%)  7       2       1\n"
            "idle    0%    0B (0%)        0       0       0\n"
            "gone    -     -              -       0       -\n");
}

TEST(TopTest, TenantsAreByTheDeviceTimeBetweenTwoLooks) {
  const auto before = Parse<v1::ListTenantsResponse>(R"pb(
    tenants {
      tenant: "blue"
      credits {
        used {
          device_time { seconds: 100 }
          bytes: 500
        }
      }
    }
    tenants {
      tenant: "red"
      credits {
        used {
          device_time { seconds: 10 }
          bytes: 1000
        }
      }
    }
  )pb");
  const auto after = Parse<v1::ListTenantsResponse>(R"pb(
    tenants {
      tenant: "blue"
      credits {
        used {
          device_time { seconds: 1 }
          bytes: 10
        }
      }
    }
    tenants { tenant: "new" session_count: 1 }
    tenants {
      tenant: "red"
      session_count: 2
      lease_count: 3
      storage_bytes: 2000
      use { queued_runs: 4 }
      credits {
        used {
          device_time { seconds: 13 }
          bytes: 5000
        }
      }
    }
  )pb");
  // Blue's use was reset by a new period of its credits.
  EXPECT_EQ(TopTenants(before, after, absl::Seconds(2)),
            "TENANT  DEVICES  MOVED    STORAGE  QUEUED  LEASES  SESSIONS\n"
            "red     1.50     2.0kB/s  2.0kB    4       3       2\n"
            "blue    0.00     0B/s     0B       0       0       0\n"
            "new     -        -        0B       0       0       1\n");
}

absl::StatusOr<v1::SetQuotaRequest> ToSet(std::vector<std::string> words,
                                          const v1::TenantInfo& tenant = {}) {
  std::vector<std::string> arguments = {"quota", "set", "red"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  return QuotaToSet(command.value_or(Command()), tenant);
}
std::string Wrong(std::vector<std::string> words,
                  const v1::TenantInfo& tenant = {}) {
  return std::string(ToSet(std::move(words), tenant).status().message());
}

TEST(QuotaReportTest, UnnamedLimitsStayAsTheyAre) {
  const auto tenant = Parse<v1::TenantInfo>(R"pb(
    quotas { resource: "content_bytes" nominal: 3 lending_limit: 1 }
    quotas {
      resource: "memory_bytes"
      nominal: 9
      borrowing_limit: 5
      lending_limit: 7
    }
  )pb");
  auto memory = ToSet({"memory_bytes=2KiB"}, tenant)->quotas();
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory.at("memory_bytes").nominal(), 2048);
  EXPECT_EQ(memory.at("memory_bytes").borrowing_limit(), 5);
  EXPECT_EQ(memory.at("memory_bytes").lending_limit(), 7);
  const auto request = *ToSet(
      {"memory_bytes.borrowingLimit=none", "memory_bytes.lendingLimit=1kB",
       "content_bytes.nominalQuota=0", "device_seconds_per_second=2.5"},
      tenant);
  EXPECT_EQ(request.tenant(), "red");
  EXPECT_EQ(request.quotas().at("memory_bytes").nominal(), 9);
  EXPECT_FALSE(request.quotas().at("memory_bytes").has_borrowing_limit());
  EXPECT_EQ(request.quotas().at("memory_bytes").lending_limit(), 1000);
  EXPECT_EQ(request.quotas().at("content_bytes").nominal(), 0);
  EXPECT_EQ(request.quotas().at("content_bytes").lending_limit(), 1);
  const std::vector<v1::TryQuotaRequest> tries = QuotasToTry(request);
  ASSERT_EQ(tries.size(), 3u);
  EXPECT_EQ(tries[0].resource(), "content_bytes");
  EXPECT_EQ(tries[0].lending_limit(), 1);
  EXPECT_EQ(tries[1].resource(), "device_seconds_per_second");
  EXPECT_EQ(tries[1].nominal(), 2.5);
  EXPECT_FALSE(tries[1].has_lending_limit());
  EXPECT_EQ(tries[2].tenant(), "red");
}

TEST(QuotaReportTest, WrongWordsAreNamed) {
  EXPECT_EQ(Wrong({"outstanding_messages=many"}),
            "\"outstanding_messages=many\": expected a number of "
            "outstanding_messages, got \"many\"");
  EXPECT_NE(Wrong({"memory_bytes=1XB"}), "");
  EXPECT_NE(Wrong({"memory_bytes=none"}), "");
  EXPECT_NE(Wrong({"memory_bytes=1", "memory_bytes.lendingLimit=x"}), "");
  EXPECT_EQ(Wrong({"memory_bytes=1", "memory_bytes.nominalQuota=2"}),
            "\"memory_bytes.nominalQuota=2\": the same amount is given twice");
  for (const char* word : {"memory_bytes", "memory_bytes=", "=1"}) {
    EXPECT_THAT(Wrong({word}), HasSubstr("expected RESOURCE=AMOUNT")) << word;
  }
  EXPECT_EQ(Wrong({"memory_bytes.weight=1"}),
            "\"memory_bytes.weight=1\": \"weight\" is none of nominalQuota, "
            "borrowingLimit, lendingLimit");
  EXPECT_EQ(Wrong({"memory_bytes.lendingLimit=1"}),
            "tenant red has no quota of memory_bytes: name it, too, as "
            "memory_bytes=AMOUNT");
}

TEST(QuotaReportTest, ShowsWhatWouldChange) {
  const auto request = Parse<v1::TryQuotaRequest>(R"pb(
    tenant: "red"
    resource: "memory_bytes"
    nominal: 13000
    lending_limit: 0
  )pb");
  auto response = Parse<v1::TryQuotaResponse>(R"pb(
    before { nominal: 10000 used: 14000 borrowed: 4000 }
    after { nominal: 13000 lending_limit: 0 used: 14000 borrowed: 1000 }
    over_nominal: 1000
    available: 7000
    others {
      tenant: "blue"
      before { lent: 4000 }
      after { lent: 1000 }
    }
    reclaimed_by: "blue"
  )pb");
  EXPECT_EQ(Report(request, response),
            "tenant           red\n"
            "quota of         memory_bytes\n"
            "nominal          10000 (10.0kB) -> 13000 (13.0kB)\n"
            "borrowing limit  none\n"
            "lending limit    none -> 0\n"
            "used             14000 (14.0kB)\n"
            "borrowed         4000 (4.0kB) -> 1000 (1.0kB)\n"
            "lent             0\n"
            "over nominal     1000 (1.0kB)\n"
            "available        7000 (7.0kB)\n"
            "takes back from  nobody\n"
            "gives back to    blue\n"
            "\n"
            "TENANT  BORROWED  LENT\n"
            "blue    0         4000 (4.0kB) -> 1000 (1.0kB)\n"
            "\n"
            "nothing was changed: without --dry-run, this sets the quota\n");
  response.clear_before();
  EXPECT_THAT(Report(request, response),
              HasSubstr("nominal          13000 (13.0kB)\n"));
}

}  // namespace
}  // namespace djinn::ctl
