#include "coordinator/console/console_server.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/net/raw_connection.h"
#include "coordinator/console/observer.h"
#include "coordinator/console/pictures.h"
#include "coordinator/console/run_history.h"
#include "coordinator/console/testing/simulated_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "nlohmann/json.hpp"

namespace djinn::console {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCode[] = "0123456789abcdef0123456789abcdef";
constexpr const char* kData[] = {
    "/api/overview", "/api/workers", "/api/runs",  "/api/shares",
    "/api/memory",   "/api/lineage", "/api/graphs"};

class ConsoleServerTest : public testing::Test {
 protected:
  ConsoleServerTest() { Start(absl::Seconds(2)); }

  void Start(absl::Duration request_timeout) {
    server_ = nullptr;
    ServerOptions options;
    options.address = "127.0.0.1:0";
    options.access_code = kCode;
    options.request_timeout = request_timeout;
    server_ = ConsoleServer::Start(options, &observer_, &cluster_).value();
  }

  httplib::Headers Allowed() {
    return {{"Authorization", absl::StrCat("Bearer ", kCode)}};
  }
  httplib::Result Get(const std::string& path, httplib::Headers headers = {}) {
    return httplib::Client("http://" + server_->address())
        .Get(path.c_str(), headers);
  }
  nlohmann::json Data(const std::string& path) {
    const httplib::Result result = Get(path, Allowed());
    EXPECT_EQ(result->status, 200) << path << result->body;
    return nlohmann::json::parse(result->body);
  }
  // Sends bytes as they are, and returns the whole answer.
  std::string Raw(const std::string& request) {
    const Socket connection = ConnectTo(server_->address());
    EXPECT_EQ(
        send(connection.fd(), request.data(), request.size(), MSG_NOSIGNAL),
        static_cast<ssize_t>(request.size()));
    return ReadAll(connection);
  }

  SimulatedCluster cluster_{{}};
  FakeClock clock_;
  Observer observer_{&cluster_, &clock_, {}};
  std::unique_ptr<ConsoleServer> server_;
};

TEST_F(ConsoleServerTest, ThePageNeedsNoCodeAndLoadsNothingFromElsewhere) {
  const httplib::Result page = Get("/");
  ASSERT_EQ(page->status, 200);
  EXPECT_THAT(page->get_header_value("Content-Type"), HasSubstr("text/html"));
  for (const char* const path :
       {"/", "/console.css", "/app.js", "/draw.js", "/graph.js", "/time.js",
        "/shares.js", "/memory.js", "/lineage.js"}) {
    const httplib::Result file = Get(path);
    EXPECT_EQ(file->status, 200) << path;
    EXPECT_THAT(file->body, Not(HasSubstr("https:"))) << path;
    EXPECT_THAT(file->body, Not(HasSubstr("innerHTML"))) << path;
    EXPECT_THAT(file->body, Not(HasSubstr(kCode))) << path;
  }
}

TEST_F(ConsoleServerTest, EveryAnswerHasTheHeadersThatProtectThePage) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  for (const char* const path : {"/", "/app.js", "/api/overview", "/nowhere"}) {
    const httplib::Result result = Get(path);
    const std::string policy =
        result->get_header_value("Content-Security-Policy");
    EXPECT_THAT(policy, HasSubstr("default-src 'none'")) << path;
    EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'")) << path;
    EXPECT_THAT(policy, Not(HasSubstr("unsafe"))) << path;
    EXPECT_EQ(result->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(result->get_header_value("Cache-Control"), "no-store");
    EXPECT_EQ(result->get_header_value("Referrer-Policy"), "no-referrer");
    EXPECT_FALSE(result->has_header("Access-Control-Allow-Origin"));
    EXPECT_FALSE(result->has_header("Set-Cookie"));
  }
}

TEST_F(ConsoleServerTest, DataNeedsTheCode) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  for (const char* const path : kData) {
    EXPECT_EQ(Get(path)->status, 401) << path;
    EXPECT_EQ(Get(path, {{"Authorization", "Bearer "}})->status, 401);
    EXPECT_EQ(Get(path, {{"Authorization", kCode}})->status, 401);
    EXPECT_EQ(Get(path, {{"Authorization", "Bearer 0123"}})->status, 401);
    EXPECT_EQ(Get(path, {{"Cookie", kCode}})->status, 401);
    EXPECT_EQ(Get(absl::StrCat(path, "?code=", kCode))->status, 401);
    EXPECT_EQ(Get(path, Allowed())->status, 200) << path;
  }
  EXPECT_THAT(Get("/api/overview")->body, HasSubstr("CODE_UNKNOWN"));
}

