// The gRPC links against small servers of their own.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "client_lib/transport/grpc_worker_stream.h"
#include "common/error.h"
#include "common/mutex.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "common/transport/bulk_frame.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// A worker that answers reads, inline or on Bulk, and keeps what it is sent.
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
        takes_following = absl::c_linear_search(request.hello().features(),
                                                v1::CLIENT_FEATURE_FOLLOWING);
        v1::ControlResponse response;
        response.mutable_hello()->set_worker_id("w0");
        if (offers_following) {
          response.mutable_hello()->add_features(v1::WORKER_FEATURE_FOLLOWING);
        }
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
    while (chunks_.size() < count) changed_.Wait(&mu_);
    return chunks_;
  }

  // Chunks are not read any more, or again.
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
  std::atomic<bool> offers_following{true};
  std::atomic<bool> takes_following{false};  // the client
  std::atomic<bool> nests{false};
  std::atomic<int> messages{0};  // that are no hello

 private:
  void SendBulk(uint64_t id) {
    MutexLock lock(&mu_);
    // The client opens Bulk before it asks.
    while (bulk_ == nullptr) changed_.Wait(&mu_);
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

  v1::ControlResponse WaitForMessage(size_t index) {
    MutexLock lock(&mu_);
    while (messages_.size() <= index) changed_.Wait(&mu_);
    return messages_[index];
  }
  std::string WaitForBulk(size_t bytes) {
    MutexLock lock(&mu_);
    while (bulk_.size() < bytes) changed_.Wait(&mu_);
    return bulk_;
  }
  absl::Status WaitClosed() {
    MutexLock lock(&mu_);
    while (!closed_.has_value()) changed_.Wait(&mu_);
    return *closed_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<v1::ControlResponse> messages_ ABSL_GUARDED_BY(mu_);
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
    stream_ = *MakeGrpcWorkerConnector()->Connect(lease, "session");
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

TEST_F(GrpcWorkerStreamTest, SeveralMessagesAreOneWhereTheWorkerTakesThem) {
  for (const bool offers : {true, false}) {
    SCOPED_TRACE(offers);
    TestExecution service;
    service.offers_following = offers;
    const auto server = *Server::Start({"127.0.0.1:0", false, {&service}, {}});
    Recorder recorder;
    v1::Lease lease;
    lease.set_worker_address(server->address());
    auto stream = *MakeGrpcWorkerConnector()->Connect(lease, "session");
    stream->Start(&recorder);
    auto hello = std::make_shared<v1::ControlRequest>();
    hello->mutable_hello()->set_lease_token("token");
    ASSERT_TRUE(stream->Send(hello).ok());
    recorder.WaitForMessage(0);
    EXPECT_TRUE(service.takes_following);
    EXPECT_EQ(stream->SendsTogether(), offers);
    ASSERT_TRUE(stream->SendAll(Reads(5)).ok());
    for (uint64_t i = 1; i <= 5; ++i) {
      EXPECT_EQ(recorder.WaitForMessage(i).read().sequence(), i);
    }
    EXPECT_EQ(service.messages, offers ? 1 : 5);
    stream.reset();
    server->Shutdown(absl::ZeroDuration());
  }
}

TEST_F(GrpcWorkerStreamTest, AnAnswerThatNestsBreaksTheStream) {
  service_.nests = true;
  Connect();
  recorder_.WaitForMessage(0);
  ASSERT_TRUE(stream_->SendAll(Reads(2)).ok());
  EXPECT_EQ(ErrorReason(recorder_.WaitClosed()), "PROTOCOL_VIOLATION");
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
  // Each lane says hello; what they carry comes in any order.
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
  // gRPC lets go of a slice a moment after it was sent.
  while (!watch.expired()) std::this_thread::yield();
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
  // More than any buffer in between takes.
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

TEST_F(GrpcWorkerStreamTest, NobodyThereIsUnavailable) {
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

// A coordinator that grants device 0, refuses others, and hears structures.
class TestSessions : public v1::Session::Service {
 public:
  grpc::Status Attach(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream)
      override {
    if (*ExtractBearer(*context) != "secret") {
      return ToGrpcStatus(MakeError(absl::StatusCode::kUnauthenticated,
                                    "TOKEN_UNKNOWN", "unknown token"));
    }
    v1::SessionRequest request;
    while (stream->Read(&request)) {
      v1::SessionResponse response;
      MutexLock lock(&mu_);
      switch (request.message_case()) {
        case v1::SessionRequest::kOpen:
          resumes_.push_back(request.open().resume_session_id());
          policy_ = request.open().placement_policy();
          urgencies_.push_back(request.open().urgency());
          changed_.SignalAll();
          if (!refusal_.ok()) return ToGrpcStatus(refusal_);
          response.mutable_opened()->set_session_id(session_id_);
          response.mutable_opened()->set_protocol_version(version_);
          response.mutable_opened()->set_tenant("tenant");
          response.mutable_opened()->set_max_priority_class(
              v1::PRIORITY_CLASS_INTERACTIVE);
          stream->Write(response);
          break;
        case v1::SessionRequest::kLease:
          ++lease_requests_;
          changed_.SignalAll();
          if (silent_) break;
          if (request.lease().virtual_device() == 0) {
            response.mutable_granted()->mutable_lease()->set_lease_id("l");
          } else {
            v1::LeaseRefused* const refused = response.mutable_refused();
            refused->set_virtual_device(request.lease().virtual_device());
            refused->set_code(14);
            refused->set_reason("NO_WORKER");
            refused->set_message("none");
          }
          stream->Write(response);
          response.mutable_ended()->set_lease_id("l");
          response.mutable_ended()->set_reason("WORKER_LOST");
          stream->Write(response);
          break;
        case v1::SessionRequest::kUrgency:
          urgencies_.push_back(request.urgency());
          changed_.SignalAll();
          break;
        case v1::SessionRequest::kStructure:
          ++structures_;
          changed_.SignalAll();
          if (request.has_stages()) {
            response.mutable_stages()->set_number(request.stages().number());
            stream->Write(response);
          }
          break;
        case v1::SessionRequest::kClose:
          closed_ = true;
          return grpc::Status::OK;
        default:
          break;
      }
    }
    return grpc::Status::OK;
  }

  void BeSilent(bool silent) {
    MutexLock lock(&mu_);
    silent_ = silent;
  }
  void RefuseToOpen(absl::Status refusal) {
    MutexLock lock(&mu_);
    refusal_ = std::move(refusal);
  }
  void OpenAs(const std::string& session_id, uint32_t version) {
    MutexLock lock(&mu_);
    session_id_ = session_id;
    version_ = version;
  }
  void WaitForLeaseRequests(int count) {
    MutexLock lock(&mu_);
    while (lease_requests_ < count) changed_.Wait(&mu_);
  }
  void WaitForStructures(int count) {
    MutexLock lock(&mu_);
    while (structures_ < count) changed_.Wait(&mu_);
  }
  // Of the openings and between them.
  std::vector<v1::Urgency> WaitForUrgencies(size_t count) {
    MutexLock lock(&mu_);
    while (urgencies_.size() < count) changed_.Wait(&mu_);
    return urgencies_;
  }
  std::string policy() {
    MutexLock lock(&mu_);
    return policy_;
  }
  std::vector<std::string> resumes() {
    MutexLock lock(&mu_);
    return resumes_;
  }
  bool closed() {
    MutexLock lock(&mu_);
    return closed_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Urgency> urgencies_ ABSL_GUARDED_BY(mu_);
  std::string policy_ ABSL_GUARDED_BY(mu_);
  std::string session_id_ ABSL_GUARDED_BY(mu_) = "session";
  uint32_t version_ ABSL_GUARDED_BY(mu_) = 1;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int lease_requests_ ABSL_GUARDED_BY(mu_) = 0;
  int structures_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> resumes_ ABSL_GUARDED_BY(mu_);
};

class Events : public CoordinatorEvents {
 public:
  void OnLeaseEnded(const std::string& lease_id,
                    const std::string& reason) override {
    MutexLock lock(&mu_);
    ended_ = lease_id + " " + reason;
    changed_.SignalAll();
  }
  void OnStages(const v1::StageAnswer& answer) override {
    MutexLock lock(&mu_);
    stages_.push_back(answer);
    changed_.SignalAll();
  }
  uint64_t WaitStages() {
    MutexLock lock(&mu_);
    while (stages_.empty()) changed_.Wait(&mu_);
    return stages_.back().number();
  }
  void OnMigrationRequested(const v1::MigrationRequest& request) override {
    MutexLock lock(&mu_);
    ended_ = "migrate from " + request.from_lease_id();
    changed_.SignalAll();
  }
  void OnAttachedAgain() override { ++attached_again; }
  std::atomic<int> attached_again{0};

  std::string WaitEnded() {
    MutexLock lock(&mu_);
    while (ended_.empty()) changed_.Wait(&mu_);
    return ended_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<v1::StageAnswer> stages_ ABSL_GUARDED_BY(mu_);
  std::string ended_ ABSL_GUARDED_BY(mu_);
};

class GrpcCoordinatorLinkTest : public testing::Test {
 protected:
  GrpcCoordinatorLinkTest() {
    // Not the test's own folder: a socket's path must be short.
    char folder[] = "/tmp/djinn-links-XXXXXX";
    folder_ = mkdtemp(folder);
    Serve();
  }
  ~GrpcCoordinatorLinkTest() override {
    link_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
    std::filesystem::remove_all(folder_);
  }

  std::string address() const {
    return "unix:" + folder_ + "/coordinator.sock";
  }
  void Serve() {
    server_ = *Server::Start({address(), false, {&service_}, {}});
  }
  void Kill() {
    server_->Shutdown(absl::ZeroDuration());
    server_.reset();
  }
  absl::Status Open(const std::string& token = "secret",
                    absl::Duration timeout = absl::Seconds(20),
                    std::string policy = "") {
    link_ = *MakeGrpcCoordinatorLink(address(), token, {}, nullptr,
                                     std::move(policy));
    return link_->Open("program", timeout, &events_).status();
  }
  absl::StatusOr<v1::LeaseGranted> Request(
      int device, absl::Duration timeout = absl::Seconds(20)) {
    v1::LeaseRequest request;
    request.set_virtual_device(device);
    return link_->RequestLease(request, timeout);
  }

  std::string folder_;
  TestSessions service_;
  std::unique_ptr<Server> server_;
  Events events_;
  std::unique_ptr<CoordinatorLink> link_;
};

TEST_F(GrpcCoordinatorLinkTest, OpensAsksAndCloses) {
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Request(0)->lease().lease_id(), "l");
  EXPECT_EQ(events_.WaitEnded(), "l WORKER_LOST");
  const absl::Status refused = Request(1).status();
  EXPECT_EQ(ErrorReason(refused), "NO_WORKER");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  link_->SendStructure({}, {}, std::nullopt);
  EXPECT_TRUE(link_->Close(absl::Seconds(20)).ok());
  // What was queued is told before the farewell.
  service_.WaitForStructures(1);
  EXPECT_TRUE(service_.closed());
}

TEST_F(GrpcCoordinatorLinkTest, AStructureMayCarryAQuestion) {
  ASSERT_TRUE(Open().ok());
  v1::StageRequest request;
  request.set_number(17);
  link_->SendStructure({}, {}, request);
  EXPECT_EQ(events_.WaitStages(), 17u);
}

TEST_F(GrpcCoordinatorLinkTest, SaysHowUrgentTheSessionIs) {
  v1::Urgency batch, hurried;
  batch.set_priority_class(v1::PRIORITY_CLASS_BATCH);
  hurried.mutable_run_deadline()->set_seconds(1);
  const auto urgency = std::make_shared<SessionUrgency>(batch);
  link_ = *MakeGrpcCoordinatorLink(address(), "secret", {}, urgency);
  ASSERT_TRUE(link_->Open("program", absl::Seconds(20), &events_).ok());
  EXPECT_EQ(service_.WaitForUrgencies(1)[0].priority_class(),
            v1::PRIORITY_CLASS_BATCH);
  EXPECT_EQ(urgency->Set(hurried)->priority_class(), v1::PRIORITY_CLASS_BATCH);
  EXPECT_EQ(service_.WaitForUrgencies(2)[1].run_deadline().seconds(), 1);
  v1::Urgency too_high;
  too_high.set_priority_class(v1::PRIORITY_CLASS_REALTIME);
  const absl::Status refused = urgency->Set(too_high).status();
  EXPECT_EQ(ErrorReason(refused), "PRIORITY_NOT_ALLOWED");
  EXPECT_EQ(refused.message(),
            "sessions of this tenant may have priority interactive at most, "
            "realtime was asked");
  // Another coordinator hears what was said last.
  Kill();
  Serve();
  EXPECT_EQ(service_.WaitForUrgencies(3)[2].run_deadline().seconds(), 1);
  // Nobody listens any more.
  link_.reset();
  EXPECT_TRUE(urgency->Set(batch).ok());
}

TEST_F(GrpcCoordinatorLinkTest, SaysHowTheSessionIsPlaced) {
  EXPECT_EQ(ErrorReason(Open("secret", absl::Seconds(20), "minimize_cost")),
            "");
  EXPECT_EQ(service_.policy(), "minimize_cost");
}

TEST_F(GrpcCoordinatorLinkTest, AWrongTokenIsNotRetried) {
  EXPECT_EQ(ErrorReason(Open("wrong")), "TOKEN_UNKNOWN");
}

TEST_F(GrpcCoordinatorLinkTest, NobodyThereIsSaidInTime) {
  Kill();
  const absl::Status status = Open("secret", absl::Milliseconds(100));
  EXPECT_EQ(ErrorReason(status), "COORDINATOR_UNREACHABLE");
  EXPECT_NE(status.message().find(address()), std::string::npos);
}

TEST_F(GrpcCoordinatorLinkTest, AttachesAgainToARestartedCoordinator) {
  ASSERT_TRUE(Open().ok());
  service_.BeSilent(true);
  absl::StatusOr<v1::LeaseGranted> granted = absl::UnknownError("");
  std::thread asker([&] { granted = Request(0); });
  service_.WaitForLeaseRequests(1);
  Kill();
  service_.BeSilent(false);
  Serve();
  // The request is made again on the new stream.
  asker.join();
  EXPECT_TRUE(granted.ok()) << granted.status();
  EXPECT_EQ(service_.resumes(), (std::vector<std::string>{"", "session"}));
  EXPECT_EQ(events_.attached_again, 1);
  EXPECT_TRUE(link_->Close(absl::Seconds(20)).ok());
}

TEST_F(GrpcCoordinatorLinkTest, GivesUpWhereAnotherAttemptChangesNothing) {
  for (const absl::Status& refusal :
       {MakeError(absl::StatusCode::kAborted, "SESSION_ATTACHED_ELSEWHERE",
                  "a newer stream"),
        MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_EXPIRED",
                  "too late"),
        MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN", "who"),
        MakeError(absl::StatusCode::kPermissionDenied,
                  "SESSION_OF_OTHER_TENANT", "not yours")}) {
    service_.RefuseToOpen(absl::OkStatus());
    ASSERT_TRUE(Open().ok());
    Kill();
    service_.RefuseToOpen(refusal);
    Serve();
    EXPECT_EQ(ErrorReason(Request(0).status()), ErrorReason(refusal));
    const size_t attempts = service_.resumes().size();
    EXPECT_EQ(ErrorReason(Request(1).status()), ErrorReason(refusal));
    EXPECT_EQ(ErrorReason(link_->Close(absl::Seconds(20))),
              ErrorReason(refusal));
    EXPECT_EQ(service_.resumes().size(), attempts);
    link_.reset();
  }
}

TEST_F(GrpcCoordinatorLinkTest, AnotherSessionThanAskedForIsABreach) {
  ASSERT_TRUE(Open().ok());
  Kill();
  service_.OpenAs("other session", 1);
  Serve();
  EXPECT_EQ(ErrorReason(Request(0).status()), "PROTOCOL_VIOLATION");
}

TEST_F(GrpcCoordinatorLinkTest, AVersionOutsideTheWindowIsRefused) {
  service_.OpenAs("session", 99);
  EXPECT_EQ(ErrorReason(Open()), "PROTOCOL_WINDOW");
}

TEST_F(GrpcCoordinatorLinkTest, ALeaseRequestEndsAtItsDeadline) {
  ASSERT_TRUE(Open().ok());
  Kill();
  EXPECT_EQ(ErrorReason(Request(0, absl::Milliseconds(50)).status()),
            "LEASE_TIMEOUT");
}

TEST_F(GrpcCoordinatorLinkTest, CancelledRequestsReturn) {
  ASSERT_TRUE(Open().ok());
  service_.BeSilent(true);
  absl::StatusOr<v1::LeaseGranted> granted = absl::UnknownError("");
  std::thread asker([&] { granted = Request(0); });
  service_.WaitForLeaseRequests(1);
  link_->CancelRequests();
  asker.join();
  EXPECT_TRUE(absl::IsCancelled(granted.status()));
}

TEST_F(GrpcCoordinatorLinkTest, ClosingWithoutACoordinatorSaysSo) {
  ASSERT_TRUE(Open().ok());
  Kill();
  // Nobody answers: by now the link has noticed that its stream broke. A
  // farewell written before that would count as said.
  EXPECT_FALSE(Request(0, absl::Milliseconds(200)).ok());
  EXPECT_EQ(ErrorReason(link_->Close(absl::Milliseconds(50))),
            "COORDINATOR_UNREACHABLE");
}

}  // namespace
}  // namespace djinn
