// Tests streams that break and are resumed, and sessions that are cancelled.
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/metrics/exposition.h"
#include "gmock/gmock.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

srg::TensorView Bytes(size_t count) {
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(count)};
  view.strides = {1};
  return view;
}

TEST_F(WorkerCoreTest, ABrokenStreamIsResumedWithEverythingOnce) {
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, AddTo());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({10, 20}));
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1, 2})));
  Break(client.get());
  clock_.Advance(absl::Seconds(3));
  // The worker has not received anything that was sent since the break.
  Resume(client.get());
  EXPECT_EQ(client->last_hello().received_sequence(), 4u);
  client->Run(1, {1, 2});
  EXPECT_EQ(client->Read(1, 2), (Floats{21, 42}));
  EXPECT_EQ(core_->detached_sessions(), 0u);
  EXPECT_THAT(
      Metrics(),
      testing::AllOf(
          testing::HasSubstr("djinn_recovery_duration_seconds_count{"
                             "kind=\"stream_resumed\",stage=\"total\"} 1\n"),
          testing::HasSubstr("djinn_recovery_duration_seconds_sum{"
                             "kind=\"stream_resumed\",stage=\"total\"} 3\n")));
}

TEST_F(WorkerCoreTest, CallsThatAreRematerializedAreCounted) {
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, AddTo());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({10, 20}));
  client->SayRecomputed(3);
  client->Run(1, {1, 2});
  client->SayRecomputed(0);
  client->Run(1, {1, 2});
  EXPECT_EQ(client->Read(1, 2), (Floats{21, 42}));
  EXPECT_THAT(Metrics(),
              testing::HasSubstr("djinn_recomputed_nodes_total 3\n"));
}

TEST_F(WorkerCoreTest, TheExecutorGoesOnWithoutAStream) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  for (int i = 0; i < 3; ++i) s.AddInPlace(x, y, 1);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallInline(1, FloatBytes({0}));
  client->InstallInline(2, FloatBytes({1}));
  NodeGate gate(&device_, 2);
  client->Run(1, {1, 2});
  const uint64_t read = client->SendRead(1, FakeGraph::View(0, 1));
  gate.WaitReached(2);
  // The read must be there before the network breaks.
  EXPECT_TRUE(WaitUntil(
      [&] { return core_->Snapshot().sessions(0).use().outstanding() == 2; }));
  Break(client.get());
  gate.Open();
  Resume(client.get());
  EXPECT_EQ(FloatsOf(client->WaitRead(read).value()), (Floats{3}));
  EXPECT_EQ(client->last_hello().received_sequence(), read);
}

TEST_F(WorkerCoreTest, RepliesComeAgainUntilTheyAreAcknowledged) {
  std::unique_ptr<TestClient> client = Open();
  client->KeepSilent();
  const std::string bytes(2 * kBulkChunkBytes + 5, 'v');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes);
  client->WaitRead(client->SendRead(1, Bytes(bytes.size()), 7));
  EXPECT_TRUE(client->WaitBulk(7, bytes.size()) == bytes);
  // A later write does not change the kept value.
  client->Define(1, Fill());
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1}, {5})));
  const uint64_t shared = core_->ledger().usage().used;
  Break(client.get());
  Resume(client.get());
  EXPECT_TRUE(client->WaitBulkReceived(7, 2 * bytes.size()));
  EXPECT_TRUE(client->WaitBulk(7, 2 * bytes.size()) == bytes);
  EXPECT_GE(client->repeated(), 3);
  client->Free({1});
  client->Acknowledge();
  // Only the tenant's content remains.
  EXPECT_TRUE(WaitMemory(bytes.size()));
  EXPECT_EQ(shared, 2 * bytes.size());
  const int repeated = client->repeated();
  Break(client.get());
  Resume(client.get());
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 8)));
  EXPECT_EQ(client->repeated(), repeated);
}

TEST_F(WorkerCoreTest, UnacknowledgedRepliesPauseTheSession) {
  std::unique_ptr<TestClient> client = Open();
  client->KeepSilent();
  client->Create(1, 8 << 20);
  client->SendRead(1, Bytes(8 << 20), 7);
  const uint64_t next = client->InstallInline(2, "");
  client->WaitBulk(7, 8 << 20);
  EXPECT_LT(client->completed(), next);
  client->Acknowledge();
  EXPECT_TRUE(client->WaitCompleted(next));
}

