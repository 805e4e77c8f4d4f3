// Sends bytes that are not in the protocol, or nothing at all, to a real
// coordinator and a real worker.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "djinn/v1/session.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/hostile_fixture.h"
#include "tests/e2e/raw_call.h"

namespace djinn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

std::string Worker() {
  return absl::StrCat("unix:", environment->cluster().worker_socket(0));
}

bool LogSays(const std::string& path, const std::string& text) {
  return Eventually(
      [&] {
        std::ifstream file(path);
        const std::string log{std::istreambuf_iterator<char>(file), {}};
        return log.find(text) != std::string::npos;
      },
      absl::Seconds(5));
}

struct Method {
  std::string address;
  std::string name;
  std::string token;
  // Type of its first message.
  std::string message;
  std::string log;
};

std::vector<Method> Streams() {
  const ClusterProcesses& cluster = environment->cluster();
  return {
      {Worker(), "/djinn.v1.Execution/Control", "", "djinn.v1.ControlRequest",
       cluster.worker_log(0)},
      {Coordinator(), "/djinn.v1.Session/Attach", Token(),
       "djinn.v1.SessionRequest", cluster.coordinator_log()},
      {Coordinator(), "/djinn.v1.WorkerRegistry/Synchronize",
       ReadFirstWord(cluster.join_token_file()), "djinn.v1.WorkerState",
       cluster.coordinator_log()},
  };
}

// Sends bytes on a Unix socket and reads until the other side hangs up.
void SayRaw(const std::string& target, const std::string& bytes,
            bool end = true) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(fd, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path(absl::StripPrefix(target, "unix:"));
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  const timeval patience = {30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (end) shutdown(fd, SHUT_WR);
  char buffer[4096];
  ssize_t count;
  while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
  }
  // A reset is allowed, silence is not.
  EXPECT_FALSE(count < 0 && errno == EAGAIN) << "kept open";
  close(fd);
}

// Returns a hand-made call whose one message claims to have four gigabytes.
std::string ClaimingFourGigabytes(const std::string& path) {
  const auto text = [](const std::string& s) {
    return std::string(1, static_cast<char>(s.size())) + s;
  };
  // :method POST, :scheme http, :path, :authority, content-type, te.
  const std::string headers = "\x83\x86\x04" + text(path) + "\x01" +
                              text("localhost") + "\x0f\x10" +
                              text("application/grpc") + std::string(1, '\0') +
                              text("te") + text("trailers");
  const auto frame = [](char type, char flags, char stream,
                        const std::string& payload) {
    return std::string("\0\0", 2) + static_cast<char>(payload.size()) + type +
           flags + std::string("\0\0\0", 3) + stream + payload;
  };
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "") +
         frame(1, 4, 1, headers) +
         frame(0, 0, 1, std::string("\0\xff\xff\xff\xff", 5) + "some of it");
}