TEST_F(ConsoleServerTest, EachPictureHasItsData) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  const auto overview = Data("/api/overview");
  EXPECT_EQ(overview["workers"], 3);
  EXPECT_EQ(overview["waiting"], 2);
  EXPECT_FALSE(overview.contains("error"));
  EXPECT_EQ(Data("/api/workers")["rows"].size(), 3u);
  const auto runs = Data("/api/runs");
  EXPECT_EQ(runs["rows"].size(), 24u);
  EXPECT_EQ(runs["rows"][0].size(), runs["columns"].size());
  const auto shares = Data("/api/shares");
  EXPECT_EQ(shares["tenants"].size(), 4u);
  EXPECT_EQ(shares["tenants"][0]["reasons"]["NO_CAPACITY"], 2);
  EXPECT_EQ(shares["held"][0]["unblocked_by"], "a session that ends");
  const auto memory = Data("/api/memory");
  EXPECT_EQ(memory["worker_rows"].size(), 3u);
  EXPECT_EQ(memory["worker_rows"][0].size(), memory["worker_columns"].size());
  EXPECT_EQ(memory["rows"][0].size(), memory["columns"].size());
  // Sessions 0 and 3 lost a lease, 0 and 5 migrated.
  EXPECT_EQ(Data("/api/lineage")["devices"].size(), 3u);
  const auto graphs = Data("/api/graphs")["graphs"];
  ASSERT_EQ(graphs.size(), 5u);
  const std::string fingerprint = graphs[0]["fingerprint"];
  const auto graph = Data("/api/graph?fingerprint=" + fingerprint);
  EXPECT_EQ(graph["node_rows"].size(), 200u);
  EXPECT_EQ(graph["node_rows"][0].size(), graph["node_columns"].size());
  EXPECT_EQ(graph["edge_rows"][0].size(), graph["edge_columns"].size());
  EXPECT_EQ(graph["read_rows"][0].size(), graph["read_columns"].size());
  EXPECT_GT(graph["predicted"][0]["micros"], 0);
  EXPECT_GT(graph["measured"]["runs"], 0);
}

TEST_F(ConsoleServerTest, NoTimeIsSpentOnCompression) {
  httplib::Headers headers = Allowed();
  headers.emplace("Accept-Encoding", "gzip, br");
  EXPECT_FALSE(Get("/app.js", headers)->has_header("Content-Encoding"));
  EXPECT_FALSE(Get("/api/overview", headers)->has_header("Content-Encoding"));
}

TEST_F(ConsoleServerTest, OnlyChangesAreSentAgain) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  const uint64_t last = Data("/api/runs")["last_change"];
  EXPECT_EQ(Data(absl::StrCat("/api/runs?after=", last))["rows"].size(), 0u);
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  EXPECT_EQ(Data("/api/runs?before=3")["rows"].size(), 2u);
  // Each session adds the run that was in service, and three new ones.
  EXPECT_EQ(Data(absl::StrCat("/api/runs?after=", last))["rows"].size(), 24u);
}

TEST(RunsJsonTest, TheNewestAreSentFirst) {
  RunHistory history(kMaxSentRuns + 5);
  for (int number = 0; number < kMaxSentRuns + 5; ++number) {
    v1::RunInfo run;
    run.mutable_record()->set_number(static_cast<uint64_t>(number));
    history.Add(run, absl::UnixEpoch());
  }
  const auto all = ~uint64_t{0};
  const auto first = nlohmann::json::parse(RunsJson(history, 0, all));
  EXPECT_EQ(first["rows"].size(), size_t{kMaxSentRuns});
  EXPECT_EQ(first["rows"][0][1], kMaxSentRuns + 5);
  EXPECT_EQ(first["rest_before"], 6);
  const auto rest = nlohmann::json::parse(RunsJson(history, 0, 6));
  EXPECT_EQ(rest["rows"].size(), 5u);
  EXPECT_EQ(rest["rest_before"], 0);
}

