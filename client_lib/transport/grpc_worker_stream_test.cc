// Tests the stream to a worker against a small server of its own.
#include "client_lib/transport/grpc_worker_stream.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/hash/crc32c.h"
#include "common/net/channel_options.h"
#include "common/net/channel_pool.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "common/transport/bulk_frame.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// A worker that answers reads, inline or on Bulk, and keeps what it receives.
class TestExecution : public v1::Execution::Service {
 public:
  using ControlStream =
      grpc::ServerReaderWriter<v1::ControlResponse, v1::ControlRequest>;
  using BulkStream = grpc::ServerReaderWriter<v1::BulkChunk, v1::BulkChunk>;

  grpc::Status Control(grpc::ServerContext*, ControlStream* stream) override {
    v1::ControlRequest request;
    while (stream->Read(&request)) {
      if (request.has_hello()) {
        if (request.hello().lease_token() != "token") {
          return ToGrpcStatus(MakeError(absl::StatusCode::kUnauthenticated,
                                        "LEASE_UNKNOWN", "no such lease"));
        }
        v1::ControlResponse response;
        response.mutable_hello()->set_worker_id("w0");
        stream->Write(response);
        continue;
      }
      if (request.ordered().has_free()) {
        return ToGrpcStatus(absl::AbortedError("asked to end"));
      }
      ++messages;
      v1::ControlResponse response = Answer(request.ordered());
      for (const v1::ControlRequest& next : request.following()) {
        *response.add_following() = Answer(next.ordered());
        if (nests) {
          *response.mutable_following(0)->add_following() =
              Answer(next.ordered());
        }
      }
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  v1::ControlResponse Answer(const v1::Ordered& message) {
    v1::ControlResponse response;
    v1::ReadReply* const reply = response.mutable_read();
    reply->set_sequence(message.sequence());
    if (const uint64_t id = message.read().transfer_id(); id != 0) {
      reply->set_bulk_bytes(6);
      SendBulk(id);
    } else {
      reply->set_value("value");
    }
    return response;
  }

  grpc::Status Bulk(grpc::ServerContext*, BulkStream* stream) override {
    {
      MutexLock lock(&mu_);
      bulk_ = stream;
      changed_.SignalAll();
    }
    v1::BulkChunk chunk;
    while (stream->Read(&chunk)) {
      MutexLock lock(&mu_);
      chunks_.push_back(chunk);
      changed_.SignalAll();
      while (hold_chunks_) changed_.Wait(&mu_);
    }
    MutexLock lock(&mu_);
    if (bulk_ == stream) bulk_ = nullptr;
    return grpc::Status::OK;
  }

  std::vector<v1::BulkChunk> WaitForChunks(size_t count) {
    MutexLock lock(&mu_);
    for (Patience patience; chunks_.size() < count;)
      patience.Wait(&changed_, &mu_);
    return chunks_;
  }

  // Stop reading chunks, and start again.
  void HoldChunks() {
    MutexLock lock(&mu_);
    hold_chunks_ = true;
  }
  void ReleaseChunks() {
    MutexLock lock(&mu_);
    hold_chunks_ = false;
    changed_.SignalAll();
  }

  std::atomic<bool> corrupt{false};
  std::atomic<bool> nests{false};
  std::atomic<int> messages{0};  // except hellos

 private:
  void SendBulk(uint64_t id) {
    MutexLock lock(&mu_);
    // The client opens Bulk before it requests the value.
    for (Patience patience; bulk_ == nullptr;) patience.Wait(&changed_, &mu_);
    for (const uint64_t offset : {0, 3}) {
      v1::BulkChunk chunk;
      const std::string payload = offset == 0 ? "abc" : "def";
      ASSERT_TRUE(chunk.ParseFromString(EncodeBulkHeader(id, offset, payload) +
                                        payload));
      if (corrupt) chunk.set_crc32c(chunk.crc32c() + 1);
      bulk_->Write(chunk);
    }
  }

  Mutex mu_;
  CondVar changed_;
  BulkStream* bulk_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool hold_chunks_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<v1::BulkChunk> chunks_ ABSL_GUARDED_BY(mu_);
};

class Recorder : public ClientStreamReceiver {
 public:
  void OnMessage(v1::ControlResponse message) override {
    MutexLock lock(&mu_);
    messages_.push_back(std::move(message));
    last_thread_ = std::this_thread::get_id();
    changed_.SignalAll();
  }
  void OnBulk(uint64_t, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    MutexLock lock(&mu_);
    EXPECT_EQ(offset, bulk_.size());
    for (const absl::string_view piece : pieces) {
      bulk_.append(piece.data(), piece.size());
    }
    changed_.SignalAll();
  }
  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    EXPECT_FALSE(closed_.has_value());
    closed_ = std::move(status);
    changed_.SignalAll();
  }

  size_t count() {
    MutexLock lock(&mu_);
    return messages_.size();
  }
  std::thread::id last_thread() {
    MutexLock lock(&mu_);
    return last_thread_;
  }
  v1::ControlResponse WaitForMessage(size_t index) {
    MutexLock lock(&mu_);
    for (Patience patience; messages_.size() <= index;)
      patience.Wait(&changed_, &mu_);
    return messages_[index];
  }
  std::string WaitForBulk(size_t bytes) {
    MutexLock lock(&mu_);
    for (Patience patience; bulk_.size() < bytes;)
      patience.Wait(&changed_, &mu_);
    return bulk_;
  }
  absl::Status WaitClosed() {
    MutexLock lock(&mu_);
    for (Patience patience; !closed_.has_value();)
      patience.Wait(&changed_, &mu_);
    return *closed_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<v1::ControlResponse> messages_ ABSL_GUARDED_BY(mu_);
  std::thread::id last_thread_ ABSL_GUARDED_BY(mu_);
  std::string bulk_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
};

class GrpcWorkerStreamTest : public testing::Test {
 protected:
  GrpcWorkerStreamTest() {
    server_ = *Server::Start({"127.0.0.1:0", false, {&service_}, {}});
  }
  ~GrpcWorkerStreamTest() override {
    stream_.reset();
    server_->Shutdown(absl::ZeroDuration());
  }

  void Connect(const std::string& address, const std::string& token = "token") {
    v1::Lease lease;
    lease.set_worker_address(address);
    lease.set_token(token);
    stream_ = *MakeGrpcWorkerConnector({}, kDefaultBulkChannels, &channels_)
                   ->Connect(lease, "session");
    stream_->Start(&recorder_);
    v1::ControlRequest hello;
    hello.mutable_hello()->set_lease_token(token);
    (void)stream_->Send(std::make_shared<v1::ControlRequest>(hello));
  }
  void Connect() { Connect(server_->address()); }

  absl::Status SendRead(uint64_t transfer_id) {
    v1::ControlRequest request;
    request.mutable_ordered()->set_sequence(1);
    request.mutable_ordered()->mutable_read()->set_transfer_id(transfer_id);
    return stream_->Send(std::make_shared<v1::ControlRequest>(request));
  }

  static std::vector<std::shared_ptr<const v1::ControlRequest>> Reads(
      uint64_t count) {
    std::vector<std::shared_ptr<const v1::ControlRequest>> reads;
    for (uint64_t i = 1; i <= count; ++i) {
      v1::ControlRequest request;
      request.mutable_ordered()->set_sequence(i);
      request.mutable_ordered()->mutable_read();
      reads.push_back(std::make_shared<v1::ControlRequest>(request));
    }
    return reads;
  }

  TestExecution service_;
  std::unique_ptr<Server> server_;
  FakeClock clock_;
  ChannelPool channels_{{}, &clock_};
  Recorder recorder_;
  std::unique_ptr<ClientStream> stream_;
};

TEST_F(GrpcWorkerStreamTest, CarriesMessagesBothWaysAndEndsCleanly) {
  Connect();
  EXPECT_EQ(recorder_.WaitForMessage(0).hello().worker_id(), "w0");
  ASSERT_TRUE(SendRead(0).ok());
  EXPECT_EQ(recorder_.WaitForMessage(1).read().value(), "value");
  stream_->Close(absl::OkStatus());
  EXPECT_TRUE(recorder_.WaitClosed().ok());
  EXPECT_FALSE(SendRead(0).ok());
}

TEST_F(GrpcWorkerStreamTest, SeveralMessagesLeaveAsOne) {
  Connect();
  recorder_.WaitForMessage(0);
  EXPECT_TRUE(stream_->SendsTogether());
  ASSERT_TRUE(stream_->SendAll(Reads(5)).ok());
  for (uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(recorder_.WaitForMessage(i).read().sequence(), i);
  }
  EXPECT_EQ(service_.messages, 1);
}

TEST_F(GrpcWorkerStreamTest, AnAnswerThatNestsBreaksTheStream) {
  service_.nests = true;
  Connect();
  recorder_.WaitForMessage(0);
  ASSERT_TRUE(stream_->SendAll(Reads(2)).ok());
  EXPECT_EQ(ErrorReason(recorder_.WaitClosed()), "PROTOCOL_VIOLATION");
}

// A waiting thread becomes the leader once the stream's own thread has received
// something. That thread is then idle until there is no leader.
TEST_F(GrpcWorkerStreamTest, WaitingThreadReceivesByItself) {
  Connect();
  int here = 0;
  for (size_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(SendRead(0).ok());
    const auto came = [&] { return recorder_.count() > i; };
    for (Patience patience; !came(); patience.Left()) {
      ASSERT_TRUE(stream_->Lead(came, Patience::kLong));
    }
    here += recorder_.last_thread() == std::this_thread::get_id();
  }
  EXPECT_GT(here, 0);
}

TEST_F(GrpcWorkerStreamTest, LeaderReturnsTheReadingWhenNothingComes) {
  Connect();
  const auto never = [] { return false; };
  ASSERT_TRUE(stream_->Lead(never, absl::ZeroDuration()));
  ASSERT_TRUE(SendRead(0).ok());
  recorder_.WaitForMessage(1);
  // The reading may have been lent, and the leader returns it.
  ASSERT_TRUE(stream_->Lead(never, absl::Milliseconds(1)));
  ASSERT_TRUE(SendRead(0).ok());
  recorder_.WaitForMessage(2);
  EXPECT_FALSE(stream_->LeadsBulk());
}

TEST_F(GrpcWorkerStreamTest, EndOfTheStreamEndsTheWaitOfALeader) {
  Connect();
  std::atomic<bool> leads{false};
  std::thread other([&] {
    for (Patience patience; !leads;) patience.Yield();
    auto free = std::make_shared<v1::ControlRequest>();
    free->mutable_ordered()->mutable_free();
    EXPECT_TRUE(stream_->Send(std::move(free)).ok());
  });
  ASSERT_TRUE(SendRead(0).ok());
  const auto never = [&] {
    leads = true;
    return false;
  };
  for (Patience patience; stream_->Lead(never, Patience::kLong);) {
    patience.Left();
  }
  other.join();
  EXPECT_TRUE(absl::IsAborted(recorder_.WaitClosed()));
}

TEST_F(GrpcWorkerStreamTest, SendsBulkAsFramesAndDropsTheSource) {
  Connect();
  auto owner = std::make_shared<std::string>(kBulkChunkBytes, 'x');
  const std::weak_ptr<std::string> watch = owner;
  ASSERT_TRUE(stream_->SendBulk(7, 0, {*owner, owner}).ok());
  ASSERT_TRUE(stream_
                  ->SendBulk(7, kBulkChunkBytes,
                             {absl::string_view(*owner).substr(0, 3), owner})
                  .ok());
  owner.reset();
  // Each bulk connection sends its hello, and the chunks come in any order.
  std::map<uint64_t, std::string> payloads;
  int hellos = 0;
  for (const v1::BulkChunk& chunk :
       service_.WaitForChunks(2 + kDefaultBulkChannels)) {
    if (chunk.has_hello()) {
      ++hellos;
      EXPECT_EQ(chunk.hello().session_id(), "session");
      EXPECT_EQ(chunk.hello().lease_token(), "token");
    } else {
      EXPECT_EQ(chunk.transfer_id(), 7u);
      payloads[chunk.offset()] = chunk.payload();
    }
  }
  EXPECT_EQ(hellos, kDefaultBulkChannels);
  ASSERT_EQ(payloads.size(), 2u);
  EXPECT_EQ(payloads[0], std::string(kBulkChunkBytes, 'x'));
  EXPECT_EQ(payloads[kBulkChunkBytes], "xxx");
  // gRPC releases a slice a moment after it was sent.
  for (Patience patience; !watch.expired();) patience.Yield();
}

TEST_F(GrpcWorkerStreamTest, ChecksumMatchesBytesChangedDuringSending) {
  Connect();
  const auto owner = std::make_shared<std::string>(kBulkChunkBytes, 'x');
  ASSERT_TRUE(stream_->SendBulk(7, 0, {*owner, owner}).ok());
  owner->assign(kBulkChunkBytes, 'y');
  int payloads = 0;
  for (const v1::BulkChunk& chunk :
       service_.WaitForChunks(1 + kDefaultBulkChannels)) {
    if (chunk.has_hello()) continue;
    ++payloads;
    EXPECT_EQ(chunk.crc32c(), Crc32c(chunk.payload()));
    EXPECT_EQ(chunk.payload(), std::string(kBulkChunkBytes, 'x'));
  }
  EXPECT_EQ(payloads, 1);
}

TEST_F(GrpcWorkerStreamTest, ReceivesBulkWithoutHavingSentAny) {
  Connect();
  ASSERT_TRUE(SendRead(9).ok());
  EXPECT_EQ(recorder_.WaitForBulk(6), "abcdef");
  EXPECT_EQ(recorder_.WaitForMessage(1).read().bulk_bytes(), 6u);
}

TEST_F(GrpcWorkerStreamTest, AResumedStreamOpensBulkByItself) {
  v1::Lease lease;
  lease.set_worker_address(server_->address());
  stream_ = *MakeGrpcWorkerConnector()->Connect(lease, "session");
  stream_->Start(&recorder_);
  auto hello = std::make_shared<v1::ControlRequest>();
  hello->mutable_hello()->set_lease_token("token");
  hello->mutable_hello()->mutable_resume();
  ASSERT_TRUE(stream_->Send(hello).ok());
  EXPECT_TRUE(service_.WaitForChunks(kDefaultBulkChannels)[0].has_hello());
}

// The reader of Control makes the connections.
TEST_F(GrpcWorkerStreamTest, BulkConnectsBeforeItIsNeeded) {
  const std::vector<std::shared_ptr<grpc::Channel>> bulk = {
      *MakeChannel(server_->address(), {ChannelSecurity(), 1}),
      *MakeChannel(server_->address(), {ChannelSecurity(), 2})};
  stream_ = std::make_unique<GrpcWorkerStream>(*MakeChannel(server_->address()),
                                               bulk, v1::BulkHello(),
                                               GrpcWorkerStream::Options());
  stream_->Start(&recorder_);
  EXPECT_EQ(bulk[0]->GetState(false), GRPC_CHANNEL_IDLE);
  auto hello = std::make_shared<v1::ControlRequest>();
  hello->mutable_hello()->set_lease_token("token");
  ASSERT_TRUE(stream_->Send(hello).ok());
  for (const auto& channel : bulk) {
    for (Patience patience; channel->GetState(false) != GRPC_CHANNEL_READY;) {
      patience.Yield();
    }
  }
  recorder_.WaitForMessage(0);
}

TEST_F(GrpcWorkerStreamTest, TheNextStreamFindsItsConnections) {
  for (uint64_t i = 0; i < 2; ++i) {
    Recorder recorder;
    v1::Lease lease;
    lease.set_worker_address(server_->address());
    stream_ =
        *MakeGrpcWorkerConnector({}, 1, &channels_)->Connect(lease, "session");
    EXPECT_EQ(channels_.counts().created, 2u);
    EXPECT_EQ(channels_.counts().reused, i * 2);
    stream_->Start(&recorder);
    auto hello = std::make_shared<v1::ControlRequest>();
    hello->mutable_hello()->set_lease_token("token");
    ASSERT_TRUE(stream_->Send(hello).ok());
    recorder.WaitForMessage(0);
    ASSERT_TRUE(stream_->SendBulk(7, 0, {"abc", nullptr}).ok());
    // including the bulk connection's hello
    service_.WaitForChunks(2 * (i + 1));
    stream_->Close(absl::OkStatus());
    EXPECT_TRUE(recorder.WaitClosed().ok());
    stream_.reset();
  }
  EXPECT_EQ(channels_.counts().failed, 0u);
}

TEST_F(GrpcWorkerStreamTest, TheConnectionsOfABrokenStreamAreNotUsedAgain) {
  Connect();
  recorder_.WaitForMessage(0);
  stream_->Close(absl::UnavailableError("it takes too long"));
  recorder_.WaitClosed().IgnoreError();
  stream_.reset();
  EXPECT_EQ(channels_.counts().failed, channels_.counts().created);
}

TEST_F(GrpcWorkerStreamTest, TheWorkersRefusalLeavesTheConnection) {
  Connect(server_->address(), "other");
  recorder_.WaitClosed().IgnoreError();
  stream_.reset();
  EXPECT_EQ(channels_.counts().failed, 0u);
}

TEST_F(GrpcWorkerStreamTest, AWriteThatIsStuckBreaksTheStream) {
  std::vector<std::shared_ptr<grpc::Channel>> bulk = {
      *MakeChannel(server_->address(), {ChannelSecurity(), 1})};
  GrpcWorkerStream::Options options;
  options.stuck_write = absl::Milliseconds(200);
  stream_ = std::make_unique<GrpcWorkerStream>(*MakeChannel(server_->address()),
                                               std::move(bulk), v1::BulkHello(),
                                               std::move(options));
  stream_->Start(&recorder_);
  service_.HoldChunks();
  const auto owner = std::make_shared<std::string>(kBulkChunkBytes, 'x');
  absl::Status status;
  // Sends more than all buffers in between hold.
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = stream_->SendBulk(7, i * kBulkChunkBytes, {*owner, owner});
  }
  EXPECT_FALSE(status.ok());
  EXPECT_NE(recorder_.WaitClosed().message().find("took nothing"),
            std::string::npos);
  service_.ReleaseChunks();
}

TEST_F(GrpcWorkerStreamTest, ACorruptChunkBreaksTheStream) {
  service_.corrupt = true;
  Connect();
  ASSERT_TRUE(SendRead(9).ok());
  EXPECT_EQ(ErrorReason(recorder_.WaitClosed()), "CHUNK_CORRUPT");
}

TEST_F(GrpcWorkerStreamTest, TheWorkersStatusArrivesWithItsReason) {
  Connect(server_->address(), "other");
  EXPECT_EQ(ErrorReason(recorder_.WaitClosed()), "LEASE_UNKNOWN");
}

TEST_F(GrpcWorkerStreamTest, TheWorkersEndAlsoEndsBulk) {
  Connect();
  ASSERT_TRUE(stream_->SendBulk(7, 0, {"abc", nullptr}).ok());
  v1::ControlRequest end;
  end.mutable_ordered()->mutable_free();
  ASSERT_TRUE(stream_->Send(std::make_shared<v1::ControlRequest>(end)).ok());
  EXPECT_EQ(recorder_.WaitClosed().message(), "asked to end");
  EXPECT_FALSE(stream_->SendBulk(7, 3, {"def", nullptr}).ok());
}

TEST_F(GrpcWorkerStreamTest, UnreachableWorkerIsUnavailable) {
  Connect("unix:/no/such/socket");
  EXPECT_EQ(recorder_.WaitClosed().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcWorkerStreamTest, AStreamNeverStartedMayGo) {
  v1::Lease lease;
  lease.set_worker_address(server_->address());
  stream_ = *MakeGrpcWorkerConnector()->Connect(lease, "session");
  stream_->Close(absl::OkStatus());
}

TEST_F(GrpcWorkerStreamTest, ClosingBeforeTheFirstMessageEndsIt) {
  v1::Lease lease;
  lease.set_worker_address(server_->address());
  stream_ = *MakeGrpcWorkerConnector()->Connect(lease, "session");
  stream_->Start(&recorder_);
  stream_->Close(absl::CancelledError("changed my mind"));
  EXPECT_EQ(recorder_.WaitClosed().message(), "changed my mind");
}

}  // namespace
}  // namespace djinn
