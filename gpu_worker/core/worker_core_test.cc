// Tests Hellos, runs and the order of messages.
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

// Returns whether the worker reports a cache hit for a graph that the client
// defines.
bool DefinedBefore(TestClient* client) {
  client->Define(1, AddTo());
  return client
      ->WaitFor([](const v1::ControlResponse& r) { return r.has_admitted(); })
      .admitted()
      .cache_hit();
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

TEST_F(WorkerCoreTest, TheDeviceGivesBackUnusedMemoryNowAndThen) {
  EXPECT_TRUE(WaitUntil([this] { return device_.tidied() == 1; }));
  clock_.Advance(absl::Seconds(10));
  EXPECT_TRUE(WaitUntil([this] { return device_.tidied() == 2; }));
}

TEST_F(WorkerCoreTest, TellsWhatASessionUsesByClass) {
  const std::string bytes(2048, 'x');
  std::unique_ptr<TestClient> client = Open();
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes);
  client->InstallTransfer(2, 2, bytes);
  client->InstallInline(3, FloatBytes({1, 2}));
  client->InstallSeed(4, 7);
  EXPECT_TRUE(client->WaitCompleted(4));
  v1::WorkerState state = core_->Snapshot();
  EXPECT_TRUE(state.sessions(0).attached());
  v1::SessionUse use = state.sessions(0).use();
  EXPECT_EQ(use.contents().count(), 2u);
  EXPECT_EQ(use.contents().size_bytes(), 4096u);
  EXPECT_EQ(use.storages().count(), 1u);
  EXPECT_EQ(use.storages().size_bytes(), 8u);
  EXPECT_EQ(use.generators().count(), 1u);
  EXPECT_EQ(use.generators().size_bytes(), 8u);
  EXPECT_EQ(state.memory().content_bytes(), 2048u);
  EXPECT_EQ(state.memory().storage_bytes(), 16u);
  EXPECT_EQ(state.memory().idle_content_bytes(), 0u);
  EXPECT_EQ(state.content_cache().entries(), 1u);
  EXPECT_EQ(state.content_cache().size_bytes(), 2048u);
  EXPECT_EQ(state.content_cache().hits(), 1u);
  EXPECT_EQ(state.content_cache().misses(), 1u);

  // A storage that is written gets memory of its own.
  client->Define(1, AddTo());
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {2, 3})));
  state = core_->Snapshot();
  use = state.sessions(0).use();
  EXPECT_EQ(use.contents().count(), 1u);
  EXPECT_EQ(use.storages().count(), 2u);
  EXPECT_EQ(use.storages().size_bytes(), 2056u);
  EXPECT_EQ(use.graph_count(), 1u);
  EXPECT_EQ(use.outstanding(), 0u);
  EXPECT_EQ(use.outstanding_bytes(), 0u);
  EXPECT_EQ(state.plan_cache().entries(), 1u);
  EXPECT_EQ(state.plan_cache().misses(), 1u);
  EXPECT_GT(state.plan_cache().size_bytes(), 0u);
  EXPECT_EQ(state.executed().runs(), 1u);
  EXPECT_EQ(state.executed().nodes(), 1u);

  // An upload under way is an outstanding message.
  client->InstallTransfer(5, 3, std::string(3000, 'y'));
  client->WaitDecision(3);
  state = core_->Snapshot();
  EXPECT_EQ(state.memory().transfer_bytes(), 3000u);
  EXPECT_EQ(state.sessions(0).use().outstanding(), 1u);
  EXPECT_GT(state.sessions(0).use().outstanding_bytes(), 0u);
}

TEST_F(WorkerCoreTest, TheSecondSessionHitsTheGraphCache) {
  std::unique_ptr<TestClient> a = Open("s1");
  EXPECT_FALSE(DefinedBefore(a.get()));
  std::unique_ptr<TestClient> b = Open("s2");
  EXPECT_TRUE(DefinedBefore(b.get()));
}