TEST_F(ConsoleServerTest, RefusesBadQuestionsByName) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  const auto refusal = [&](const std::string& path) {
    const httplib::Result result = Get(path, Allowed());
    return absl::StrCat(
        result->status, " ",
        nlohmann::json::parse(result->body)["reason"].get<std::string>());
  };
  EXPECT_EQ(refusal("/api/runs?after=x"), "400 CHANGE_MALFORMED");
  EXPECT_EQ(refusal("/api/runs?after=1&before=-1"), "400 CHANGE_MALFORMED");
  EXPECT_EQ(refusal("/api/memory?at=yesterday"), "400 TIME_MALFORMED");
  EXPECT_EQ(refusal("/api/graph?fingerprint=12"), "404 GRAPH_UNKNOWN");
  EXPECT_EQ(refusal("/api/graph"), "404 GRAPH_UNKNOWN");
  EXPECT_EQ(refusal("/api/"), "404 NOT_FOUND");
  EXPECT_EQ(refusal("/api/drain"), "404 NOT_FOUND");
}

TEST_F(ConsoleServerTest, SaysThatNothingWasSeenYet) {
  EXPECT_EQ(Get("/api/shares", Allowed())->status, 503);
  EXPECT_EQ(Get("/api/memory", Allowed())->status, 503);
  EXPECT_EQ(Data("/api/overview")["round"], 0);
}

TEST_F(ConsoleServerTest, ShowsTheLastStateBesideTheError) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  cluster_.Fail(absl::UnavailableError("away"));
  ASSERT_FALSE(observer_.Look().ok());
  const auto overview = Data("/api/overview");
  EXPECT_EQ(overview["error"]["text"], "away");
  EXPECT_EQ(overview["workers"], 3);
  EXPECT_EQ(Data("/api/shares")["tenants"].size(), 4u);
}

TEST_F(ConsoleServerTest, NoMethodButGetIsServed) {
  httplib::Client client("http://" + server_->address());
  client.set_default_headers(Allowed());
  for (const char* const path : {"/", "/api/overview", "/api/workers"}) {
    EXPECT_EQ(client.Post(path, "", "text/plain")->status, 405);
    EXPECT_EQ(client.Put(path, "", "text/plain")->status, 405);
    EXPECT_EQ(client.Patch(path, "", "text/plain")->status, 405);
    EXPECT_EQ(client.Delete(path)->status, 405);
    EXPECT_EQ(client.Options(path)->status, 405);
  }
}

