// Sessions whose runs may share a product, on a worker core with a fake device
// and a fake clock, for tests.
#ifndef GPU_WORKER_TESTING_BATCH_FIXTURE_H_
#define GPU_WORKER_TESTING_BATCH_FIXTURE_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/patience.h"
#include "common/base/proto_duration.h"
#include "common/hash/content_proof.h"
#include "common/lease/lease_verifier.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {

// Storages of every client.
inline constexpr uint64_t kWeight = 1;
inline constexpr uint64_t kRows = 2;
inline constexpr uint64_t kOther = 3;
inline constexpr uint64_t kFirstResult = 100;

// The time between the end of a session's run and its next one, which is
// expected a quarter of that later. Sharing is worth four seconds. The plug's
// run takes as long as this.
inline constexpr absl::Duration kPause = absl::Seconds(1);

// While the plug's run holds the device, everything that the other clients send
// waits. Behind it every node takes a second, and a joined product takes four.
// Order() names the executed nodes by letters: s(cale), a(dd), J(oined),
// f(ill).
class BatchTest : public WorkerCoreTest {
 protected:
  BatchTest() {
    device_.SetExecuteHook([this](const std::string& name) {
      MutexLock lock(&mu_);
      reached_ = true;
      changed_.SignalAll();
      while (!open_) changed_.Wait(&mu_);
      const bool joined = name == "fake::joined";
      clock_.Advance(absl::Seconds(joined ? 4 : 1));
      order_ += joined ? 'J' : name[6];
      if (name == "fake::scale" && at_plain_) at_plain_();
      if (joined) {
        // The copy lets the function reset at_joined_.
        const std::function<void()> call = at_joined_;
        if (call) call();
        if (join_fails_) return absl::InternalError("no joining now");
      }
      return absl::OkStatus();
    });
  }
  ~BatchTest() override {
    Release();
    core_->Shutdown();
  }

  // Blocks the device. Call it before adding clients.
  void Plug() {
    plug_ = Open("plug", "plug");
    plug_->Create(1, 8);
    plug_->Define(1, Fill());
    plug_->Run(1, {1}, {0});
    MutexLock lock(&mu_);
    for (Patience patience; !reached_;) patience.Wait(&changed_, &mu_);
  }

  // Blocks the device again, and forgets everything executed before.
  void PlugAgain() {
    {
      MutexLock lock(&mu_);
      order_.clear();
      open_ = reached_ = false;
    }
    if (plug_ == nullptr) return Plug();
    plug_->Run(1, {1}, {0});
    MutexLock lock(&mu_);
    for (Patience patience; !reached_;) patience.Wait(&changed_, &mu_);
  }

  // Makes values that do not go inline become contents, so that weights stay.
  static void LetKeepWeights(v1::LeaseClaims* lease) {
    lease->mutable_limits()->set_inline_bytes(2 * sizeof(float));
  }
  // Adds a client with rows that begin with `first`. Its weight is a content of
  // its tenant.
  TestClient* Add(const std::string& session, const std::string& tenant,
                  float first) {
    v1::LeaseClaims lease = Lease(session, tenant);
    LetKeepWeights(&lease);
    if (batch_class_.contains(session)) {
      lease.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_BATCH);
    }
    if (weights_.contains(session)) lease.set_weight(weights_.at(session));
    Grant(lease, 100'000);
    clients_.push_back(Connect(HelloFor(session)));
    TestClient* const client = clients_.back().get();
    client->set_mode(v1::EXECUTION_MODE_FAST);
    client->InstallInline(kRows, BytesOf({first, first + 1}));
    client->InstallInline(kOther, BytesOf({first, 0}));
    return client;
  }
  static std::string BytesOf(const Floats& values) {
    return {reinterpret_cast<const char*>(values.data()),
            values.size() * sizeof(float)};
  }
  // The first client of a tenant uploads the weight; the others find it.
  static void UploadWeight(TestClient* client, float weight = 3) {
    const std::string bytes = BytesOf({weight, 0, 0});
    client->InstallTransfer(kWeight, 7, bytes);
    v1::TransferDecision decision = client->WaitDecision(7);
    if (decision.has_prove()) {
      client->SendProof(7, ProveContent(decision.prove().key(), bytes));
      decision = client->WaitOutcome(7);
    }
    if (decision.has_send()) client->SendBytes(7, bytes);
    // Waits until the upload is executed: a message before a run keeps the run
    // out of a batch.
    client->Read(kWeight, 2);
  }

