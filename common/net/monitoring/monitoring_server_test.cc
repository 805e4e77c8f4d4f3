#include "common/net/monitoring/monitoring_server.h"

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/net/raw_connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"

namespace djinn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MonitoringServerTest : public testing::Test {
 protected:
  void SetUp() override { Start({}); }

  void Start(MonitoringOptions options,
             const std::string& address = "127.0.0.1:0") {
    options.address = address;
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

  // Sends bytes as they are, and returns the whole answer.
  std::string Raw(const std::string& request) {
    const Socket connection = ConnectTo(server_->address());
    (void)send(connection.fd(), request.data(), request.size(), MSG_NOSIGNAL);
    return ReadAll(connection);
  }
  std::string RequestFor(const std::string& path, const std::string& host) {
    return Raw(
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
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

TEST_F(MonitoringServerTest, PathsLeadNowhereElse) {
  EXPECT_EQ(Get("/")->status, 404);
  EXPECT_EQ(Get("/metrics/../etc/passwd")->status, 404);
  for (const char* const path :
       {"/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/etc/passwd",
        "//etc/passwd", "/metrics/../livez", "/metrics%00", "/livez/",
        "/metrics/../../etc/passwd", "//metrics", "/.git/config",
        "http://127.0.0.1/etc/passwd", "/\\..\\livez"}) {
    const std::string answer =
        Raw(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr(" 200 "))) << path;
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << path;
  }
}

TEST_F(MonitoringServerTest, OtherMethodsAndBodiesAreRefused) {
  httplib::Client client("http://" + server_->address());
  for (const char* const path : {"/livez", "/readyz", "/metrics"}) {
    EXPECT_EQ(client.Post(path, "", "text/plain")->status, 404);
    EXPECT_EQ(client.Put(path, "", "text/plain")->status, 404);
    EXPECT_EQ(client.Delete(path)->status, 404);
    EXPECT_EQ(client.Options(path)->status, 404);
  }
  // A body is not even read.
  EXPECT_THAT(Raw("POST /metrics HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Length: 99999999999\r\n\r\n"),
              AllOf(HasSubstr("HTTP/1.1 4"), Not(HasSubstr("things"))));
  EXPECT_EQ(Get("/livez")->status, 200);
}

TEST_F(MonitoringServerTest, OversizedRequestsAreDroppedAndHarmNobody) {
  // More than the gate takes.
  const std::string huge(1 << 20, 'x');
  EXPECT_EQ(Raw(absl::StrCat("GET /", huge)), "");
  EXPECT_EQ(Raw(absl::StrCat("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ",
                             huge)),
            "");
  EXPECT_EQ(Get("/livez")->status, 200);
}

TEST_F(MonitoringServerTest, OtherSitesAndOtherNamesAreRefusedOnTheLoopback) {
  const auto status = [&](const char* name, const std::string& value) {
    return httplib::Client("http://" + server_->address())
        .Get("/metrics", {{name, value}})
        ->status;
  };
  EXPECT_EQ(status("Origin", "http://evil.example"), 403);
  EXPECT_EQ(status("Origin", "null"), 403);
  EXPECT_EQ(status("Origin", "http://" + server_->address()), 200);
  EXPECT_EQ(status("Sec-Fetch-Site", "cross-site"), 403);
  EXPECT_EQ(status("Sec-Fetch-Site", "none"), 200);
  // A link from another site, such as Prometheus' list of targets.
  EXPECT_EQ(httplib::Client("http://" + server_->address())
                .Get("/metrics", {{"Sec-Fetch-Site", "cross-site"},
                                  {"Sec-Fetch-Mode", "navigate"}})
                ->status,
            200);
  // A name that an attacker points at the loopback.
  for (const char* const host :
       {"evil.example", "evil.example:80", "localhost.evil.example",
        "127.0.0.1.x", "[::1", "[evil]:80"}) {
    for (const char* const path : {"/livez", "/metrics"}) {
      EXPECT_THAT(RequestFor(path, host), HasSubstr("HTTP/1.1 403 ")) << host;
    }
  }
  for (const char* const host :
       {"localhost:9", "127.0.0.1", "[::1]:7090", "127.0.0.2:80", "[fe80::1]",
        "192.0.2.1:9464"}) {
    EXPECT_THAT(RequestFor("/metrics", host), HasSubstr("HTTP/1.1 200 "))
        << host;
  }
  EXPECT_THAT(Raw("GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr(" 200 "));
}

TEST_F(MonitoringServerTest, OffTheLoopbackScrapersMayUseAnyName) {
  MonitoringOptions options;
  options.insecure = true;
  Start(std::move(options), "0.0.0.0:0");
  EXPECT_THAT(RequestFor("/metrics", "worker-0.workers.svc:9464"),
              HasSubstr("HTTP/1.1 200 "));
  EXPECT_THAT(Raw("GET /metrics HTTP/1.1\r\nHost: worker-0\r\n"
                  "Origin: http://evil.example\r\n\r\n"),
              HasSubstr("HTTP/1.1 403 "));
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
  const std::string request = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
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

}  // namespace
}  // namespace djinn
