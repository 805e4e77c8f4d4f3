#include "common/net/monitoring/monitoring_port.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/error.h"
#include "gtest/gtest.h"
#include "httplib.h"

namespace djinn {
namespace {

MonitoringOptions OptionsAt(const std::string& address) {
  MonitoringOptions options;
  options.address = address;
  options.readiness = [] { return std::vector<ReadinessCheck>{}; };
  return options;
}

TEST(MonitoringPortTest, AFreePortServesAtOnce) {
  const auto port = MonitoringPort::Open(OptionsAt("127.0.0.1:0"));
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ(
      httplib::Client("http://" + (*port)->address()).Get("/readyz")->body,
      "ok\n");
}

TEST(MonitoringPortTest, ABusyPortServesOnceItIsFree) {
  auto busy = MonitoringServer::Start(OptionsAt("127.0.0.1:0")).value();
  const std::string address = busy->address();
  const auto port =
      MonitoringPort::Open(OptionsAt(address), absl::Milliseconds(1));
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ((*port)->address(), "");
  busy = nullptr;
  while ((*port)->address().empty()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ((*port)->address(), address);
  EXPECT_TRUE(httplib::Client("http://" + address).Get("/livez"));
}

TEST(MonitoringPortTest, StandInAnswersWhileThePortIsBusyAndAfterwards) {
  auto busy = MonitoringServer::Start(OptionsAt("127.0.0.1:0")).value();
  const std::string address = busy->address();
  MonitoringOptions options = OptionsAt(address);
  options.stand_in = true;
  options.sources = {[](Exposition* out) { out->Gauge("g", "Help.", 1); }};
  const auto port = MonitoringPort::Open(options, absl::Milliseconds(1));
  ASSERT_TRUE(port.ok()) << port.status();
  const std::string stand_in = (*port)->address();
  ASSERT_NE(stand_in, "");
  EXPECT_NE(stand_in, address);
  httplib::Client client("http://" + stand_in);
  EXPECT_EQ(client.Get("/readyz")->body, "ok\n");
  EXPECT_EQ(client.Get("/metrics")->body, "");
  busy = nullptr;
  while ((*port)->address() != address) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(client.Get("/readyz")->body, "ok\n");
  EXPECT_NE(httplib::Client("http://" + address).Get("/metrics")->body, "");
}

TEST(MonitoringPortTest, FreePortNeedsNoStandIn) {
  MonitoringOptions options = OptionsAt("127.0.0.1:0");
  options.stand_in = true;
  const auto port = MonitoringPort::Open(options);
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ(
      httplib::Client("http://" + (*port)->address()).Get("/metrics")->status,
      200);
}

TEST(MonitoringPortTest, OneThatStaysBusyDoesNotHoldUpTheEnd) {
  const auto busy = MonitoringServer::Start(OptionsAt("127.0.0.1:0")).value();
  EXPECT_TRUE(
      MonitoringPort::Open(OptionsAt(busy->address()), absl::Hours(1)).ok());
}

TEST(MonitoringPortTest, AnAddressThatIsNotAllowedIsAnError) {
  EXPECT_EQ(ErrorReason(MonitoringPort::Open(OptionsAt("0.0.0.0:0")).status()),
            "INSECURE_ADDRESS");
  EXPECT_EQ(ErrorReason(MonitoringPort::Open(OptionsAt("localhost")).status()),
            "MALFORMED_ADDRESS");
}

}  // namespace
}  // namespace djinn