TEST_F(ConsoleServerTest, OtherSitesAndOtherNamesAreRefused) {
  ASSERT_EQ(observer_.Look(), absl::OkStatus());
  const auto status = [&](const char* name, const std::string& value) {
    httplib::Headers headers = Allowed();
    headers.emplace(name, value);
    return Get("/api/overview", headers)->status;
  };
  EXPECT_EQ(status("Origin", "http://evil.example"), 403);
  EXPECT_EQ(status("Origin", "null"), 403);
  EXPECT_EQ(status("Origin", "http://" + server_->address()), 200);
  EXPECT_EQ(status("Sec-Fetch-Site", "cross-site"), 403);
  EXPECT_EQ(status("Sec-Fetch-Site", "same-site"), 403);
  EXPECT_EQ(status("Sec-Fetch-Site", "same-origin"), 200);
  // A link from elsewhere may open the page, and nothing else.
  httplib::Headers link = {{"Sec-Fetch-Site", "cross-site"},
                           {"Sec-Fetch-Mode", "navigate"}};
  EXPECT_EQ(Get("/", link)->status, 200);
  EXPECT_EQ(Get("/api/overview", link)->status, 403);
  // A name that an attacker points at the loopback.
  for (const char* const host : {"evil.example", "evil.example:80",
                                 "localhost.evil.example", "127.0.0.1.x"}) {
    EXPECT_THAT(Raw(absl::StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n")),
                HasSubstr(" 403 "))
        << host;
  }
  EXPECT_THAT(Raw("GET / HTTP/1.1\r\n\r\n"), HasSubstr(" 403 "));
  for (const char* const host : {"localhost:9", "127.0.0.1", "[::1]:7090"}) {
    EXPECT_THAT(Raw(absl::StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n")),
                HasSubstr(" 200 "))
        << host;
  }
}

TEST_F(ConsoleServerTest, PathsLeadNowhereElse) {
  for (const char* const path :
       {"/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/etc/passwd",
        "//etc/passwd", "/page/index.html", "/index.html/../app.js",
        "/console.css%00", "/app.js/", "/api/../app.js", "/.git/config",
        "http://127.0.0.1/etc/passwd", "/\\..\\app.js"}) {
    const std::string answer = Raw(absl::StrCat(
        "GET ", path, " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ",
        kCode, "\r\n\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr(" 200 "))) << path;
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << path;
  }
}

TEST_F(ConsoleServerTest, OversizedRequestsAreRefusedAndHarmNobody) {
  // More than the gate takes.
  const std::string huge(1 << 20, 'x');
  const Socket connection = ConnectTo(server_->address());
  const std::string request = absl::StrCat("GET /", huge);
  (void)send(connection.fd(), request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_THAT(ReadAll(connection), Not(HasSubstr(" 200 ")));
  const Socket headers = ConnectTo(server_->address());
  const std::string more =
      absl::StrCat("GET / HTTP/1.1\r\nHost: localhost\r\nX: ", huge);
  (void)send(headers.fd(), more.data(), more.size(), MSG_NOSIGNAL);
  EXPECT_THAT(ReadAll(headers), Not(HasSubstr(" 200 ")));
  // A body is not even read.
  EXPECT_THAT(Raw("POST /api/overview HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Length: 99999999999\r\n\r\n"),
              HasSubstr(" 405 "));
  EXPECT_EQ(Get("/")->status, 200);
}

TEST_F(ConsoleServerTest, SlowRequestsOccupyNothingAndAreDropped) {
  Start(absl::Hours(1));
  std::vector<Socket> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(ConnectTo(server_->address()));
    ASSERT_EQ(send(slow.back().fd(), "GET /", 5, MSG_NOSIGNAL), 5);
  }
  EXPECT_EQ(Get("/")->status, 200);
  Start(absl::Milliseconds(50));
  const Socket growing = ConnectTo(server_->address());
  // The peer never stops sending. Only the server can end this.
  while (send(growing.fd(), "G", 1, MSG_NOSIGNAL) == 1) {
  }
  EXPECT_EQ(Get("/")->status, 200);
}

TEST_F(ConsoleServerTest, ServesTheLoopbackAlone) {
  const auto start = [&](const std::string& address) {
    ServerOptions options;
    options.address = address;
    options.access_code = kCode;
    return ErrorReason(
        ConsoleServer::Start(options, &observer_, &cluster_).status());
  };
  EXPECT_EQ(start("0.0.0.0:0"), "INSECURE_ADDRESS");
  EXPECT_EQ(start("[::]:0"), "INSECURE_ADDRESS");
  EXPECT_EQ(start("192.0.2.1:80"), "INSECURE_ADDRESS");
  EXPECT_EQ(start("unix:/tmp/x"), "MALFORMED_ADDRESS");
  EXPECT_EQ(start("7090"), "MALFORMED_ADDRESS");
  EXPECT_EQ(start(server_->address()), "CANNOT_LISTEN");
  // TLS and --insecure, which other servers' errors advise, are not for it.
  for (const char* const address : {"0.0.0.0:0", "7090"}) {
    const std::string text(CheckConsoleAddress(address).message());
    EXPECT_THAT(text, AllOf(HasSubstr("ssh -L"), Not(HasSubstr("insecure")),
                            Not(HasSubstr("TLS"))));
  }
}

}  // namespace
}  // namespace djinn::console
