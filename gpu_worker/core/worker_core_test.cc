#include "gpu_worker/core/worker_core.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/transport/in_process.h"
#include "gpu_worker/core/test_client.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_structure.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Floats = std::vector<float>;

class WorkerCoreTest : public testing::Test {
 protected:
  WorkerCoreTest() {
    WorkerCoreOptions options;
    options.worker_id = "w0";
    options.housekeeping_interval = absl::Milliseconds(2);
    core_ = std::make_unique<WorkerCore>(options, &device_, &clock_, &random_);
  }
  ~WorkerCoreTest() override { core_->Shutdown(); }

  v1::LeaseRecord Lease(const std::string& session, const std::string& tenant) {
    v1::LeaseRecord lease;
    lease.set_lease_id("lease-" + session);
    lease.set_token("token-" + session);
    lease.set_session_id(session);
    lease.set_session_epoch(1);
    lease.set_tenant(tenant);
    lease.mutable_limits()->set_memory_bytes(8 << 20);
    lease.mutable_limits()->set_max_outstanding(64);
    lease.mutable_limits()->set_max_outstanding_bytes(1 << 20);
    lease.mutable_limits()->set_inline_bytes(1024);
    lease.mutable_limits()->set_max_structures(4);
    return lease;
  }

  void Grant(const v1::LeaseRecord& lease, int seconds = 60) {
    v1::DesiredState desired;
    *desired.add_leases() = lease;
    desired.mutable_lease_valid_for()->set_seconds(seconds);
    core_->Apply(desired);
  }

  v1::ClientHello HelloFor(const std::string& session) {
    v1::ClientHello hello;
    hello.mutable_protocol()->set_min(1);
    hello.mutable_protocol()->set_max(1);
    hello.set_session_id(session);
    hello.set_session_epoch(1);
    hello.set_lease_token("token-" + session);
    hello.set_worker_incarnation(core_->incarnation());
    return hello;
  }

  std::unique_ptr<TestClient> Connect(const v1::ClientHello& hello) {
    InProcessPair pair = MakeInProcessPair();
    core_->Attach(std::move(pair.worker));
    auto client = std::make_unique<TestClient>(std::move(pair.client));
    client->Hello(hello);
    return client;
  }

  std::unique_ptr<TestClient> Open(const std::string& session = "s1",
                                   const std::string& tenant = "t1") {
    Grant(Lease(session, tenant));
    std::unique_ptr<TestClient> client = Connect(HelloFor(session));
    EXPECT_EQ(client
                  ->WaitFor([](const v1::ControlResponse& r) {
                    return r.has_hello();
                  })
                  .hello()
                  .worker_id(),
              "w0");
    return client;
  }

  std::string Refusal(const v1::ClientHello& hello) {
    return ErrorReason(Connect(hello)->WaitClosed());
  }

  // Waits until the executor and housekeeping let go of everything.
  bool WaitMemory(uint64_t bytes) {
    for (int i = 0; i < 2000; ++i) {
      if (core_->ledger().usage().used == bytes) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  FakeDevice device_{16 << 20};
  FakeClock clock_;
  FakeRandomSource random_;
  std::unique_ptr<WorkerCore> core_;
};

srg::Structure AddTo() {  // x += y
  FakeStructure s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  s.AddInPlace(x, y, 2);
  return s.get();
}

TEST_F(WorkerCoreTest, RunsAProgramAndAnswersReads) {
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, AddTo());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({10, 20}));
  client->Run(1, {1, 2});
  const uint64_t last = client->Run(1, {1, 2});
  EXPECT_EQ(client->Read(1, 2), (Floats{21, 42}));
  EXPECT_TRUE(client->WaitCompleted(last + 1));
  const v1::Admitted admitted = client
                                    ->WaitFor([](const v1::ControlResponse& r) {
                                      return r.has_admitted();
                                    })
                                    .admitted();
  EXPECT_EQ(admitted.fingerprint().size(), 32u);
  EXPECT_FALSE(admitted.cache_hit());
}

