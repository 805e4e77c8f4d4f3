// Tests who gets the device when: weights of tenants, priorities of sessions.
#include <algorithm>
#include <memory>
#include <string>

#include "common/base/proto_duration.h"
#include "gpu_worker/testing/batch_fixture.h"

namespace djinn::worker {
namespace {

// A third tenant's first run, the plug, holds the device until everything that
// the other sessions sent waits. Letters of their operators tell the sessions'
// runs apart. Every node takes a second.
class TurnsTest : public BatchTest {
 protected:
  TurnsTest() { Plug(); }

  std::unique_ptr<TestClient> OpenWith(const v1::LeaseClaims& lease) {
    Grant(lease, 100'000);
    return Connect(HelloFor(lease.session_id()));
  }
  // Defines the graph as graph 1, and creates storages for it.
  static void Prepare(const srg::Graph& graph, TestClient* client) {
    client->Create(1, 8);
    client->Create(2, 8);
    client->Define(1, graph);
  }
  static uint64_t RunFills(int count, TestClient* client) {
    for (int i = 1; i < count; ++i) client->Run(1, {1}, {1});
    return client->Run(1, {1}, {1});
  }
  static uint64_t RunAdds(int count, TestClient* client) {
    for (int i = 1; i < count; ++i) client->Run(1, {1, 2});
    return client->Run(1, {1, 2});
  }
};

int64_t Fills(const std::string& order) {
  return std::count(order.begin(), order.end(), 'f');
}

TEST_F(TurnsTest, WeightsOfTenantsAreHonoured) {
  v1::LeaseClaims heavy = Lease("s1", "t1");
  heavy.set_weight(3);
  std::unique_ptr<TestClient> a = OpenWith(heavy);
  std::unique_ptr<TestClient> b = OpenWith(Lease("s2", "t2"));
  Prepare(Fill(), a.get());
  Prepare(AddTo(), b.get());
  const uint64_t last_a = RunFills(40, a.get());
  const uint64_t last_b = RunAdds(40, b.get());
  ReleaseWith(81);
  EXPECT_TRUE(a->WaitCompleted(last_a));
  EXPECT_TRUE(b->WaitCompleted(last_b));
  // Each second counts over the tenant's weight.
  EXPECT_NEAR(Fills(Order().substr(0, 40)), 30, 1);
}

TEST_F(TurnsTest, ANewRevisionChangesTheWeight) {
  v1::LeaseClaims lease = Lease("s1", "t1");
  std::unique_ptr<TestClient> a = OpenWith(lease);
  std::unique_ptr<TestClient> b = OpenWith(Lease("s2", "t2"));
  Prepare(Fill(), a.get());
  Prepare(AddTo(), b.get());
  const uint64_t last_a = RunFills(40, a.get());
  const uint64_t last_b = RunAdds(40, b.get());
  lease.set_weight(3);
  Grant(lease, 100'000);
  ReleaseWith(81);
  EXPECT_TRUE(a->WaitCompleted(last_a));
  EXPECT_TRUE(b->WaitCompleted(last_b));
  EXPECT_NEAR(Fills(Order().substr(0, 40)), 30, 1);
}

TEST_F(TurnsTest, SessionsOfATenantShareWhatItGets) {
  std::vector<std::unique_ptr<TestClient>> many;
  std::vector<uint64_t> last;
  for (int i = 0; i < 4; ++i) {
    many.push_back(OpenWith(Lease("many" + std::to_string(i), "t1")));
    Prepare(Fill(), many.back().get());
    last.push_back(RunFills(10, many.back().get()));
  }
  std::unique_ptr<TestClient> one = OpenWith(Lease("one", "t2"));
  Prepare(AddTo(), one.get());
  const uint64_t last_one = RunAdds(40, one.get());
  ReleaseWith(81);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(many[i]->WaitCompleted(last[i]));
  EXPECT_TRUE(one->WaitCompleted(last_one));
  EXPECT_NEAR(Fills(Order().substr(0, 40)), 20, 1);
}

TEST_F(TurnsTest, HigherPriorityIsServedFirstInItsTenant) {
  v1::LeaseClaims batch = Lease("s1", "t1");
  batch.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_BATCH);
  std::unique_ptr<TestClient> a = OpenWith(batch);
  std::unique_ptr<TestClient> b = OpenWith(Lease("s2", "t1"));
  Prepare(Fill(), a.get());
  Prepare(AddTo(), b.get());
  const uint64_t last_a = RunFills(10, a.get());
  RunAdds(10, b.get());
  ReleaseWith(21);
  EXPECT_TRUE(a->WaitCompleted(last_a));
  EXPECT_EQ(Order(), std::string(10, 'a') + std::string(10, 'f'));
}

TEST_F(TurnsTest, ARunThatComesTooLateIsNotBegunAndSaysSo) {
  v1::LeaseClaims hurried = Lease("s1", "t1");
  *hurried.mutable_urgency()->mutable_run_deadline() =
      ToProtoDuration(absl::Milliseconds(3500));
  hurried.mutable_limits()->set_max_graphs(16);
  std::unique_ptr<TestClient> client = OpenWith(hurried);
  Prepare(Fill(), client.get());
  // The plug takes a second, as does each of these.
  for (int i = 0; i < 6; ++i) client->Create(10 + i, 8);
  // The durations of these graphs are unknown.
  for (int i = 0; i < 6; ++i) {
    client->Define(10 + i, Fill());
    client->Run(10 + i, {static_cast<uint64_t>(10 + i)}, {1});
  }
  ReleaseWith(7);
  EXPECT_EQ(client->Read(10, 2), (Floats{1, 1}));
  EXPECT_EQ(client->Read(12, 2), (Floats{1, 1}));
  const v1::ErrorDetail error = client->ReadError(13);
  EXPECT_EQ(error.code(),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(error.reason(), "RUN_DEADLINE_EXCEEDED");
  EXPECT_EQ(error.message(),
            "the run was not begun: its turn came 500ms after its deadline");
  EXPECT_EQ(client->ReadError(15).reason(), "RUN_DEADLINE_EXCEEDED");
  EXPECT_EQ(Order(), "fff");
  // Later runs have time again.
  client->Run(1, {13}, {2});
  EXPECT_EQ(client->Read(13, 2), (Floats{2, 2}));
}

TEST_F(TurnsTest, EarlierDeadlineIsServedFirstInItsTenant) {
  std::unique_ptr<TestClient> a = OpenWith(Lease("s1", "t1"));
  v1::LeaseClaims hurried = Lease("s2", "t1");
  *hurried.mutable_urgency()->mutable_run_deadline() =
      ToProtoDuration(absl::Seconds(100));
  std::unique_ptr<TestClient> b = OpenWith(hurried);
  Prepare(Fill(), a.get());
  Prepare(AddTo(), b.get());
  const uint64_t last_a = RunFills(10, a.get());
  RunAdds(10, b.get());
  ReleaseWith(21);
  EXPECT_TRUE(a->WaitCompleted(last_a));
  EXPECT_EQ(Order(), std::string(10, 'a') + std::string(10, 'f'));
}

// Notes what the executor does at the gate that it shares with other processes,
// of which each one wants the device.
class ContendedGate : public TurnGate {
 public:
  bool TryEnter() override { return false; }
  void Enter() override { Note('e'); }
  void Yield() override { Note('y'); }
  void Leave() override { Note('l'); }
  void Cancel() override {}
  void NoteServed(absl::Span<const absl::string_view>) override {}

  std::string Notes() {
    MutexLock lock(&mu_);
    return notes_;
  }

 private:
  void Note(char what) {
    MutexLock lock(&mu_);
    notes_ += what;
  }

  Mutex mu_;
  std::string notes_ ABSL_GUARDED_BY(mu_);
};

class GateTest : public BatchTest {
 protected:
  GateTest() {
    WorkerCoreOptions options;
    options.gate = &gate_;
    Start(options);
  }
  ~GateTest() override {
    Release();
    // Nothing uses the gate any more.
    Start({});
  }

  ContendedGate gate_;
};

TEST_F(GateTest, WorkThatWaitsKeepsItsPlaceAmongProcesses) {
  Plug();
  std::unique_ptr<TestClient> client = Open("s1", "t1");
  client->Create(1, 8);
  client->Define(1, Fill());
  uint64_t last = 0;
  for (int i = 0; i < 10; ++i) last = client->Run(1, {1}, {0});
  const std::string before = gate_.Notes();
  ReleaseWith(11);
  EXPECT_TRUE(client->WaitCompleted(last));
  for (Patience patience; gate_.Notes().back() != 'l';) patience.Yield();
  // All turns but the last one yielded, so that the next turn goes by weight.
  const std::string notes = gate_.Notes().substr(before.size());
  EXPECT_EQ(std::count(notes.begin(), notes.end(), 'l'), 1) << notes;
  EXPECT_GE(std::count(notes.begin(), notes.end(), 'y'), 10) << notes;
}

}  // namespace
}  // namespace djinn::worker
