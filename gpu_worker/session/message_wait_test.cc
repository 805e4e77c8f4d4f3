// Tests what the coordinator learns of why a session's next message is not
// executed.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/base/proto_duration.h"
#include "common/hash/content_proof.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "gpu_worker/store/disk_store.h"
#include "gpu_worker/testing/batch_fixture.h"
#include "gpu_worker/testing/core_fixture.h"
#include "gpu_worker/testing/core_peers.h"

namespace djinn::worker {
namespace {

using Wait = v1::MessageWait;

Wait WaitOf(const WorkerCore& core, const std::string& session) {
  return HeldBy(core, session).wait();
}

absl::Duration Waited(const Wait& wait) {
  return FromProtoDuration(wait.waited());
}

class MessageWaitTest : public WorkerCoreTest {
 protected:
  Wait WaitOf(const std::string& session) {
    return worker::WaitOf(*core_, session);
  }
  bool WaitsFor(Wait::For what, const std::string& session = "s1") {
    return WaitUntil([&] { return WaitOf(session).what() == what; });
  }

  const std::string bytes_ = FloatBytes(Floats(5000, 3));
};

TEST_F(MessageWaitTest, IdleSessionHasNoWait) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  EXPECT_TRUE(WaitsFor(Wait::FOR_UNSPECIFIED));
  EXPECT_FALSE(core_->Snapshot().sessions(0).has_wait());
}

TEST_F(MessageWaitTest, ATurnSaysWhoIsServed) {
  std::unique_ptr<TestClient> first = Open("first-session", "t1");
  std::unique_ptr<TestClient> second = Open("second", "t2");
  for (TestClient* const client : {first.get(), second.get()}) {
    client->Create(1, 8);
    client->Define(1, Fill());
    client->Read(1, 2);
  }
  NodeGate gate(&device_, 1);
  first->Run(1, {1}, {1});
  gate.WaitReached(1);
  second->Run(1, {1}, {1});
  EXPECT_TRUE(WaitsFor(Wait::TURN, "second"));
  clock_.Advance(absl::Seconds(2));
  const Wait wait = WaitOf("second");
  EXPECT_EQ(Waited(wait), absl::Seconds(2));
  EXPECT_EQ(wait.served_tenant(), "t1");
  EXPECT_EQ(wait.served_session_id(), log::ShortId("first-session"));
  // The duration of that run is unknown.
  EXPECT_FALSE(wait.has_ahead());
  // The session in service waits for nothing.
  EXPECT_EQ(WaitOf("first-session").what(), Wait::FOR_UNSPECIFIED);
  gate.Open();
  EXPECT_EQ(second->Read(1, 2), (Floats{1, 1}));
  EXPECT_TRUE(WaitsFor(Wait::FOR_UNSPECIFIED, "second"));
}

TEST_F(MessageWaitTest, ATurnSaysWhatIsExpectedAhead) {
  device_.SetExecuteHook([this](const std::string&) {
    clock_.Advance(absl::Seconds(3));
    return absl::OkStatus();
  });
  v1::LeaseClaims timed = Lease("timed", "t1");
  *timed.mutable_urgency()->mutable_run_deadline() =
      ToProtoDuration(absl::Seconds(100));
  Grant(timed, 100'000);
  std::unique_ptr<TestClient> first = Connect(HelloFor("timed"));
  first->Create(1, 8);
  first->Define(1, Fill());
  // The second run shows how long it takes.
  for (int i = 0; i < 2; ++i) first->Run(1, {1}, {1});
  EXPECT_EQ(first->Read(1, 2), (Floats{1, 1}));
  std::unique_ptr<TestClient> second = Open("second", "t2");
  NodeGate gate(&device_, 1);
  first->Run(1, {1}, {1});
  gate.WaitReached(1);
  second->Create(1, 8);
  EXPECT_TRUE(WaitsFor(Wait::TURN, "second"));
  EXPECT_EQ(FromProtoDuration(WaitOf("second").ahead()), absl::Seconds(3));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(FromProtoDuration(WaitOf("second").ahead()), absl::Seconds(2));
}

TEST_F(MessageWaitTest, AnUploadWaitsForItsBytes) {
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).send());
  EXPECT_TRUE(WaitsFor(Wait::BYTES));
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(Waited(WaitOf("s1")), absl::Seconds(4));
  client->SendBytes(1, bytes_);
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(WaitsFor(Wait::FOR_UNSPECIFIED));
}

