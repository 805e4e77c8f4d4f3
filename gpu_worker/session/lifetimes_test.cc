// Tests how sessions end, and that they do not disturb each other.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

TEST_F(WorkerCoreTest, AnExpiredLeaseEndsTheSessionAndFreesItsMemory) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 4096)));
  clock_.Advance(absl::Seconds(59));
  Grant(Lease("s1", "t1"));  // renewed
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
  core_->Apply(v1::DesiredState());  // names no session, so drops none
  v1::DesiredState desired;
  desired.add_drop_session_ids("s1");
  core_->Apply(desired);
  EXPECT_EQ(ErrorReason(a->WaitClosed()), "SESSION_DROPPED");
  EXPECT_TRUE(b->WaitCompleted(b->Create(1, 8)));
}

TEST_F(WorkerCoreTest, ALeaseIsDroppedAndTheSessionsOthersStay) {
  std::unique_ptr<TestClient> first = Open("s1");
  EXPECT_TRUE(first->WaitCompleted(first->Create(1, 4096)));
  const v1::ClientHello hello = HelloFor("s1");
  v1::LeaseClaims other = Lease("s1", "t1");
  other.set_lease_id("other");
  other.set_virtual_device(1);
  Grant(other);
  std::unique_ptr<TestClient> second = Connect(HelloFor("s1"));
  EXPECT_TRUE(second->WaitCompleted(second->Create(1, 8)));
  v1::DesiredState desired;
  desired.add_drop_lease_ids("unknown");
  desired.add_drop_lease_ids("lease-s1");
  core_->Apply(desired);
  EXPECT_EQ(ErrorReason(first->WaitClosed()), "SESSION_DROPPED");
  EXPECT_TRUE(WaitUntil([&] { return core_->ledger().usage().used < 4096; }));
  EXPECT_EQ(Refusal(hello), "LEASE_UNKNOWN");
  EXPECT_TRUE(second->WaitCompleted(second->Create(2, 8)));
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.sessions_size(), 1);
  EXPECT_EQ(UncheckedClaims(state.sessions(0).lease()).lease_id(), "other");
  ASSERT_EQ(state.ended_leases_size(), 1);
  EXPECT_EQ(UncheckedClaims(state.ended_leases(0).lease()).lease_id(),
            "lease-s1");
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
    Break(client.get());
    // The state is kept while the client may resume.
    EXPECT_GT(core_->ledger().usage().used, uint64_t{1} << 20);
    clock_.Advance(absl::Seconds(16));
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
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  for (int i = 0; i < 100; ++i) s.AddInPlace(x, y, 2);
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({1, 2}));
  client->Define(1, s.get());
  NodeGate gate(&device_, 3);
  client->Run(1, {1, 2});
  gate.WaitReached(3);
  client.reset();
  EXPECT_TRUE(WaitUntil(
      [&] { return core_->Snapshot().sessions(0).storage_bytes() == 0; }));
  gate.Open();
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_LE(gate.nodes(), 4);
}

TEST_F(WorkerCoreTest, ClientThatDoesNotReadBlocksNoOther) {
  // This client reads nothing until the end.
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
  // The feeder still uses the client's stream.
  pair.client->Close(absl::OkStatus());
  for (std::thread& feeder : feeders) feeder.join();
  pair.client.reset();
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
  EXPECT_TRUE(WaitUntil([&] { return changes > before; }));
}

}  // namespace
}  // namespace djinn::worker
