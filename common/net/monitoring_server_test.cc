#include "common/net/monitoring_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/net/call_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

class MonitoringServerTest : public testing::Test {
 protected:
  void SetUp() override {
    MonitoringOptions options;
    options.address = "127.0.0.1:0";
    options.sources = {[](Exposition* out) {
      out->Counter("djinn_things_total", "Things.", 3);
    }};
    options.readiness = [this] {
      return std::vector<ReadinessCheck>{{"serving", ""},
                                         {"coordinator", failure_, detail_}};
    };
    auto started = MonitoringServer::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  httplib::Result Get(const std::string& path) {
    return httplib::Client("http://" + server_->address()).Get(path.c_str());
  }

  std::string failure_;
  std::string detail_;
  std::unique_ptr<MonitoringServer> server_;
};

TEST_F(MonitoringServerTest, Serves) {
  EXPECT_EQ(Get("/livez")->body, "ok\n");
  const httplib::Result metrics = Get("/metrics");
  EXPECT_EQ(metrics->status, 200);
  EXPECT_THAT(metrics->body, HasSubstr("djinn_things_total 3\n"));
  EXPECT_THAT(metrics->get_header_value("Content-Type"),
              HasSubstr("text/plain; version=0.0.4"));
}

TEST_F(MonitoringServerTest, ReadinessNamesWhatFails) {
  EXPECT_EQ(Get("/readyz")->status, 200);
  EXPECT_EQ(Get("/readyz")->body, "ok\n");
  EXPECT_EQ(Get("/readyz?verbose")->body,
            "[+]serving ok\n[+]coordinator ok\nok\n");
  failure_ = "not reached";
  EXPECT_EQ(Get("/readyz")->status, 503);
  EXPECT_EQ(Get("/readyz")->body,
            "[-]coordinator failed: not reached\nnot ready\n");
  detail_ = "for 3 s";
  EXPECT_EQ(Get("/readyz")->body,
            "[-]coordinator failed: not reached; for 3 s\nnot ready\n");
  failure_.clear();
  EXPECT_EQ(Get("/readyz?verbose")->body,
            "[+]serving ok\n[+]coordinator ok; for 3 s\nok\n");
  failure_ = "not reached";
  // Liveness does not depend on the checks.
  EXPECT_EQ(Get("/livez")->status, 200);
}

TEST_F(MonitoringServerTest, RefusesEverythingElse) {
  EXPECT_EQ(Get("/")->status, 404);
  EXPECT_EQ(Get("/metrics/../etc/passwd")->status, 404);
  httplib::Client client("http://" + server_->address());
  EXPECT_EQ(client.Post("/metrics", "", "text/plain")->status, 404);
  const httplib::Result large =
      client.Post("/metrics", std::string(100000, 'x'), "text/plain");
  EXPECT_TRUE(!large || large->status >= 400);
}

TEST_F(MonitoringServerTest, AnswersManyAtOnce) {
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back([&] {
      const httplib::Result result = Get("/metrics");
      answered += result && result->status == 200;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 40);
}

TEST_F(MonitoringServerTest, StopsBesideAClientThatSaysNothing) {
  const std::string address = server_->address();
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ASSERT_EQ(connect(silent, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_TRUE(Get("/livez"));
  server_ = nullptr;
  EXPECT_FALSE(httplib::Client("http://" + address).Get("/livez"));
  close(silent);
}

TEST_F(MonitoringServerTest, RefusesAddressesThatItMayNotOrCannotUse) {
  const auto start = [](const std::string& address) {
    return MonitoringServer::Start({address, false, {}, {}}).status();
  };
  EXPECT_EQ(ErrorReason(start(server_->address())), "CANNOT_LISTEN");
  EXPECT_EQ(ErrorReason(start("unix:/x")), "MALFORMED_ADDRESS");
  EXPECT_EQ(ErrorReason(start("0.0.0.0:0")), "INSECURE_ADDRESS");
  EXPECT_EQ(ErrorReason(start("localhost")), "MALFORMED_ADDRESS");
}

TEST(CallMetricsTest, CountsByMethodAndStatus) {
  CallMetrics metrics;
  metrics.Started("djinn.v1.Admin/GetWorker");
  metrics.Ended("djinn.v1.Admin/GetWorker", "NOT_FOUND", absl::Seconds(1));
  Exposition exposition;
  metrics.Collect(&exposition);
  const std::string text = exposition.Text();
  EXPECT_THAT(text, HasSubstr("grpc_server_call_started_total{grpc_method="
                              "\"djinn.v1.Admin/GetWorker\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("grpc_server_call_duration_seconds_sum{grpc_method="
                        "\"djinn.v1.Admin/GetWorker\",grpc_status="
                        "\"NOT_FOUND\"} 1\n"));
}

}  // namespace
}  // namespace djinn
