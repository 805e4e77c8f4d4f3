#include "coordinator/ctl/quota_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

Command Set(const std::string& resource, std::vector<std::string> flags) {
  std::vector<std::string> arguments = {"quota", "set", "red", resource,
                                        "--dry-run"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.value_or(Command());
}

TEST(QuotaReportTest, WhatIsNotNamedStaysAsItIs) {
  const auto tenant = Parse<v1::TenantInfo>(R"pb(
    quotas { resource: "content_bytes" lending_limit: 1 }
    quotas { resource: "memory_bytes" borrowing_limit: 5 lending_limit: 7 }
  )pb");
  auto request = *TriedQuota(Set("memory_bytes", {"--nominal=2KiB"}), tenant);
  EXPECT_EQ(request.tenant(), "red");
  EXPECT_EQ(request.resource(), "memory_bytes");
  EXPECT_EQ(request.nominal(), 2048);
  EXPECT_EQ(request.borrowing_limit(), 5);
  EXPECT_EQ(request.lending_limit(), 7);
  request = *TriedQuota(
      Set("memory_bytes",
          {"--nominal=0", "--borrowing-limit=none", "--lending-limit=1kB"}),
      tenant);
  EXPECT_FALSE(request.has_borrowing_limit());
  EXPECT_EQ(request.lending_limit(), 1000);
  request =
      *TriedQuota(Set("device_seconds_per_second", {"--nominal=2.5"}), tenant);
  EXPECT_EQ(request.nominal(), 2.5);
  EXPECT_FALSE(request.has_lending_limit());
}

TEST(QuotaReportTest, WhatIsNoAmountIsNamed) {
  EXPECT_EQ(TriedQuota(Set("outstanding_messages", {"--nominal=many"}), {})
                .status()
                .message(),
            "expected a number of outstanding_messages, got \"many\"");
  EXPECT_FALSE(TriedQuota(Set("memory_bytes", {"--nominal=1XB"}), {}).ok());
  EXPECT_FALSE(
      TriedQuota(Set("memory_bytes", {"--nominal=1", "--lending-limit=x"}), {})
          .ok());
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
            "nothing was changed: quotas are set in the coordinator's "
            "configuration, then `djinnctl reload`\n");
  response.clear_before();
  EXPECT_THAT(Report(request, response),
              HasSubstr("nominal          13000 (13.0kB)\n"));
}

}  // namespace
}  // namespace djinn::ctl