TEST_F(WorkerCoreTest, AnUploadGoesOnWhereItWasCut) {
  std::unique_ptr<TestClient> client = Open();
  const std::string bytes(4 * kBulkChunkBytes + 9, 'u');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  // The chunks are out of order, with a gap.
  client->SendBytes(1, bytes, 0, kBulkChunkBytes);
  client->SendBytes(1, bytes, 2 * kBulkChunkBytes, kBulkChunkBytes);
  // A break loses chunks under way; the client sends lost ones again.
  EXPECT_TRUE(WaitUntil([&] {
    client->Break();
    Resume(client.get());
    const uint64_t received = client->last_hello().transfer().received_bytes();
    if (received == kBulkChunkBytes) return true;
    client->SendBytes(1, bytes, 0, kBulkChunkBytes);
    client->SendBytes(1, bytes, 2 * kBulkChunkBytes, kBulkChunkBytes);
    return false;
  }));
  EXPECT_EQ(client->last_hello().transfer().transfer_id(), 1u);
  // The third chunk arrives a second time.
  client->SendBytes(1, bytes, kBulkChunkBytes);
  EXPECT_TRUE(client->WaitCompleted(1));
  client->SendRead(1, Bytes(bytes.size()), 5);
  EXPECT_TRUE(client->WaitBulk(5, bytes.size()) == bytes);
}

TEST_F(WorkerCoreTest, AStreamNotYetNoticedAsBrokenIsReplaced) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  InProcessPair pair = MakeInProcessPair();
  core_->Attach(std::move(pair.worker));
  TestClient second(std::move(pair.client));
  v1::ClientHello hello = HelloFor("s1");
  hello.mutable_resume()->set_sent_sequence(1);
  second.Hello(hello);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "STREAM_REPLACED");
  second.SkipSequence();
  EXPECT_TRUE(second.WaitCompleted(second.Create(2, 8)));
}

TEST_F(WorkerCoreTest, ResumesThatCannotBeAreRefusedAndChangeNothing) {
  std::unique_ptr<TestClient> client = Open();
  client->Create(1, 8);
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 8)));
  v1::ClientHello hello = HelloFor("s1");
  hello.mutable_resume()->set_sent_sequence(1);
  EXPECT_EQ(Refusal(hello), "PROTOCOL_VIOLATION");
  hello.mutable_resume()->set_sent_sequence(2);
  hello.mutable_resume()->set_acknowledged_reply(9);
  EXPECT_EQ(Refusal(hello), "PROTOCOL_VIOLATION");
  EXPECT_EQ(Refusal(HelloFor("s1")), "LEASE_IN_USE");
  EXPECT_TRUE(client->WaitCompleted(client->Create(3, 8)));
}

TEST_F(WorkerCoreTest, ASessionIsKeptForTheResumeTimeoutOnly) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 4096)));
  Break(client.get());
  EXPECT_EQ(Refusal(HelloFor("s1")), "LEASE_IN_USE");
  clock_.Advance(absl::Seconds(14));
  EXPECT_EQ(core_->detached_sessions(), 1u);
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(WaitMemory(0));
  v1::ClientHello hello = HelloFor("s1");
  hello.mutable_resume()->set_sent_sequence(1);
  EXPECT_EQ(Refusal(hello), "SESSION_LOST");
}

TEST_F(WorkerCoreTest, ASessionWhoseClientEndedIsKeptForASecond) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 4096)));
  client->stream()->Close(MakeError(absl::StatusCode::kUnavailable,
                                    "CLIENT_GONE",
                                    "the client's process ended"));
  EXPECT_TRUE(WaitUntil([this] { return core_->detached_sessions() > 0; }));
  clock_.Advance(absl::Milliseconds(900));
  EXPECT_EQ(core_->detached_sessions(), 1u);
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(WaitMemory(0));
}

// The fixture's device has 16 MiB, and a session may take 8.
constexpr uint64_t kHalf = 8 << 20;