TEST_F(MessageWaitTest, AnUploadWaitsForItsProof) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->InstallTransfer(1, 1, bytes_);
  const std::string key = client->WaitDecision(1).prove().key();
  EXPECT_TRUE(WaitsFor(Wait::BYTES));
  client->SendProof(1, ProveContent(key, bytes_));
  EXPECT_TRUE(client->WaitOutcome(1).send());
  // Then the session waits for the bytes themselves.
  EXPECT_TRUE(WaitsFor(Wait::BYTES));
  client->SendBytes(1, bytes_);
  EXPECT_TRUE(client->WaitCompleted(install));
}

TEST_F(MessageWaitTest, ARunWaitsForItsGraph) {
  WorkerCoreOptions options;
  options.graph_cache.max_plans = 1;
  Start(options);
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, AddTo());
  client->Define(2, Fill());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({10, 20}));
  client->Run(1, {1, 2});
  EXPECT_TRUE(WaitsFor(Wait::GRAPH));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Waited(WaitOf("s1")), absl::Seconds(1));
  client->Supply(1, AddTo());
  EXPECT_EQ(client->Read(1, 2), (Floats{11, 22}));
  EXPECT_TRUE(WaitsFor(Wait::FOR_UNSPECIFIED));
}

TEST_F(MessageWaitTest, SessionWithoutCreditWaitsForNoTurn) {
  v1::LeaseClaims poor = Lease("poor", "t1");
  *poor.mutable_credits()->mutable_device_time() =
      ToProtoDuration(absl::ZeroDuration());
  Grant(poor);
  std::unique_ptr<TestClient> client = Connect(HelloFor("poor"));
  client->Create(1, 8);
  EXPECT_TRUE(WaitUntil([&] {
    const v1::WorkerState state = core_->Snapshot();
    return state.sessions(0).out_of_credit() && !state.sessions(0).has_wait();
  }));
}

class DiskWaitTest : public MessageWaitTest {
 protected:
  DiskWaitTest() {
    std::filesystem::remove_all(folder_);
    Restart();
  }
  void Restart() {
    core_.reset();
    absl::StatusOr<std::unique_ptr<DiskStore>> store = DiskStore::Open(
        {.directory = folder_, .limit_bytes = 64 << 20}, &clock_);
    ASSERT_TRUE(store.ok()) << store.status();
    WorkerCoreOptions options;
    options.store = *std::move(store);
    Start(options);
  }
  // Returns the only file of a content.
  std::filesystem::path File() {
    std::filesystem::path file;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file() && entry.file_size() > 0) file = entry.path();
    }
    return file;
  }

  const std::string folder_ = testing::TempDir() + "/disk";
  const std::string large_ = FloatBytes(Floats(300'000, 7));
};

TEST_F(DiskWaitTest, AnUploadWaitsForTheDisk) {
  {
    std::unique_ptr<TestClient> client = Open();
    client->InstallTransfer(1, 1, large_);
    EXPECT_TRUE(client->WaitDecision(1).send());
    client->SendBytes(1, large_);
    EXPECT_TRUE(client->WaitCompleted(1));
    EXPECT_TRUE(WaitUntil([&] {
      clock_.Advance(absl::Seconds(1));
      return core_->Snapshot().disk().cache().entries() == 1;
    }));
  }
  Restart();
  // The pipe stands for a slow disk: reading blocks until the test writes to
  // it.
  const std::filesystem::path file = File();
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  std::unique_ptr<TestClient> client = Open();
  client->InstallTransfer(1, 1, large_);
  EXPECT_TRUE(WaitsFor(Wait::CONTENT));
  const int pipe = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  close(pipe);
  EXPECT_TRUE(client->WaitDecision(1).send());
  EXPECT_TRUE(WaitsFor(Wait::BYTES));
}

class PullWaitTest : public TwoCoresTest {};

TEST_F(PullWaitTest, AnInstallWaitsForAnotherWorkersValue) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  v1::Pull pull;
  pull.set_worker_id("w0");
  pull.set_worker_incarnation(core_->incarnation());
  pull.set_ticket(Ticket('a'));
  pull.set_size_bytes(8);
  there->InstallPull(5, pull);
  EXPECT_TRUE(
      WaitUntil([&] { return WaitOf(*other_, "s1").what() == Wait::VALUE; }));
  clock_.Advance(absl::Seconds(5));
  const Wait wait = WaitOf(*other_, "s1");
  EXPECT_EQ(wait.worker_id(), "w0");
  EXPECT_EQ(Waited(wait), absl::Seconds(5));
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  EXPECT_EQ(there->Read(5, 2), (Floats{1, 2}));
  EXPECT_TRUE(WaitUntil(
      [&] { return WaitOf(*other_, "s1").what() == Wait::FOR_UNSPECIFIED; }));
}