TEST_F(WorkerCoreTest, TheSecondSessionHitsTheGraphCache) {
  std::unique_ptr<TestClient> a = Open("s1");
  a->WaitCompleted(a->Define(1, AddTo()));
  std::unique_ptr<TestClient> b = Open("s2", "t2");
  b->Define(7, AddTo());
  EXPECT_TRUE(
      b->WaitFor([](const v1::ControlResponse& r) { return r.has_admitted(); })
          .admitted()
          .cache_hit());
}

TEST_F(WorkerCoreTest, CompletionIsReportedWithoutAReadToo) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  EXPECT_TRUE(client->WaitCompleted(client->Free({1})));
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, RefusesHellosThatDoNotHoldALease) {
  Grant(Lease("s1", "t1"));
  v1::ClientHello hello = HelloFor("s1");
  hello.set_lease_token("token-s2");
  EXPECT_EQ(Refusal(hello), "LEASE_UNKNOWN");
  EXPECT_EQ(Refusal(HelloFor("s2")), "LEASE_UNKNOWN");
  hello = HelloFor("s1");
  hello.set_session_epoch(0);
  EXPECT_EQ(Refusal(hello), "STALE_EPOCH");
  hello = HelloFor("s1");
  hello.set_worker_incarnation(99);
  EXPECT_EQ(Refusal(hello), "WRONG_INCARNATION");
  hello = HelloFor("s1");
  hello.mutable_protocol()->set_min(7);
  hello.mutable_protocol()->set_max(9);
  EXPECT_EQ(Refusal(hello), "PROTOCOL_WINDOW");
  std::unique_ptr<TestClient> first = Open();
  EXPECT_EQ(Refusal(HelloFor("s1")), "LEASE_IN_USE");
  // None of it disturbed the one that holds it.
  EXPECT_TRUE(first->WaitCompleted(first->Create(1, 8)));
}

