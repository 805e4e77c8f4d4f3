// Tests streams to a peer that takes nothing any more.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_stream.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/net/channel_options.h"
#include "common/net/frozen_peer.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// The size exceeds what sockets hold and is below the limit on a message.
constexpr size_t kMuch = kMaxControlMessageBytes / 2;

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
    for (Patience patience; !status_.has_value();)
      patience.Wait(&changed_, &mu_);
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

  // Connects with one bulk connection.
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
  // Ends the peer. gRPC releases a slice a moment later.
  void ExpectPayloadReleased() {
    peer_.reset();
    const std::weak_ptr<const std::string> watch = payload_;
    payload_.reset();
    for (Patience patience; !watch.expired();) patience.Yield();
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
  // The second send waits for the first one.
  EXPECT_FALSE(SendMuchBulk().ok());
  EXPECT_TRUE(absl::StrContains(end_.Wait().message(), "took nothing"));
  stream_.reset();
  ExpectPayloadReleased();
}

TEST_P(FrozenNetworkTest, StuckChunkWithoutWaiterEndsTheStream) {
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

TEST_P(FrozenNetworkTest, ClosingTheStreamWakesItsSenders) {
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
  void OnStages(const v1::StageAnswer&) override {}
  void OnMigrationRequested(const v1::MigrationRequest&) override {
    ADD_FAILURE();
  }
  void OnLineageAsked(const v1::LineageQuestion&) override { ADD_FAILURE(); }
  void OnAttachedAgain() override { ADD_FAILURE(); }
};

class FrozenCoordinatorTest : public testing::TestWithParam<bool> {
 protected:
  FrozenCoordinatorTest() : peer_(GetParam(), Opened()) {
    link_ = *MakeGrpcCoordinatorLink(peer_.address(), "secret");
    const auto opened = link_->Open("program", absl::Seconds(20), &events_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    // The first graph stays half written, and the second one waits.
    v1::Graph graph;
    graph.add_operators()->set_name(std::string(kMuch / 2, 'x'));
    link_->SendGraph(graph, {}, std::nullopt);
    link_->SendGraph(graph, {}, std::nullopt);
    peer_.WaitForBytes(64 << 10);
  }

  static std::string Opened() {
    v1::SessionResponse response;
    response.mutable_opened()->set_session_id("session");
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
