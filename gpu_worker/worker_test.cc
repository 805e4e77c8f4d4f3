// Tests a whole worker over real gRPC, with a fake device and a fake
// coordinator.
#include "gpu_worker/worker.h"

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/hash/crc32c.h"
#include "common/metrics/exposition.h"
#include "common/net/channel_pool.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "common/net/raw_connection.h"
#include "common/net/testing/descriptor_limit.h"
#include "common/net/tls/tls.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gpu_worker/pull/grpc_peers.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/shared_memory_peers.h"
#include "gpu_worker/testing/test_client.h"
#include "gpu_worker/worker_test_peers.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class WorkerTest : public testing::TestWithParam<bool> {
 protected:
  WorkerTest() {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    options.services = {&coordinator_};
    server_ = Server::Start(options).value();
    StartWorker(absl::Seconds(30));
  }
  ~WorkerTest() override {
    if (worker_ != nullptr) worker_->Stop();
    server_->Shutdown(absl::ZeroDuration());
  }

  // Replaces the worker with a new one.
  void StartWorker(absl::Duration transfer_idle_timeout) {
    if (worker_ != nullptr) worker_->Stop();
    worker_.reset();
    const uint64_t before = incarnation_;
    WorkerConfig config;
    config.worker_id = "w0";
    // A relative path: test directories' names are too long for a socket.
    config.listen = GetParam() ? "unix:worker_test.sock" : "127.0.0.1:0";
    config.shared_memory_socket = "worker_test.shm";
    config.coordinator = server_->address();
    config.join_token = "join";
    config.heartbeat_interval = absl::Milliseconds(50);
    config.transfer_idle_timeout = transfer_idle_timeout;
    config.resume_timeout = absl::Milliseconds(200);
    config.graph_cache_entries = 16;
    absl::StatusOr<std::unique_ptr<Worker>> worker =
        Worker::Start(config, std::make_unique<FakeDevice>(256 << 20),
                      Clock::Real(), RandomSource::Real());
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    const v1::WorkerState state =
        coordinator_.Wait([before](const v1::WorkerState& s) {
          return s.applied_revision() == 1 && s.incarnation() != before;
        });
    incarnation_ = state.incarnation();
    EXPECT_EQ(state.address(), worker_->address());
  }

  std::string Token() {
    MutexLock lock(&coordinator_.mu);
    return coordinator_.lease_token;
  }

  v1::ClientHello Hello() {
    v1::ClientHello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_session_id("s1");
    hello.set_session_epoch(1);
    hello.set_lease_token(Token());
    hello.set_worker_incarnation(incarnation_);
    return hello;
  }

  // Connects a client. Without a token for Bulk, it uses the lease's.
  std::unique_ptr<TestClient> Connect(const std::string& bulk_token = "",
                                      StubStream** raw = nullptr) {
    v1::BulkHello bulk;
    bulk.set_session_id("s1");
    bulk.set_lease_token(bulk_token.empty() ? Token() : bulk_token);
    auto stream = std::make_unique<StubStream>(worker_->address(), bulk);
    if (raw != nullptr) *raw = stream.get();
    auto client = std::make_unique<TestClient>(std::move(stream));
    v1::ClientHello hello = Hello();
    client->Hello(hello);
    EXPECT_EQ(client->WaitHello().worker_id(), "w0");
    return client;
  }

  // Returns in how many messages a client receives so many replies that wait
  // together.
  int MessagesFor(int reads) {
    StubStream* stream;
    const std::unique_ptr<TestClient> client = Connect("", &stream);
    EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
    const int before = stream->messages;
    client->Hold();
    uint64_t last = 0;
    for (int i = 0; i < reads; ++i) {
      last = client->SendRead(1, FakeGraph::View(0, 2));
    }
    client->Release();
    client->WaitRead(last);
    return stream->messages - before;
  }

  std::unique_ptr<v1::Execution::Stub> Stub() const {
    return v1::Execution::NewStub(grpc::CreateChannel(
        worker_->address(), grpc::InsecureChannelCredentials()));
  }
  // Returns the request for an offer of the session's.
  v1::PullRequest PullOf(const std::string& ticket, uint64_t size) const {
    v1::PullRequest request;
    request.set_session_id("s1");
    request.set_ticket(ticket);
    request.set_size_bytes(size);
    request.set_worker_incarnation(incarnation_);
    return request;
  }
  // Offers the value of a new storage, frees the storage, and returns the
  // request for what was offered.
  v1::PullRequest OfferNew(TestClient* client, uint64_t storage,
                           const std::string& ticket, uint64_t size) {
    client->Create(storage, size);
    client->Offer(storage, ticket);
    EXPECT_TRUE(client->WaitCompleted(client->Free({storage})));
    return PullOf(ticket, size);
  }
  void WaitAllFree() {
    coordinator_.Wait([](const v1::WorkerState& state) {
      return state.free_bytes() == state.memory_bytes();
    });
  }

  FakeCoordinator coordinator_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Worker> worker_;
  uint64_t incarnation_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Addresses, WorkerTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Unix" : "Tcp";
                         });