TEST_F(WorkerCoreTest, AFirstMessageThatIsNoHelloEndsTheStream) {
  InProcessPair pair = MakeInProcessPair();
  core_->Attach(std::move(pair.worker));
  TestClient client(std::move(pair.client));
  client.Create(1, 8);
  EXPECT_EQ(ErrorReason(client.WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(WorkerCoreTest, ASilentConnectionIsClosed) {
  InProcessPair pair = MakeInProcessPair();
  core_->Attach(std::move(pair.worker));
  TestClient client(std::move(pair.client));
  clock_.Advance(absl::Seconds(11));
  EXPECT_EQ(client.WaitClosed().code(), absl::StatusCode::kDeadlineExceeded);
}

// A stream whose peer does not take the closing status until it is let go.
class StubbornStream : public WorkerStream {
 public:
  struct State {
    std::atomic<WorkerStreamReceiver*> receiver{nullptr};
    std::atomic<int> closes{0};
  };
  explicit StubbornStream(State* state) : state_(state) {}
  void Start(WorkerStreamReceiver* receiver) override {
    state_->receiver = receiver;
  }
  bool Send(std::shared_ptr<const v1::ControlResponse>) override {
    return true;
  }
  bool SendBulk(uint64_t, uint64_t, SharedBytes) override { return true; }
  void Close(absl::Status) override { ++state_->closes; }

 private:
  State* const state_;
};

TEST_F(WorkerCoreTest, AConnectionIsClosedOnceHoweverLongItTakes) {
  StubbornStream::State state;
  core_->Attach(std::make_unique<StubbornStream>(&state));
  clock_.Advance(absl::Seconds(11));
  while (state.closes == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(50));  // Many rounds of housekeeping.
  EXPECT_EQ(state.closes, 1);
  state.receiver.load()->OnClosed(absl::OkStatus());
}

TEST_F(WorkerCoreTest, GapsAndRepeatsInTheSequenceEndTheStream) {
  std::unique_ptr<TestClient> client = Open();
  client->Create(1, 8);
  client->SkipSequence();
  client->Create(2, 8);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, AWindowThatIsExceededEndsTheStream) {
  std::unique_ptr<TestClient> client = Open();
  // Parked on a transfer that never comes, so that nothing completes.
  client->InstallTransfer(1, 1, std::string(2000, 'x'));
  for (int i = 0; i < 64; ++i) client->Create(10 + i, 8);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "WINDOW_EXCEEDED");
}

TEST_F(WorkerCoreTest, IdsAreNeverReused) {
  std::unique_ptr<TestClient> client = Open();
  client->Create(1, 8);
  client->Free({1});
  v1::Ordered again;
  again.mutable_create_storage()->set_storage(1);
  client->Send(again);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> other = Open("s2");
  other->Free({5});
  EXPECT_EQ(ErrorReason(other->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(WorkerCoreTest, AnUploadArrivesInChunksAndIsFoundAgain) {
  std::unique_ptr<TestClient> client = Open();
  std::string bytes(3 * kBulkChunkBytes + 100, 'a');
  bytes[5] = 'b';
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes);
  EXPECT_TRUE(client->WaitCompleted(1));
  // A view of two bytes into the last chunk, then the whole on Bulk.
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(bytes.size())};
  view.strides = {1};
  const v1::ReadReply reply = client->WaitRead(client->SendRead(1, view, 77));
  EXPECT_EQ(reply.bulk_bytes(), bytes.size());
  EXPECT_EQ(client->WaitBulk(77, bytes.size()), bytes);
  // Another session of the tenant does not send them again.
  std::unique_ptr<TestClient> second = Open("s2", "t1");
  second->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(second->WaitDecision(1).already_held());
  // Another tenant does.
  std::unique_ptr<TestClient> stranger = Open("s3", "t2");
  stranger->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(stranger->WaitDecision(1).send());
}

TEST_F(WorkerCoreTest, AWriterOfSharedContentsChangesItsOwnCopyOnly) {
  FakeStructure s;
  s.FillInPlace(s.Bound(), 600);
  const std::string bytes = FloatBytes(Floats(600, 1));
  std::unique_ptr<TestClient> a = Open("s1", "t1");
  std::unique_ptr<TestClient> b = Open("s2", "t1");
  a->InstallTransfer(1, 1, bytes);
  a->WaitDecision(1);
  a->SendBytes(1, bytes);
  EXPECT_TRUE(a->WaitCompleted(1));
  b->InstallTransfer(1, 1, bytes);
  b->Define(1, s.get());
  b->Run(1, {1}, {5});
  EXPECT_EQ(b->Read(1, 2), (Floats{5, 5}));
  EXPECT_EQ(a->Read(1, 2), (Floats{1, 1}));
  EXPECT_EQ(core_->counters().write_copies, 1u);
  EXPECT_EQ(core_->ledger().usage().used, 2 * bytes.size());
}

TEST_F(WorkerCoreTest, BytesThatDoNotMatchTheirHashPoison) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(2000, 'x');
  client->InstallTransfer(1, 1, bytes, ContentHash{1, 2});
  client->WaitDecision(1);
  client->SendBytes(1, bytes);
  EXPECT_EQ(client->ReadError(1).reason(), "CONTENT_MISMATCH");
  EXPECT_TRUE(core_->contents().List().empty());
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, ATransferThatStandsStillPoisonsAndLateBytesAreIgnored) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(2000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes, 0, 500);
  // Whenever the piece arrives, nothing follows it for long enough.
  Grant(Lease("s1", "t1"), 100000);
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(absl::Seconds(31));
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(client->ReadError(1).reason(), "TRANSFER_TIMEOUT");
  client->SendBytes(1, bytes, 500);
  client->InstallInline(1, FloatBytes({3}));
  EXPECT_EQ(client->Read(1, 1), (Floats{3}));
}

TEST_F(WorkerCoreTest, BytesOutsideTheTransferEndTheStream) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(2000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, std::string(2001, 'x'));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, AnUploadWithoutRoomIsRefusedAndTheStorageKeepsItsValue) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({4, 5}));
  const std::string bytes(9 << 20, 'x');
  client->InstallTransfer(1, 1, bytes);
  const v1::TransferDecision decision = client->WaitDecision(1);
  EXPECT_EQ(decision.refused().reason(), "SESSION_MEMORY");
  EXPECT_NE(decision.refused().message().find("limit 8388608"),
            std::string::npos);
  EXPECT_EQ(client->Read(1, 2), (Floats{4, 5}));
  client->InstallTransfer(2, 2, bytes);
  EXPECT_EQ(client->WaitDecision(2).refused().reason(), "SESSION_MEMORY");
  EXPECT_EQ(client->ReadError(2).reason(), "SESSION_MEMORY");
}