TEST_F(WorkerCoreTest, ALostSessionGivesItsMemoryToOneThatNeedsIt) {
  std::unique_ptr<TestClient> gone = Open("gone");
  std::unique_ptr<TestClient> other = Open("other");
  std::unique_ptr<TestClient> asking = Open("asking", "t2");
  EXPECT_TRUE(gone->WaitCompleted(gone->Create(1, kHalf)));
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, kHalf)));
  Break(gone.get());
  clock_.Advance(absl::Milliseconds(900));
  asking->Create(1, 4096);
  EXPECT_EQ(asking->ReadError(1).reason(), "DEVICE_MEMORY");
  EXPECT_EQ(core_->Snapshot().free_bytes(), 0u);
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(
      WaitUntil([this] { return core_->Snapshot().free_bytes() == kHalf; }));
  EXPECT_EQ(core_->detached_sessions(), 1u) << "nobody has asked yet";
  asking->Create(2, kHalf - 4096);
  EXPECT_EQ(asking->ReadError(2).reason(), "");
  EXPECT_EQ(core_->detached_sessions(), 0u);
  // The client that comes back after all recovers as from a lost worker.
  v1::ClientHello hello = HelloFor("gone");
  hello.mutable_resume()->set_sent_sequence(1);
  EXPECT_EQ(Refusal(hello), "SESSION_LOST");
  EXPECT_TRUE(other->WaitCompleted(other->Free({1})));
}

TEST_F(WorkerCoreTest, LostSessionsAreNotEndedForMemoryThatTheyDoNotHave) {
  std::unique_ptr<TestClient> gone = Open("gone");
  std::unique_ptr<TestClient> other = Open("other");
  std::unique_ptr<TestClient> asking = Open("asking", "t2");
  EXPECT_TRUE(gone->WaitCompleted(gone->Create(1, 4096)));
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, kHalf)));
  EXPECT_TRUE(asking->WaitCompleted(asking->Create(1, 4096)));
  Break(gone.get());
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(WaitUntil(
      [this] { return core_->Snapshot().free_bytes() == kHalf - 4096; }));
  std::unique_ptr<TestClient> more = Open("more", "t2");
  // One byte more than there would be.
  more->Create(1, kHalf - 4095);
  EXPECT_EQ(more->ReadError(1).reason(), "DEVICE_MEMORY");
  EXPECT_EQ(core_->detached_sessions(), 1u);
  more->Create(2, kHalf - 8191);
  EXPECT_EQ(more->ReadError(2).reason(), "");
  EXPECT_EQ(core_->detached_sessions(), 0u);
}

TEST_F(WorkerCoreTest, ALostSessionThatResumesIsLostNoMore) {
  std::unique_ptr<TestClient> back = Open("back");
  std::unique_ptr<TestClient> other = Open("other");
  EXPECT_TRUE(back->WaitCompleted(back->Create(1, kHalf)));
  Break(back.get());
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(WaitUntil(
      [this] { return core_->Snapshot().free_bytes() == 2 * kHalf; }));
  Resume(back.get(), "back");
  EXPECT_EQ(core_->Snapshot().free_bytes(), kHalf);
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, kHalf)));
  std::unique_ptr<TestClient> asking = Open("asking", "t2");
  asking->Create(1, 4096);
  EXPECT_EQ(asking->ReadError(1).reason(), "DEVICE_MEMORY");
  EXPECT_TRUE(back->WaitCompleted(back->Free({1})));
}

TEST_F(WorkerCoreTest, LostSessionGivesUpItsPartOfTheTenantsCap) {
  constexpr uint64_t kCap = kHalf / 2;
  const auto open = [&](const std::string& session) {
    v1::LeaseClaims lease = Lease(session, "t1");
    lease.mutable_tenant_limits()->set_memory_bytes(kCap);
    lease.mutable_tenant_limits()->set_max_outstanding(256);
    lease.mutable_tenant_limits()->set_max_outstanding_bytes(1 << 20);
    Grant(lease);
    return Connect(HelloFor(session));
  };
  std::unique_ptr<TestClient> gone = open("gone");
  EXPECT_TRUE(gone->WaitCompleted(gone->Create(1, kCap - 4096)));
  std::unique_ptr<TestClient> asking = open("asking");
  std::unique_ptr<TestClient> other = Open("other", "t2");
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 4096)));
  Break(gone.get());
  Break(other.get());
  clock_.Advance(absl::Milliseconds(900));
  asking->Create(1, 8192);
  EXPECT_EQ(asking->ReadError(1).reason(), "TENANT_MEMORY");
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(WaitUntil(
      [this] { return core_->Snapshot().free_bytes() == 2 * kHalf; }));
  // More than the end of the session would free.
  asking->Create(2, kCap + 1);
  EXPECT_EQ(asking->ReadError(2).reason(), "TENANT_MEMORY");
  EXPECT_EQ(core_->detached_sessions(), 2u);
  asking->Create(3, 8192);
  EXPECT_EQ(asking->ReadError(3).reason(), "");
  EXPECT_EQ(core_->detached_sessions(), 1u) << "the other tenant's stays";
}