TEST_P(WorkerTest, RunsAProgramAndMovesBulkBothWays) {
  std::unique_ptr<TestClient> client = Connect();
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 4 << 20);
  const std::string bytes =
      FloatBytes(std::vector<float>((4 << 20) + 25, 1.5f));
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  client->Define(1, s.get());
  client->Run(1, {1, 2});
  srg::TensorView view = FakeGraph::View(0, 4 << 20);
  const v1::ReadReply reply = client->WaitRead(client->SendRead(2, view, 9));
  EXPECT_EQ(reply.bulk_bytes(), size_t{16} << 20);
  const std::vector<float> values =
      FloatsOf(client->WaitBulk(9, size_t{16} << 20));
  ASSERT_EQ(values.size(), size_t{4} << 20);
  EXPECT_EQ(values.front(), 3);
  EXPECT_EQ(values.back(), 3);
  coordinator_.Wait([](const v1::WorkerState& state) {
    return state.contents_size() == 1 && state.graphs_size() == 1 &&
           state.sessions_size() == 1 && state.sessions(0).storage_count() == 2;
  });
  client.reset();
  coordinator_.Wait([](const v1::WorkerState& state) {
    return state.contents_size() == 1 && state.sessions(0).storage_count() == 0;
  });
}

TEST_P(WorkerTest, ManyRepliesLeaveInFewerMessages) {
  EXPECT_LT(MessagesFor(50), 50);
}

TEST_P(WorkerTest, LongFirstMessageEndsTheStream) {
  v1::BulkHello bulk;
  bulk.set_session_id("s1");
  bulk.set_lease_token(Token());
  TestClient client(
      std::make_unique<StubStream>(worker_->address(), std::move(bulk)));
  v1::ClientHello hello = Hello();
  hello.set_session_id(std::string(64 << 10, 'x'));
  client.Hello(hello);
  const absl::Status status = client.WaitClosed();
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_NE(status.message().find("a first message of"), std::string::npos)
      << status;
}

TEST_P(WorkerTest, ClientsWithALeaseStayBesideManyConnectionsThatNameNone) {
  if (GetParam()) return;  // A Unix socket's file says who may connect.
  {
    // Leaves room for 32 connections that name no lease.
    const DescriptorLimit limit(256);
    StartWorker(absl::Seconds(30));
  }
  std::unique_ptr<TestClient> client = Connect();
  const std::vector<Socket> others = ConnectIdleClients(worker_->address(), 64);
  AwaitHangUp(others.front());
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
}

TEST_P(WorkerTest, DeclaresAllThatItCountsLater) {
  std::map<std::string, std::vector<std::string>> declared;
  Exposition before;
  worker_->Declare(&before);
  before.Visit([&](const prometheus::MetricFamily& family,
                   const std::vector<std::string>& labels) {
    declared[family.name] = labels;
  });
  // A GPU counts nothing before its first run.
  EXPECT_TRUE(declared.contains("djinn_worker_device_events_total"));
  std::unique_ptr<TestClient> client = Connect();
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 4);
  client->InstallInline(1, FloatBytes({1, 2, 3, 4}));
  client->Define(1, s.get());
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1, 2})));
  Exposition after;
  worker_->Collect(&after);
  EXPECT_TRUE(after.Has("djinn_worker_sessions"));
  EXPECT_TRUE(after.Has("djinn_worker_tenant_memory_bytes"));
  after.Visit([&](const prometheus::MetricFamily& family,
                  const std::vector<std::string>& /*labels*/) {
    ASSERT_TRUE(declared.contains(family.name)) << family.name;
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::vector<std::string> labels;
      for (const auto& label : metric.label) labels.push_back(label.name);
      EXPECT_EQ(labels, declared[family.name]) << family.name;
    }
  });
}

TEST_P(WorkerTest, TypedErrorsReachTheClient) {
  std::unique_ptr<TestClient> client = Connect();
  client->Free({4});
  const absl::Status status = client->WaitClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
}

TEST_P(WorkerTest, ACorruptChunkEndsBothCalls) {
  StubStream* stream;
  std::unique_ptr<TestClient> client = Connect("", &stream);
  const std::string bytes(5000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  stream->corrupt = true;
  client->SendBytes(1, bytes);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "CHUNK_CORRUPT");
}