TEST_F(WorkerCoreTest, AReadThatCopiesIsAccountedFor) {
  std::unique_ptr<TestClient> client = Open();
  std::unique_ptr<TestClient> other = Open("s2");
  client->InstallInline(1, FloatBytes({7}));
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 7 << 20)));
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 7 << 20)));
  const uint64_t before = core_->ledger().usage().used;
  srg::TensorView expanded;
  expanded.data_type = srg::DataType::kFloat32;
  expanded.sizes = {1 << 20};
  expanded.strides = {0};
  const v1::ErrorDetail error =
      client->WaitRead(client->SendRead(1, expanded, 1)).error();
  EXPECT_EQ(error.code(),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(error.reason(), "DEVICE_MEMORY");
  // What fits is read, and nothing of it stays behind.
  const size_t bytes = size_t{1} << 20;
  expanded.sizes = {static_cast<int64_t>(bytes / sizeof(float))};
  EXPECT_EQ(client->WaitRead(client->SendRead(1, expanded, 2)).bulk_bytes(),
            bytes);
  EXPECT_EQ(client->WaitBulk(2, bytes),
            FloatBytes(Floats(bytes / sizeof(float), 7)));
  EXPECT_TRUE(WaitMemory(before));
}

TEST_F(WorkerCoreTest, IdleContentsMakeRoom) {
  const std::string old_bytes(7 << 20, 'o');
  {
    std::unique_ptr<TestClient> client = Open("s1");
    client->InstallTransfer(1, 1, old_bytes);
    client->WaitDecision(1);
    client->SendBytes(1, old_bytes);
    EXPECT_TRUE(client->WaitCompleted(1));
  }
  EXPECT_TRUE(WaitMemory(old_bytes.size()));
  std::unique_ptr<TestClient> a = Open("s2");
  std::unique_ptr<TestClient> b = Open("s3");
  EXPECT_TRUE(a->WaitCompleted(a->Create(1, 7 << 20)));
  EXPECT_TRUE(b->WaitCompleted(b->Create(1, 7 << 20)));
  EXPECT_TRUE(core_->contents().List().empty());
}

TEST_F(WorkerCoreTest, ResizeKeepsThePrefix) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Create(1, 16);
  EXPECT_EQ(client->Read(1, 4), (Floats{1, 2, 0, 0}));
  client->Create(1, 4);
  EXPECT_EQ(client->Read(1, 1), (Floats{1}));
}

TEST_F(WorkerCoreTest, ARefusedStructurePoisonsWhatItsRunsWouldWrite) {
  FakeStructure s;
  const uint32_t x = s.Bound();
  s.Unary("fake::refused", x, 2);
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Define(1, s.get());
  client->Run(1, {1, 2});
  const v1::ErrorDetail error = client->ReadError(2);
  EXPECT_EQ(error.reason(), "OPERATOR_REFUSED");
  EXPECT_EQ(client->ReadError(2).error_id(), error.error_id());
  EXPECT_EQ(client->Read(1, 2), (Floats{1, 2}));
}

TEST_F(WorkerCoreTest, AnErrorIsToldOnceAndBeforeTheRunCountsAsDone) {
  FakeStructure s;
  s.FailInPlace(s.Bound(), 2);
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Define(1, s.get());
  client->set_lane(3);
  const uint64_t sequence = client->Run(1, {1});
  client->set_lane(4);
  EXPECT_TRUE(client->WaitCompleted(sequence));
  client->Run(1, {1});
  const uint64_t id = client->ReadError(1).error_id();
  int told = 0;
  for (const v1::ControlResponse& response : client->responses()) {
    if (!response.has_poisoned()) continue;
    ++told;
    EXPECT_EQ(response.poisoned().error_id(), id);
    EXPECT_EQ(response.poisoned().tenant(), "t1");
    EXPECT_EQ(response.poisoned().lane(), 3u);
  }
  EXPECT_EQ(told, 1);
}

