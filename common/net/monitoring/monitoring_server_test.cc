#include "common/net/monitoring/monitoring_server.h"

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/net/call_metrics.h"
#include "common/net/raw_connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

class MonitoringServerTest : public testing::Test {
 protected:
  void SetUp() override { Start({}); }

  void Start(MonitoringOptions options) {
    options.address = "127.0.0.1:0";
    options.sources = {[this](Exposition* out) {
      out->Counter("djinn_things_total", help_, 3);
    }};
    options.readiness = [this] {
      return std::vector<ReadinessCheck>{{"serving", ""},
                                         {"coordinator", failure_, detail_}};
    };
    server_ = MonitoringServer::Start(std::move(options)).value();
  }

  httplib::Result Get(const std::string& path) {
    return httplib::Client("http://" + server_->address()).Get(path.c_str());
  }

  std::string failure_;
  std::string detail_;
  std::string help_ = "Things.";
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
  const Socket silent = ConnectTo(address);
  ASSERT_TRUE(Get("/livez"));
  server_ = nullptr;
  EXPECT_FALSE(httplib::Client("http://" + address).Get("/livez"));
}

TEST_F(MonitoringServerTest, AnswersProbesBesideManyThatSendAByteAtATime) {
  // Nothing is dropped, so that the probes are answered beside all of them.
  MonitoringOptions options;
  options.request_timeout = absl::Hours(1);
  Start(std::move(options));
  const std::string request = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
  std::vector<Socket> slow;
  for (int i = 0; i < 24; ++i) slow.push_back(ConnectTo(server_->address()));
  for (const char byte : request.substr(0, request.size() - 1)) {
    for (const Socket& each : slow) {
      ASSERT_EQ(send(each.fd(), &byte, 1, MSG_NOSIGNAL), 1);
    }
    const httplib::Result probe = Get("/livez");
    ASSERT_TRUE(probe);
    ASSERT_EQ(probe->status, 200);
  }
  for (const Socket& each : slow) {
    ASSERT_EQ(send(each.fd(), &request.back(), 1, MSG_NOSIGNAL), 1);
    EXPECT_THAT(ReadAll(each), HasSubstr("200 OK"));
  }
}

TEST_F(MonitoringServerTest, ARequestThatGrowsForTooLongIsDropped) {
  MonitoringOptions options;
  options.request_timeout = absl::Milliseconds(50);
  Start(std::move(options));
  const Socket slow = ConnectTo(server_->address());
  // The peer never stops sending. Only the server can end this.
  while (send(slow.fd(), "G", 1, MSG_NOSIGNAL) == 1) {
  }
  EXPECT_TRUE(Get("/livez"));
}

TEST_F(MonitoringServerTest, ReadersThatReadNothingDelayNoProbeAndAreDropped) {
  help_.assign(32 << 20, 'x');
  MonitoringOptions options;
  options.answer_timeout = absl::Milliseconds(200);
  Start(std::move(options));
  std::vector<Socket> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(ConnectTo(server_->address()));
    const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
    ASSERT_EQ(send(slow.back().fd(), request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
  }
  // The answers are larger than the sockets' buffers, and these probes are
  // answered before anybody reads.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Get("/livez"));
  for (const Socket& each : slow) {
    AwaitHangUp(each);
    EXPECT_LT(ReadAll(each).size(), help_.size());
  }
}

TEST_F(MonitoringServerTest, RefusesAddressesThatItMayNotOrCannotUse) {
  const auto start = [](const std::string& address) {
    MonitoringOptions options;
    options.address = address;
    return MonitoringServer::Start(std::move(options)).status();
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