TEST_F(WorkerCoreTest, ALostSessionThatNeedsMemoryDoesNotEndItself) {
  std::unique_ptr<TestClient> first = Open("first");
  std::unique_ptr<TestClient> second = Open("second");
  std::unique_ptr<TestClient> third = Open("third");
  EXPECT_TRUE(first->WaitCompleted(first->Create(1, kHalf)));
  EXPECT_TRUE(second->WaitCompleted(second->Create(1, kHalf - 8192)));
  EXPECT_TRUE(third->WaitCompleted(third->Create(1, 1024)));
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.AddInPlace(x, x, 2);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Create(2, 4096);
  NodeGate gate(&device_, 1);
  client->Run(1, {1});
  client->Create(3, 7168);
  gate.WaitReached(1);
  Break(client.get());
  Break(third.get());
  EXPECT_TRUE(WaitUntil([this] { return core_->detached_sessions() == 2; }));
  clock_.Advance(absl::Seconds(2));
  // The third session's memory counts as free, but not that of the one that is
  // executing, which cannot be ended either.
  EXPECT_TRUE(WaitUntil(
      [this] { return core_->Snapshot().free_bytes() == 8192 - 4096 - 8; }));
  gate.Open();
  Resume(client.get());
  EXPECT_EQ(client->ReadError(3).reason(), "DEVICE_MEMORY");
  EXPECT_EQ(client->Read(1, 2), (Floats{2, 4}));
}

TEST_F(WorkerCoreTest, TheCoordinatorDropsADetachedSessionAtOnce) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 4096)));
  Break(client.get());
  v1::DesiredState desired;
  desired.add_drop_session_ids("s1");
  core_->Apply(desired);
  EXPECT_EQ(core_->detached_sessions(), 0u);
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(WorkerCoreTest, ACancelStopsAtTheNextNodeAndFreesEverything) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  for (int i = 0; i < 100; ++i) s.AddInPlace(x, y, 2);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({1, 2}));
  NodeGate gate(&device_, 3);
  client->Run(1, {1, 2});
  client->Create(3, 4096);
  client->Run(1, {1, 2});
  gate.WaitReached(3);
  EXPECT_TRUE(WaitUntil([&] { return core_->Snapshot().queued_runs() == 2; }));
  client->SendCancel();
  // The worker ignores any message after the cancellation.
  client->Free({77});
  // The first run is at the gate: only the cancellation removes the second.
  EXPECT_TRUE(WaitUntil([&] { return core_->Snapshot().queued_runs() == 1; }));
  gate.Open();
  const v1::ControlResponse last = client->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_cancelled(); });
  EXPECT_EQ(last.completed_sequence(), 3u);
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_LE(gate.nodes(), 100);
  client->Break();
  EXPECT_TRUE(WaitUntil([&] { return Refusal(HelloFor("s2")) != ""; }));
  EXPECT_EQ(core_->detached_sessions(), 0u);
}

// An error would look like the operator's, and hide the reason why the session
// ended.
TEST_F(WorkerCoreTest, ARunThatIsLeftOutSaysNothingOfShapes) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.AddInPlace(x, x, 2);
  s.Nonzero(x, 2);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallInline(1, FloatBytes({1, 2}));
  device_.SetExecuteHook([this](const std::string&) {
    v1::DesiredState desired;
    desired.add_drop_session_ids("s1");
    core_->Apply(desired);
    return absl::OkStatus();
  });
  client->Run(1, {1, 2});
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "SESSION_DROPPED");
  EXPECT_FALSE(client
                   ->WaitFor([](const v1::ControlResponse& r) {
                     return r.has_metadata();
                   })
                   .has_metadata());
}

}  // namespace
}  // namespace djinn::worker