TEST_F(WorkerCoreTest, RandomNumbersFollowTheSeedPerSession) {
  FakeStructure s;
  s.Draw(s.Generator(), 2);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallSeed(1, 100);
  client->Run(1, {1, 2});
  client->Run(1, {1, 3});
  EXPECT_EQ(client->Read(3, 2), (Floats{102, 103}));
  client->InstallSeed(1, 100);
  client->Run(1, {1, 4});
  EXPECT_EQ(client->Read(4, 2), (Floats{100, 101}));
}

TEST_F(WorkerCoreTest, AGeneratorIsReservedBeforeItIsMade) {
  // Four bytes are left on the device, eight in the session.
  std::unique_ptr<TestClient> client = Open();
  std::unique_ptr<TestClient> second = Open("s2");
  std::unique_ptr<TestClient> third = Open("s3");
  const uint64_t held = (8 << 20) - 8;
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, held)));
  EXPECT_TRUE(second->WaitCompleted(second->Create(1, 8 << 20)));
  EXPECT_TRUE(third->WaitCompleted(third->Create(1, 4)));
  client->InstallSeed(2, 100);
  EXPECT_EQ(client->ReadError(2).reason(), "DEVICE_MEMORY");
  EXPECT_EQ(core_->Snapshot().sessions(0).storage_bytes(), held);
}

TEST_F(WorkerCoreTest, UnknownShapesComeBack) {
  FakeStructure s;
  s.Nonzero(s.Bound(), 3);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallInline(1, FloatBytes({0, 4, 5}));
  client->Run(1, {1, 2});
  const v1::RunMetadata metadata =
      client
          ->WaitFor(
              [](const v1::ControlResponse& r) { return r.has_metadata(); })
          .metadata();
  EXPECT_EQ(metadata.results(0).sizes(0), 2);
  EXPECT_EQ(client->Read(2, 2), (Floats{1, 2}));
}

TEST_F(WorkerCoreTest, AnExpiredLeaseEndsTheSessionAndFreesItsMemory) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 4096)));
  clock_.Advance(absl::Seconds(59));
  Grant(Lease("s1", "t1"));  // Renewed.
  clock_.Advance(absl::Seconds(59));
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 4096)));
  clock_.Advance(absl::Seconds(2));
  const absl::Status status = client->WaitClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ErrorReason(status), "LEASE_EXPIRED");
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_EQ(Refusal(HelloFor("s1")), "LEASE_UNKNOWN");
}

TEST_F(WorkerCoreTest, TheCoordinatorDropsByNameOnly) {
  std::unique_ptr<TestClient> a = Open("s1");
  std::unique_ptr<TestClient> b = Open("s2");
  core_->Apply(v1::DesiredState());  // Knows nobody: drops nobody.
  v1::DesiredState desired;
  desired.add_drop_session_ids("s1");
  core_->Apply(desired);
  EXPECT_EQ(ErrorReason(a->WaitClosed()), "SESSION_DROPPED");
  EXPECT_TRUE(b->WaitCompleted(b->Create(1, 8)));
}

TEST_F(WorkerCoreTest, AClientThatVanishesLeavesContentsOnly) {
  const std::string bytes(2000, 'x');
  {
    std::unique_ptr<TestClient> client = Open();
    client->Create(5, 1 << 20);
    client->InstallTransfer(1, 1, bytes);
    client->WaitDecision(1);
    client->SendBytes(1, bytes);
    EXPECT_TRUE(client->WaitCompleted(2));
    client->stream()->Close(absl::UnavailableError("killed"));
  }
  EXPECT_TRUE(WaitMemory(bytes.size()));
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.contents_size(), 1);
  EXPECT_EQ(state.contents(0).tenant(), "t1");
  EXPECT_EQ(state.free_bytes(), state.memory_bytes());
  ASSERT_EQ(state.sessions_size(), 1);
  EXPECT_EQ(state.sessions(0).storage_count(), 0u);
}

