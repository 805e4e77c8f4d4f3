// Streams to a peer that speaks HTTP/2 as far as it must, and then takes
// nothing any more: a write stays half done in the socket.
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_stream.h"
#include "common/error.h"
#include "common/mutex.h"
#include "common/net/channel_options.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// More than sockets hold, less than a message may have.
constexpr size_t kMuch = kMaxControlMessageBytes / 2;

void Must(bool done, const char* what) {
  if (done) return;
  perror(what);
  std::abort();
}

// Allows as many bytes as HTTP/2 can say, and reads none; with an `answer`,
// only the first message, to which that is the reply.
class FrozenPeer {
 public:
  explicit FrozenPeer(bool tcp, std::string answer = "")
      : answer_(std::move(answer)) {
    if (tcp) {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      Listen(reinterpret_cast<sockaddr*>(&address), sizeof(address));
      socklen_t size = sizeof(address);
      Must(getsockname(listener_, reinterpret_cast<sockaddr*>(&address),
                       &size) == 0,
           "getsockname");
      address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    } else {
      // Not the test's own folder: a socket's path must be short.
      folder_ = "/tmp/djinn-frozen-XXXXXX";
      Must(mkdtemp(folder_.data()) != nullptr, "mkdtemp");
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      absl::StrCat(folder_, "/s")
          .copy(address.sun_path, sizeof(address.sun_path) - 1);
      Listen(reinterpret_cast<sockaddr*>(&address), sizeof(address));
      address_ = absl::StrCat("unix:", address.sun_path);
    }
    accepter_ = std::thread([this] { Accept(); });
  }
  ~FrozenPeer() {
    shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    close(listener_);
    for (const int connection : connections_) close(connection);
    if (folder_.empty()) return;
    unlink(absl::StrCat(folder_, "/s").c_str());
    rmdir(folder_.c_str());
  }

  const std::string& address() const { return address_; }

  // Until so many bytes lie there that the peer does not take. After the
  // answer.
  void WaitForBytes(int bytes) {
    for (int there = 0; there < bytes; std::this_thread::yield()) {
      Must(ioctl(answered_, FIONREAD, &there) == 0, "ioctl");
    }
  }

 private:
  void Listen(const sockaddr* address, socklen_t size) {
    listener_ = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Must(bind(listener_, address, size) == 0 && listen(listener_, 16) == 0,
         "listen");
  }

  void Accept() {
    // SETTINGS: streams of 2^30 bytes, frames of 2^24 - 1. WINDOW_UPDATE: 2^30.
    static constexpr char kWelcome[] =
        "\x00\x00\x0c\x04\x00\x00\x00\x00\x00"
        "\x00\x04\x40\x00\x00\x00\x00\x05\x00\xff\xff\xff"
        "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x40\x00\x00\x00";
    for (;;) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      connections_.push_back(connection);
      Must(send(connection, kWelcome, sizeof(kWelcome) - 1, MSG_NOSIGNAL) ==
               sizeof(kWelcome) - 1,
           "send");
      if (!answer_.empty()) Answer(connection);
    }
  }

  // Does nothing when the connection ends before.
  void Answer(int connection) {
    const auto receive = [connection](std::string* bytes) {
      return recv(connection, bytes->data(), bytes->size(), MSG_WAITALL) ==
             static_cast<ssize_t>(bytes->size());
    };
    std::string greeting(24, '\0');
    if (!receive(&greeting)) return;
    std::string header(9, '\0');
    do {
      if (!receive(&header)) return;
      // No frame that a client begins with is longer.
      std::string payload(static_cast<uint8_t>(header[1]) << 8 |
                              static_cast<uint8_t>(header[2]),
                          '\0');
      if (!payload.empty() && !receive(&payload)) return;
    } while (header[3] != kData);
    answered_ = connection;
    // ":status: 200", "content-type: application/grpc".
    std::string reply("\x00\x00\x14\x01\x04\x00\x00\x00\x01\x88\x0f\x10\x10",
                      13);
    reply += "application/grpc";
    reply += std::string("\x00\x00", 2);
    reply += static_cast<char>(answer_.size() + 5);
    reply += std::string("\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00", 10);
    reply += static_cast<char>(answer_.size());
    reply += answer_;
    Must(send(connection, reply.data(), reply.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(reply.size()),
         "send");
  }

  static constexpr char kData = 0;  // a frame's type

  const std::string answer_;  // short
  std::atomic<int> answered_{-1};
  int listener_ = -1;
  std::string folder_, address_;
  std::vector<int> connections_;  // the thread's
  std::thread accepter_;
};