TEST_F(PullWaitTest, ASessionThatEntersWaitsForAllOfIt) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  v1::Pull state;
  state.set_worker_id("w0");
  state.set_worker_incarnation(core_->incarnation());
  state.set_ticket(Ticket('a'));
  state.set_size_bytes(100);
  there->Enter(*here, state);
  EXPECT_TRUE(
      WaitUntil([&] { return WaitOf(*other_, "s1").what() == Wait::VALUE; }));
  EXPECT_EQ(WaitOf(*other_, "s1").worker_id(), "w0");
}

// Either run draws 8 of 16 MiB, and holds them up to its last node.
TEST_F(MessageWaitTest, PreemptingRunWaitsForRoom) {
  constexpr uint64_t kSum = 1, kGenerator = 10, kDrawn = 11;
  constexpr int64_t kCount = 1 << 20;
  FakeGraph s;
  const uint32_t sum = s.Bound();
  const uint32_t generator = s.Generator();
  const uint32_t first = s.Draw(generator, kCount);
  const uint32_t second = s.Draw(generator, kCount);
  for (int i = 0; i < 3; ++i) s.AddInPlace(sum, i == 1 ? second : first, 1);
  std::map<std::string, std::unique_ptr<TestClient>> clients;
  for (const auto& [session, priority] :
       {std::pair("batch", v1::PRIORITY_CLASS_BATCH),
        std::pair("quick", v1::PRIORITY_CLASS_INTERACTIVE)}) {
    v1::LeaseClaims lease = Lease(session, "t1");
    lease.mutable_urgency()->set_priority_class(priority);
    lease.mutable_limits()->set_memory_bytes(12 << 20);
    Grant(lease, 100'000);
    auto client = Connect(HelloFor(session));
    client->Create(kSum, 4);
    client->InstallSeed(kGenerator, 3);
    client->Define(3, s.get());
    client->Read(kSum, 1);
    clients[session] = std::move(client);
  }
  const auto run = [&](const std::string& session) {
    clients[session]->Run(3, {kSum, kGenerator, kDrawn, kDrawn + 1}, {},
                          {2, 3});
  };
  int nodes = 0;
  Wait before, after;
  device_.SetExecuteHook([&](const std::string&) {
    ++nodes;
    if (nodes == 3) {
      run("quick");
      EXPECT_TRUE(WaitReceived(2, clients["quick"].get()));
      before = WaitOf("quick");
    }
    clock_.Advance(absl::Seconds(1));
    if (nodes == 5) after = WaitOf("quick");
    return absl::OkStatus();
  });
  run("batch");
  EXPECT_EQ(clients["batch"]->Read(kSum, 1).size(), 1u);
  EXPECT_EQ(clients["quick"]->Read(kSum, 1).size(), 1u);
  EXPECT_EQ(before.what(), Wait::TURN);
  EXPECT_EQ(after.what(), Wait::ROOM);
  // The wait began between the two nodes where there was no room.
  EXPECT_EQ(Waited(after), absl::Seconds(2));
  core_->Shutdown();
}

class BatchWaitTest : public BatchTest {};

TEST_F(BatchWaitTest, ARunWaitsForBatch) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  const uint64_t first = RunAlone(a);
  EXPECT_EQ(WaitOf(*core_, "a").what(), Wait::BATCH);
  EXPECT_EQ(WaitOf(*core_, "b").what(), Wait::FOR_UNSPECIFIED);
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(Waited(WaitOf(*core_, "a")), absl::Milliseconds(100));
  const uint64_t second = RunNext(b);
  a->WaitRead(first);
  b->WaitRead(second);
  EXPECT_TRUE(WaitUntil(
      [this] { return WaitOf(*core_, "a").what() == Wait::FOR_UNSPECIFIED; }));
}

}  // namespace
}  // namespace djinn::worker