TEST_F(WorkerCoreTest, AClientThatGoesMidRunIsNoticedAtTheNextNode) {
  FakeStructure s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  for (int i = 0; i < 100; ++i) s.AddInPlace(x, y, 2);
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({1, 2}));
  client->Define(1, s.get());
  std::atomic<int> nodes{0};
  std::atomic<bool> go{false};
  device_.SetExecuteHook([&](const std::string&) {
    if (++nodes == 3) {
      while (!go) absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::OkStatus();
  });
  client->Run(1, {1, 2});
  while (nodes < 3) absl::SleepFor(absl::Milliseconds(1));
  client.reset();
  // The session is gone for housekeeping once its connection is reaped.
  while (core_->Snapshot().sessions(0).storage_bytes() > 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  go = true;
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_LE(nodes, 4);
}

TEST_F(WorkerCoreTest, AClientThatDoesNotReadBlocksNobodyElse) {
  // A client that opens its eyes only at the end.
  Grant(Lease("slow", "t1"));
  InProcessPair pair = MakeInProcessPair(2);
  core_->Attach(std::move(pair.worker));
  v1::ControlRequest hello;
  *hello.mutable_hello() = HelloFor("slow");
  ASSERT_TRUE(
      pair.client->Send(std::make_shared<v1::ControlRequest>(hello)).ok());
  std::vector<std::thread> feeders;
  feeders.emplace_back([&] {
    v1::ControlRequest create;
    create.mutable_ordered()->set_sequence(1);
    create.mutable_ordered()->mutable_create_storage()->set_storage(1);
    create.mutable_ordered()->mutable_create_storage()->set_size_bytes(6 << 20);
    pair.client->Send(std::make_shared<v1::ControlRequest>(create))
        .IgnoreError();
    for (uint64_t i = 2; i < 40; ++i) {
      v1::ControlRequest request;
      request.mutable_ordered()->set_sequence(i);
      v1::Read* read = request.mutable_ordered()->mutable_read();
      read->set_storage(1);
      read->set_version(1);
      read->mutable_view()->set_data_type(v1::DATA_TYPE_UINT8);
      read->mutable_view()->add_sizes(6 << 20);
      read->mutable_view()->add_strides(1);
      read->set_transfer_id(i);
      if (!pair.client->Send(std::make_shared<v1::ControlRequest>(request))
               .ok())
        return;
    }
  });
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  for (int i = 1; i < 50; ++i) {
    EXPECT_TRUE(other->WaitCompleted(other->Create(i, 8)));
  }
  pair.client.reset();
  for (std::thread& feeder : feeders) feeder.join();
  EXPECT_TRUE(WaitMemory(49 * 8));
}

TEST_F(WorkerCoreTest, ManySessionsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::unique_ptr<TestClient> client =
          Open("s" + std::to_string(t), "t" + std::to_string(t % 2));
      client->Define(1, AddTo());
      const std::string bytes = FloatBytes(Floats(500, 1));
      client->InstallTransfer(1, 1, bytes);
      if (client->WaitDecision(1).send()) client->SendBytes(1, bytes);
      client->InstallInline(2, FloatBytes({1, 1}));
      for (int i = 0; i < 100; ++i) {
        client->WaitCompleted(client->Run(1, {1, 2}));
      }
      EXPECT_EQ(client->Read(1, 2), (Floats{101, 101}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(WorkerCoreTest, ShutdownTellsEverybody) {
  std::unique_ptr<TestClient> client = Open();
  core_->Shutdown();
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "DRAINING");
  EXPECT_EQ(Refusal(HelloFor("s1")), "DRAINING");
}

TEST_F(WorkerCoreTest, ChangesAreAnnounced) {
  std::atomic<int> changes{0};
  core_->SetChangeListener([&] { ++changes; });
  std::unique_ptr<TestClient> client = Open();
  EXPECT_GE(changes, 1);
  const int before = changes;
  client.reset();
  for (int i = 0; i < 2000 && changes == before; ++i) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_GT(changes, before);
}

}  // namespace
}  // namespace djinn::worker