TEST_F(HostileWireTest, BytesThatAreNotGrpc) {
  std::mt19937 random(1);
  std::string noise(1 << 16, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string says[] = {
      "",
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "POST /djinn.v1.Execution/Control HTTP/1.1\r\nContent-Length: "
      "99999999999\r\n\r\n",
      noise,
      preface.substr(0, 10),
      preface,
      preface + noise,
      ClaimingFourGigabytes("/djinn.v1.Execution/Control"),
      ClaimingFourGigabytes("/djinn.v1.Session/Attach"),
      // Announces a frame of 16 MB.
      preface + std::string("\xff\xff\xff\x00\x00\x00\x00\x00\x01", 9) + noise,
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + noise,
      std::string(1 << 20, '\0'),
  };
  const std::string worker = bystander_->session().lease().worker_address();
  for (const std::string& target : {worker, Coordinator()}) {
    for (const std::string& bytes : says) SayRaw(target, bytes);
  }
}

// The bytes are inside a well-formed call.
TEST_F(HostileWireTest, MessagesThatAreNone) {
  const std::string cases[] = {
      std::string(11, '\xff'),
      // Groups in groups, deeper than any parser reads.
      std::string(10007, '\x6b'),
      // A field of four gigabytes.
      std::string("\x0a\xff\xff\xff\xff\x0f..", 8),
  };
  for (const Method& method : Streams()) {
    for (const std::string& bytes : cases) {
      SCOPED_TRACE(absl::StrCat(method.name, ", ", bytes.size(), " bytes"));
      const std::string what = absl::StrCat("a message of ", bytes.size(),
                                            " bytes is not a ", method.message);
      ExpectStatus(CallRaw(method.address, method.name, {bytes}, method.token),
                   StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION", {what});
      EXPECT_TRUE(LogSays(method.log, what));
    }
  }
  for (const std::string& bytes : cases) {
    ExpectStatus(CallRaw(Worker(), "/djinn.v1.Execution/Bulk", {bytes}),
                 StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION");
  }
  EXPECT_TRUE(LogSays(environment->cluster().worker_log(0),
                      "the first chunk must be a hello alone"));
  EXPECT_EQ(CallRaw(Worker(), "/djinn.v1.Execution/NoSuch", {"x"}).code(),
            StatusCode::kUnimplemented);
  // Larger than any message may be.
  EXPECT_EQ(CallRaw(Worker(), "/djinn.v1.Execution/Control",
                    {std::string(80 << 20, '\0')})
                .code(),
            StatusCode::kResourceExhausted);
}

TEST_F(HostileWireTest, NoiseAfterAHelloEndsThatSessionAndIsLoggedAsIts) {
  const std::string noise(13, '\xff');
  const WireSession session(Coordinator(), Token());
  v1::ControlRequest hello;
  *hello.mutable_hello() = session.Hello();
  v1::ControlRequest create;
  *create.mutable_ordered() = Create(1, 0, 8);
  create.mutable_ordered()->set_sequence(1);
  ExpectStatus(
      CallRaw(Worker(), "/djinn.v1.Execution/Control",
              {hello.SerializeAsString(), create.SerializeAsString(), noise}),
      StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION", {"13 bytes"});
  EXPECT_TRUE(LogSays(environment->cluster().worker_log(0),
                      absl::StrCat("msg=\"client sent no message\" session=",
                                   session.id().substr(0, 8))));

  v1::SessionRequest open;
  open.mutable_open()->set_protocol_version(kProtocolVersion);
  ExpectStatus(CallRaw(Coordinator(), "/djinn.v1.Session/Attach",
                       {open.SerializeAsString(), noise}, Token()),
               StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
               {"13 bytes"});
  EXPECT_TRUE(LogSays(environment->cluster().coordinator_log(),
                      "of tenant local\" peer="));
}

// The peers send nothing, or nothing further, and do not close the connection.
// They run at the same time, because the servers wait ten seconds for each.
TEST_F(HostileWireTest, PeersThatSayNothing) {
  const absl::Time began = absl::Now();
  std::vector<std::thread> peers;
  for (const std::string& target : {Worker(), Coordinator()}) {
    peers.emplace_back([target] { SayRaw(target, "", /*end=*/false); });
    peers.emplace_back([target] { SayRaw(target, "PRI * HT", false); });
  }
  std::vector<absl::Status> ends;
  std::vector<Method> streams = Streams();
  streams.push_back({Worker(), "/djinn.v1.Execution/Bulk", "", "", ""});
  ends.resize(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    peers.emplace_back([&, i] {
      ends[i] =
          CallRaw(streams[i].address, streams[i].name, {}, streams[i].token);
    });
  }
  for (std::thread& peer : peers) peer.join();
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
  EXPECT_EQ(ErrorReason(ends[0]), "PROTOCOL_VIOLATION") << ends[0];
  EXPECT_EQ(ErrorReason(ends[1]), "PROTOCOL_VIOLATION") << ends[1];
  EXPECT_EQ(ErrorReason(ends[2]), "PROTOCOL_VIOLATION") << ends[2];
  EXPECT_EQ(ErrorReason(ends[3]), "LEASE_UNKNOWN") << ends[3];
  const ClusterProcesses& cluster = environment->cluster();
  EXPECT_TRUE(LogSays(cluster.worker_log(0), "no hello in time"));
  EXPECT_TRUE(LogSays(cluster.coordinator_log(), "first message never came"));
}

}  // namespace
}  // namespace djinn