TEST_F(WorkerCoreTest, GraphsOfOtherTenantsAreNotRevealed) {
  std::unique_ptr<TestClient> a = Open("s1");
  EXPECT_FALSE(DefinedBefore(a.get()));
  // The worker makes the plan again, so that its time reveals nothing either,
  // and keeps it once.
  std::unique_ptr<TestClient> b = Open("s2", "t2");
  EXPECT_FALSE(DefinedBefore(b.get()));
  EXPECT_EQ(core_->graphs().stats().hits, 0u);
  EXPECT_EQ(core_->Snapshot().plan_cache().entries(), 1u);
  std::unique_ptr<TestClient> c = Open("s3", "t2");
  EXPECT_TRUE(DefinedBefore(c.get()));
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
  hello.set_protocol_version(7);
  EXPECT_EQ(Refusal(hello), "PROTOCOL_VERSION");
  std::unique_ptr<TestClient> first = Open();
  EXPECT_TRUE(first->WaitCompleted(first->Create(2, 8)));
  EXPECT_EQ(Refusal(HelloFor("s1")), "LEASE_IN_USE");
  // None of this disturbed the session that holds the lease.
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

TEST_F(WorkerCoreTest, SilentConnectionsGiveUpTheirPlace) {
  WorkerCoreOptions options;
  options.max_connections = 2;
  Start(options);
  const auto attach = [this] {
    InProcessPair pair = MakeInProcessPair();
    core_->Attach(std::move(pair.worker));
    return std::make_unique<TestClient>(std::move(pair.client));
  };
  std::unique_ptr<TestClient> served = Open();
  std::unique_ptr<TestClient> silent = attach();
  std::unique_ptr<TestClient> other = Open("s2");
  EXPECT_EQ(ErrorReason(silent->WaitClosed()), "TOO_MANY_CONNECTIONS");
  // All connections have sent a Hello.
  EXPECT_EQ(ErrorReason(attach()->WaitClosed()), "TOO_MANY_CONNECTIONS");
  EXPECT_TRUE(served->WaitCompleted(served->Create(1, 8)));
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 8)));
}

// A stream whose peer does not take the closing status until it is released.
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
  EXPECT_TRUE(WaitUntil([&] { return state.closes > 0; }));
  // A later connection is closed in a later round.
  {
    InProcessPair pair = MakeInProcessPair();
    core_->Attach(std::move(pair.worker));
    TestClient client(std::move(pair.client));
    clock_.Advance(absl::Seconds(11));
    EXPECT_FALSE(client.WaitClosed().ok());
  }
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

TEST_F(WorkerCoreTest, ResizeKeepsThePrefix) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Create(1, 16);
  EXPECT_EQ(client->Read(1, 4), (Floats{1, 2, 0, 0}));
  client->Create(1, 4);
  EXPECT_EQ(client->Read(1, 1), (Floats{1}));
}

TEST_F(WorkerCoreTest, ARefusedGraphPoisonsWhatItsRunsWouldWrite) {
  FakeGraph s;
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
  FakeGraph s;
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
  FakeGraph s;
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

TEST_F(WorkerCoreTest, BytesInAGeneratorAreItsState) {
  FakeGraph s;
  s.Draw(s.Generator(), 2);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, s.get());
  client->InstallSeed(1, 100);
  const uint64_t state = 500;
  client->InstallInline(
      1, std::string(reinterpret_cast<const char*>(&state), sizeof(state)));
  client->Run(1, {1, 2});
  EXPECT_EQ(client->Read(2, 2), (Floats{500, 501}));
  EXPECT_EQ(core_->Snapshot().sessions(0).use().generators().count(), 1u);

  // Invalid states are refused, and the generator keeps the one that it has.
  client->InstallInline(1, "short");
  client->InstallTransfer(1, 1, std::string(2048, 'x'));
  EXPECT_EQ(client->WaitDecision(1).refused().reason(), "INVALID_GENERATOR");
  client->Run(1, {1, 3});
  EXPECT_EQ(client->Read(3, 2), (Floats{502, 503}));
  EXPECT_EQ(core_->Snapshot().sessions(0).use().generators().count(), 1u);
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
  FakeGraph s;
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

TEST_F(WorkerCoreTest, SaysOnceThatTheDeviceIsBroken) {
  std::atomic<int> told{0};
  std::promise<absl::Status> why;
  WorkerCoreOptions options;
  options.device_broken = [&](const absl::Status& status) {
    if (++told == 1) why.set_value(status);
  };
  Start(options);
  EXPECT_EQ(told, 0);
  device_.Break(absl::UnavailableError("it asserted"));
  EXPECT_EQ(why.get_future().get().message(), "it asserted");
  core_->Shutdown();
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace djinn::worker