class End : public ClientStreamReceiver {
 public:
  void OnMessage(v1::ControlResponse) override { ADD_FAILURE(); }
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {
    ADD_FAILURE();
  }
  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    status_ = std::move(status);
    changed_.SignalAll();
  }
  absl::Status Wait() {
    MutexLock lock(&mu_);
    while (!status_.has_value()) changed_.Wait(&mu_);
    return *status_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

class FrozenNetworkTest : public testing::TestWithParam<bool> {
 protected:
  FrozenNetworkTest() : peer_(std::make_unique<FrozenPeer>(GetParam())) {}

  // One bulk lane.
  void Connect(absl::Duration stuck_write = absl::Hours(1)) {
    GrpcWorkerStream::Options options;
    options.stuck_write = stuck_write;
    std::vector<std::shared_ptr<grpc::Channel>> bulk = {
        *MakeChannel(peer_->address(), {ChannelSecurity(), 1})};
    stream_ = std::make_unique<GrpcWorkerStream>(*MakeChannel(peer_->address()),
                                                 std::move(bulk),
                                                 v1::BulkHello(), options);
    stream_->Start(&end_);
  }

  absl::Status SendMuch() {
    auto message = std::make_shared<v1::ControlRequest>();
    message->mutable_ordered()->mutable_install()->set_inline_value(
        std::string(kMuch, 'x'));
    return stream_->Send(std::move(message));
  }
  absl::Status SendMuchBulk() {
    return stream_->SendBulk(1, 0, {*payload_, payload_});
  }
  // Lets the peer go. gRPC lets go of a slice a moment later.
  void ExpectPayloadReleased() {
    peer_.reset();
    const std::weak_ptr<const std::string> watch = payload_;
    payload_.reset();
    while (!watch.expired()) std::this_thread::yield();
  }

  std::unique_ptr<FrozenPeer> peer_;
  std::shared_ptr<const std::string> payload_ =
      std::make_shared<const std::string>(kMuch, 'x');
  End end_;
  std::unique_ptr<GrpcWorkerStream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, FrozenNetworkTest, testing::Bool(),
                         [](const auto& info) -> std::string {
                           return info.param ? "Tcp" : "Unix";
                         });

TEST_P(FrozenNetworkTest, AStuckChunkEndsTheStream) {
  Connect(absl::Milliseconds(200));
  ASSERT_TRUE(SendMuchBulk().ok());
  // Waits for the one before it.
  EXPECT_FALSE(SendMuchBulk().ok());
  EXPECT_TRUE(absl::StrContains(end_.Wait().message(), "took nothing"));
  stream_.reset();
  ExpectPayloadReleased();
}

TEST_P(FrozenNetworkTest, AStuckChunkThatNobodyWaitsForEndsTheStreamToo) {
  Connect(absl::Milliseconds(200));
  ASSERT_TRUE(SendMuchBulk().ok());
  EXPECT_TRUE(absl::StrContains(end_.Wait().message(), "took nothing"));
  EXPECT_FALSE(SendMuchBulk().ok());
}

TEST_P(FrozenNetworkTest, AStuckMessageEndsTheStream) {
  Connect(absl::Milliseconds(200));
  ASSERT_TRUE(SendMuch().ok());
  EXPECT_FALSE(SendMuch().ok());
  EXPECT_TRUE(absl::StrContains(end_.Wait().message(), "took nothing"));
}

TEST_P(FrozenNetworkTest, BreakingTheStreamWakesWhoeverSends) {
  Connect();
  ASSERT_TRUE(SendMuch().ok());
  ASSERT_TRUE(SendMuchBulk().ok());
  std::thread message([&] { EXPECT_FALSE(SendMuch().ok()); });
  std::thread chunk([&] { EXPECT_FALSE(SendMuchBulk().ok()); });
  stream_->Close(absl::CancelledError("enough"));
  message.join();
  chunk.join();
  EXPECT_EQ(end_.Wait().message(), "enough");
}

TEST_P(FrozenNetworkTest, AStreamGoesThoughItsPeerTakesNothing) {
  Connect();
  ASSERT_TRUE(SendMuch().ok());
  ASSERT_TRUE(SendMuchBulk().ok());
  stream_->Close(absl::OkStatus());
  stream_.reset();
  EXPECT_TRUE(absl::IsCancelled(end_.Wait()));
  ExpectPayloadReleased();
}

class NoEvents : public CoordinatorEvents {
 public:
  void OnLeaseEnded(const std::string&, const std::string&) override {
    ADD_FAILURE();
  }
  void OnAttachedAgain() override { ADD_FAILURE(); }
};

class FrozenCoordinatorTest : public testing::TestWithParam<bool> {
 protected:
  FrozenCoordinatorTest() : peer_(GetParam(), Opened()) {
    link_ = *MakeGrpcCoordinatorLink(peer_.address(), "secret");
    const auto opened = link_->Open("program", absl::Seconds(20), &events_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    // One stays half written, one waits.
    v1::Structure structure;
    structure.add_operators()->set_name(std::string(kMuch / 2, 'x'));
    link_->SendStructure(structure, {});
    link_->SendStructure(structure, {});
    peer_.WaitForBytes(64 << 10);
  }

  static std::string Opened() {
    v1::SessionResponse response;
    response.mutable_opened()->set_session_id("session");
    response.mutable_opened()->set_protocol_version(1);
    return response.SerializeAsString();
  }

  FrozenPeer peer_;
  NoEvents events_;
  std::unique_ptr<CoordinatorLink> link_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, FrozenCoordinatorTest, testing::Bool(),
                         [](const auto& info) -> std::string {
                           return info.param ? "Tcp" : "Unix";
                         });

TEST(CoordinatorLinkTest, AnAnswerThatIsNoMessageIsABreach) {
  FrozenPeer peer(/*tcp=*/false, "\xff");
  NoEvents events;
  const auto link = *MakeGrpcCoordinatorLink(peer.address(), "secret");
  EXPECT_EQ(
      ErrorReason(link->Open("program", absl::Seconds(20), &events).status()),
      "PROTOCOL_VIOLATION");
}

TEST_P(FrozenCoordinatorTest, ClosingTheSessionDoesNotWaitForIt) {
  EXPECT_EQ(ErrorReason(link_->Close(absl::Milliseconds(100))),
            "COORDINATOR_UNREACHABLE");
}

TEST_P(FrozenCoordinatorTest, ALinkGoesWithoutIt) { link_.reset(); }

TEST_P(FrozenCoordinatorTest, ALeaseRequestEndsAtItsDeadline) {
  EXPECT_EQ(
      ErrorReason(link_->RequestLease({}, absl::Milliseconds(50)).status()),
      "LEASE_TIMEOUT");
}

}  // namespace
}  // namespace djinn