TEST_P(WorkerTest, AKilledClientIsCleanedUp) {
  std::unique_ptr<TestClient> client = Connect();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 1 << 20)));
  coordinator_.Wait([](const v1::WorkerState& state) {
    return state.sessions_size() == 1 &&
           state.sessions(0).storage_bytes() == 1 << 20;
  });
  client->stream()->Close(absl::CancelledError("killed"));
  coordinator_.Wait([](const v1::WorkerState& state) {
    return state.sessions_size() == 1 &&
           state.sessions(0).storage_count() == 0 &&
           state.free_bytes() == state.memory_bytes();
  });
  // The lease still holds: a new stream starts a new session.
  client = Connect();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
}

TEST_P(WorkerTest, StopTellsClients) {
  std::unique_ptr<TestClient> client = Connect();
  worker_->Stop();
  const absl::Status status = client->WaitClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(status), "DRAINING");
}

TEST_P(WorkerTest, RunningWorkGoesOnWithoutTheCoordinator) {
  std::unique_ptr<TestClient> client = Connect();
  server_->Shutdown(absl::ZeroDuration());
  for (int i = 1; i < 20; ++i) {
    EXPECT_TRUE(client->WaitCompleted(client->Create(i, 8)));
  }
}

TEST_P(WorkerTest, AWrongBulkTokenNeverSeesBytes) {
  StubStream* stream;
  std::unique_ptr<TestClient> client = Connect("wrong", &stream);
  const std::string bytes(5000, 'x');
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  EXPECT_EQ(client->completed(), 0u);
  client.reset();
}

// The result of a Pull call.
struct Pulled {
  std::string bytes;
  int waits = 0;
  absl::Status status;
};
Pulled PullFrom(const std::string& address, const v1::PullRequest& request) {
  const auto stub = v1::Execution::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  const auto call = stub->Pull(&context, request);
  Pulled pulled;
  v1::PullResponse response;
  while (call->Read(&response)) {
    pulled.waits += response.has_waiting();
    EXPECT_EQ(response.chunk().offset(), pulled.bytes.size());
    EXPECT_EQ(response.chunk().crc32c(), Crc32c(response.chunk().payload()));
    pulled.bytes += response.chunk().payload();
  }
  pulled.status = FromGrpcStatus(call->Finish());
  return pulled;
}

TEST_P(WorkerTest, AnotherWorkerFetchesWhatWasOffered) {
  std::unique_ptr<TestClient> client = Connect();
  const std::string bytes =
      FloatBytes(std::vector<float>((5 << 20) / 4 + 25, 1.5f));
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  v1::PullRequest request = PullOf("0123456789abcdef", bytes.size());
  // The pull comes before the offer.
  Pulled early;
  std::thread caller([&] { early = PullFrom(worker_->address(), request); });
  client->Offer(1, request.ticket());
  caller.join();
  EXPECT_TRUE(early.status.ok()) << early.status;
  EXPECT_TRUE(early.bytes == bytes);
  // A caller without a ticket of a session here learns nothing.
  const auto refusal = [&] {
    const Pulled pulled = PullFrom(worker_->address(), request);
    EXPECT_EQ(pulled.bytes, "");
    return pulled.status;
  };
  const absl::Status used = refusal();
  EXPECT_EQ(used.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(used), "OFFER_UNKNOWN");
  request.set_session_id("s2");
  EXPECT_EQ(refusal(), used);
  request.clear_ticket();
  EXPECT_EQ(refusal(), used);
  request.set_worker_incarnation(incarnation_ + 1);
  EXPECT_EQ(ErrorReason(refusal()), "WRONG_INCARNATION");
}

// Keeps the bytes.
class BytesReceiver : public PullReceiver {
 public:
  void OnWaiting() override {}
  absl::Status OnBytes(uint64_t offset, absl::string_view received) override {
    EXPECT_EQ(offset, bytes.size());
    bytes.append(received.data(), received.size());
    return absl::OkStatus();
  }
  void OnComplete() override {}
  void OnShared(std::shared_ptr<Buffer>) override {}
  void OnPoisoned(v1::ErrorDetail) override {}
  void OnFailed(absl::Status) override {}

  std::string bytes;
};

class Unreachable : public PeerConnector {
 public:
  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer&, const v1::PullRequest&) override {
    return absl::UnavailableError("not this way");
  }
};