  // y = rows * weight; z = y + other. The `extra` nodes in front stand for
  // another position of a decoder.
  static srg::Graph Step(int extra = 0) {
    FakeGraph s;
    const uint32_t weight = s.Bound();
    const uint32_t rows = s.Bound();
    const uint32_t other = s.Bound();
    for (int i = 0; i < extra; ++i) s.AddInPlace(other, other, 1);
    const uint32_t y = s.Scale(rows, weight, 2);
    s.Add(y, other, 2);
    return s.get();
  }
  // Runs the graph; its results are two storages from `result` on.
  static uint64_t Run(TestClient* client, int extra = 0,
                      uint64_t result = kFirstResult) {
    client->Define(1 + static_cast<uint64_t>(result), Step(extra));
    return client->Run(1 + static_cast<uint64_t>(result),
                       {kWeight, kRows, kOther, result, result + 1});
  }
  static Floats Result(TestClient* client, uint64_t result = kFirstResult) {
    return client->Read(result + 1, 2);
  }

  // Adds a client with its weight and with Step() as graph 1.
  TestClient* AddWithWeight(const std::string& session,
                            const std::string& tenant) {
    TestClient* const client = Add(session, tenant, 0);
    UploadWeight(client);
    client->Define(1, Step());
    // Waits until the messages are executed: a message before a run keeps the
    // run out of a batch.
    client->Read(kRows, 2);
    return client;
  }
  // Sends the next run of the client's graph 1, and a read of its result, as
  // one message. Returns the read.
  uint64_t RunNext(TestClient* client) {
    next_result_ += 2;
    client->Hold();
    client->Run(1, {kWeight, kRows, kOther, next_result_, next_result_ + 1});
    const uint64_t read =
        client->SendRead(next_result_ + 1, FakeGraph::View(0, 2));
    client->Release();
    return read;
  }
  static Floats Wait(TestClient* client, uint64_t read) {
    return FloatsOf(client->WaitRead(read).value());
  }
  // Has all clients run at the same time, then pause, `rounds` times. They also
  // pause after the last round.
  void GoRound(const std::vector<TestClient*>& clients, int rounds = 3,
               absl::Duration pause = kPause) {
    for (int i = 0; i < rounds; ++i) {
      PlugAgain();
      if (i > 0) clock_.Advance(pause);
      std::vector<uint64_t> reads;
      for (TestClient* client : clients) reads.push_back(RunNext(client));
      ReleaseWith(static_cast<uint32_t>(clients.size()) + 1);
      for (size_t c = 0; c < clients.size(); ++c) Wait(clients[c], reads[c]);
    }
    // Passes one pause after all of their turns.
    PlugAgain();
    ReleaseWith(1);
    EXPECT_TRUE(
        WaitUntil([this] { return core_->Snapshot().queued_runs() == 0; }));
  }
  // Starts the client's next run, and returns once the worker waits for runs of
  // other sessions.
  uint64_t RunAlone(TestClient* client) {
    const uint64_t read = RunNext(client);
    EXPECT_TRUE(WaitUntil([this] { return clock_.waiting() == 1; }));
    return read;
  }

  // Releases the device when the worker has received this many runs, including
  // the plug's run.
  void ReleaseWith(uint32_t runs) {
    EXPECT_TRUE(WaitReceivedBeside(plug_.get(), runs));
    Release();
  }
  void Release() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  // Returns the nodes executed after the plug's node.
  std::string Order() {
    MutexLock lock(&mu_);
    return order_.substr(1);
  }
  absl::Duration Busy() {
    return FromProtoDuration(core_->Snapshot().executed().device_time());
  }

  uint64_t next_result_ = kFirstResult;
  std::unique_ptr<TestClient> plug_;
  std::vector<std::unique_ptr<TestClient>> clients_;
  std::set<std::string> batch_class_;
  std::map<std::string, double> weights_;
  std::function<void()> at_joined_;
  // Called at a product that is not joined.
  std::function<void()> at_plain_;
  Mutex mu_;
  CondVar changed_;
  bool join_fails_ ABSL_GUARDED_BY(mu_) = false;
  bool reached_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  std::string order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_TESTING_BATCH_FIXTURE_H_