TEST_P(WorkerTest, AnAnswerSaysWhereOthersOnTheMachineFetch) {
  std::unique_ptr<TestClient> client = Connect();
  const std::string bytes = FloatBytes(std::vector<float>(25, 1.5f));
  client->InstallInline(1, bytes);
  v1::Peer peer;
  peer.set_worker_id("w0");
  peer.set_incarnation(incarnation_);
  peer.set_address(worker_->address());
  const auto fetch = [&](PeerConnector* peers, char ticket) {
    const v1::PullRequest request =
        PullOf(std::string(OfferTable::kTicketBytes, ticket), bytes.size());
    client->Offer(1, request.ticket());
    BytesReceiver receiver;
    const auto received =
        peers->Open(peer, request).value()->Receive(bytes.size(), &receiver);
    EXPECT_TRUE(received.ok()) << received.status();
    return receiver.bytes;
  };
  SharedMemoryPeers shared_memory;
  shared_memory.SetOther(std::make_unique<Unreachable>());
  ChannelPool channels({.max_users = kMaxPullsPerChannel}, Clock::Real());
  const std::unique_ptr<PeerConnector> grpc = MakeGrpcPeers(
      ChannelSecurity::Make({}, /*insecure=*/true).value(), &channels,
      [&](const v1::Peer& told, const std::string& socket) {
        EXPECT_EQ(told.worker_id(), "w0");
        shared_memory.Learn(told, socket);
      });
  EXPECT_EQ(fetch(grpc.get(), 'a'), bytes);
  EXPECT_EQ(fetch(grpc.get(), 'c'), bytes);
  EXPECT_EQ(channels.counts().created, 1u);
  EXPECT_EQ(channels.counts().reused, 1u);
  EXPECT_EQ(fetch(&shared_memory, 'b'), bytes);
}

TEST_P(WorkerTest, ACallerThatGoesLetsGoOfWhatWasOffered) {
  std::unique_ptr<TestClient> client = Connect();
  const v1::PullRequest request =
      OfferNew(client.get(), 1, "0123456789abcdef", 48 << 20);
  coordinator_.Wait([](const v1::WorkerState& state) {
    return state.free_bytes() < state.memory_bytes();
  });
  {
    const auto stub = Stub();
    grpc::ClientContext context;
    const auto call = stub->Pull(&context, request);
    v1::PullResponse response;
    EXPECT_TRUE(call->Read(&response));
    context.TryCancel();
    while (call->Read(&response)) {
    }
    EXPECT_FALSE(call->Finish().ok());
  }
  WaitAllFree();
}

TEST_P(WorkerTest, FetchHeldForAnotherCompletes) {
  // The deadline gives the first fetch's bytes precedence over the second's.
  coordinator_.has_run_deadline = true;
  StartWorker(absl::Seconds(30));
  std::unique_ptr<TestClient> client = Connect();
  const v1::PullRequest request =
      OfferNew(client.get(), 1, "0123456789abcdef", 48 << 20);
  const v1::PullRequest second =
      OfferNew(client.get(), 2, "fedcba9876543210", 1 << 20);
  const auto stub = Stub();
  grpc::ClientContext context;
  const auto call = stub->Pull(&context, request);
  v1::PullResponse response;
  uint64_t came = 0;
  EXPECT_TRUE(call->Read(&response));
  came += response.chunk().payload().size();
  // The first fetch is being sent but not taken, so it does not hold the second
  // one for long.
  const Pulled whole = PullFrom(worker_->address(), second);
  EXPECT_EQ(whole.status, absl::OkStatus());
  EXPECT_EQ(whole.bytes.size(), second.size_bytes());
  while (call->Read(&response)) came += response.chunk().payload().size();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_EQ(came, request.size_bytes());
}

TEST_P(WorkerTest, ACallerThatTakesNothingIsCutOff) {
  StartWorker(absl::Milliseconds(300));
  std::unique_ptr<TestClient> client = Connect();
  const v1::PullRequest request =
      OfferNew(client.get(), 1, "0123456789abcdef", 48 << 20);
  coordinator_.Wait([](const v1::WorkerState& state) {
    return state.free_bytes() < state.memory_bytes();
  });
  const auto stub = Stub();
  grpc::ClientContext context;
  const auto call = stub->Pull(&context, request);
  v1::PullResponse response;
  EXPECT_TRUE(call->Read(&response));
  WaitAllFree();
  while (call->Read(&response)) {
  }
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_P(WorkerTest, EightBulkCallsOfALeaseWaitAndNoStranger) {
  const auto stub = Stub();
  // Returns the status of a Bulk call that no Control call takes.
  const auto call = [&stub](const std::string& token) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(2));
    const auto bulk = stub->Bulk(&context);
    v1::BulkChunk chunk;
    chunk.mutable_hello()->set_session_id("s1");
    chunk.mutable_hello()->set_lease_token(token);
    bulk->Write(chunk);
    EXPECT_FALSE(bulk->Read(&chunk));
    return FromGrpcStatus(bulk->Finish());
  };
  EXPECT_EQ(ErrorReason(call("wrong")), "LEASE_UNKNOWN");
  std::vector<absl::Status> ends(9);
  std::vector<std::thread> callers;
  for (absl::Status& end : ends) {
    callers.emplace_back([this, &call, &end] { end = call(Token()); });
  }
  for (std::thread& caller : callers) caller.join();
  // The last call to arrive was refused at once.
  int refused = 0;
  for (const absl::Status& end : ends) {
    refused += ErrorReason(end) == "LEASE_IN_USE";
  }
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace djinn::worker
