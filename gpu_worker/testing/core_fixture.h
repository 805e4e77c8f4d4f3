// A worker core on a fake device with a fake clock, for tests.
#ifndef GPU_WORKER_TESTING_CORE_FIXTURE_H_
#define GPU_WORKER_TESTING_CORE_FIXTURE_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"
#include "common/lease/testing/lease_authority.h"
#include "common/metrics/exposition.h"
#include "common/net/protocol_version.h"
#include "common/transport/in_process.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gpu_worker/testing/test_client.h"
#include "gtest/gtest.h"

namespace djinn::worker {

using Floats = std::vector<float>;

// Counts the threads that wait for it.
class WatchedClock : public FakeClock {
 public:
  void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ++waiting_;
    FakeClock::Wait(signal, mu, timeout);
    --waiting_;
  }
  int waiting() const { return waiting_; }

 private:
  std::atomic<int> waiting_{0};
};

inline std::string IdOf(const v1::HeldSession& held) {
  return UncheckedClaims(held.lease()).session_id();
}
// Returns what the core reports of the session.
inline v1::HeldSession HeldBy(const WorkerCore& core,
                              const std::string& session) {
  const v1::WorkerState state = core.Snapshot();
  for (const v1::HeldSession& held : state.sessions()) {
    if (IdOf(held) == session) return held;
  }
  ADD_FAILURE() << "no session " << session;
  return {};
}

class WorkerCoreTest : public testing::Test {
 protected:
  WorkerCoreTest() { Start({}); }
  ~WorkerCoreTest() override { core_->Shutdown(); }

  // Replaces the core with a new one.
  void Start(WorkerCoreOptions options) {
    if (core_ != nullptr) core_->Shutdown();
    options.worker_id = "w0";
    options.housekeeping_interval = absl::Milliseconds(2);
    core_ = std::make_unique<WorkerCore>(options, &device_, &clock_, &random_);
  }

  v1::LeaseClaims Lease(const std::string& session, const std::string& tenant) {
    v1::LeaseClaims lease =
        LeaseAuthority::Claims("lease-" + session, session, tenant);
    lease.mutable_limits()->set_memory_bytes(8 << 20);
    return lease;
  }

  // Lists the next revision of the lease, and has HelloFor() present it.
  void Grant(const v1::LeaseClaims& lease, int seconds = 60) {
    Grant(lease, "w0", absl::Seconds(seconds), core_.get());
  }
  void Grant(const v1::LeaseClaims& lease, const std::string& worker_id,
             absl::Duration valid_for, WorkerCore* core) {
    const v1::SignedLease signed_lease =
        authority_.Issue(lease, worker_id, core->incarnation(), valid_for);
    v1::DesiredState desired = Agreed();
    authority_.List(signed_lease, &desired);
    core->Apply(desired);
    tokens_[lease.session_id()] = signed_lease.SerializeAsString();
  }

  // Lets these tenants, and no others, share contents from now on.
  void Share(std::vector<std::string> tenants) {
    sharing_ = std::move(tenants);
    core_->Apply(Agreed());
  }
  // Lets these tenants, and no others, share batches from now on.
  void Batch(std::vector<std::string> tenants) {
    batching_ = std::move(tenants);
    core_->Apply(Agreed());
  }
  v1::DesiredState Agreed() const {
    v1::DesiredState desired;
    desired.mutable_sharing_tenants()->Assign(sharing_.begin(), sharing_.end());
    desired.mutable_batching_tenants()->Assign(batching_.begin(),
                                               batching_.end());
    return desired;
  }

  v1::ClientHello HelloFor(const std::string& session) {
    v1::ClientHello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_session_id(session);
    hello.set_session_epoch(1);
    hello.set_lease_token(tokens_[session]);
    hello.set_worker_incarnation(core_->incarnation());
    return hello;
  }

  std::unique_ptr<TestClient> Connect(const v1::ClientHello& hello) {
    InProcessPair pair = MakeInProcessPair();
    core_->Attach(std::move(pair.worker), way_);
    auto client = std::make_unique<TestClient>(std::move(pair.client));
    client->Hello(hello);
    return client;
  }

  std::unique_ptr<TestClient> Open(const std::string& session = "s1",
                                   const std::string& tenant = "t1") {
    Grant(Lease(session, tenant));
    std::unique_ptr<TestClient> client = Connect(HelloFor(session));
    EXPECT_EQ(client->WaitHello().worker_id(), "w0");
    return client;
  }

  // Resumes the client on another stream.
  void Resume(TestClient* client, const std::string& session = "s1") {
    InProcessPair pair = MakeInProcessPair();
    core_->Attach(std::move(pair.worker), way_);
    client->Resume(std::move(pair.client), HelloFor(session));
  }
  // Cuts the network, and waits until the worker noticed.
  void Break(TestClient* client) {
    const size_t before = core_->detached_sessions();
    client->Break();
    EXPECT_TRUE(WaitUntil([&] { return core_->detached_sessions() > before; }));
  }
  // Polls every few milliseconds, as often as housekeeping runs.
  template <typename Condition>
  static bool WaitUntil(Condition condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  // Waits until the worker has this many runs and the client's session waits
  // for its turn. A run counts as received a moment before its session waits.
  bool WaitReceived(uint32_t runs, const TestClient* client) {
    return WaitUntil([&] {
      const v1::WorkerState state = core_->Snapshot();
      if (state.queued_runs() != runs) return false;
      for (const v1::HeldSession& held : state.sessions()) {
        if (IdOf(held) == client->session_id()) return held.has_wait();
      }
      return false;
    });
  }
  // Waits until the worker has this many runs and every session with runs
  // waits, except the one in service.
  bool WaitReceivedBeside(const TestClient* served, uint32_t runs) {
    return WaitUntil([&] {
      const v1::WorkerState state = core_->Snapshot();
      if (state.queued_runs() != runs) return false;
      for (const v1::HeldSession& held : state.sessions()) {
        if (held.use().queued_runs() > 0 && !held.has_wait() &&
            IdOf(held) != served->session_id()) {
          return false;
        }
      }
      return true;
    });
  }
  // Returns the device time that the session was charged.
  absl::Duration Used(const std::string& session) {
    return FromProtoDuration(HeldBy(*core_, session).lease_use().device_time());
  }
  // Returns the worker's metrics as text.
  std::string Metrics() const {
    Exposition exposition;
    core_->Collect(&exposition);
    return exposition.Text();
  }

  std::string Refusal(const v1::ClientHello& hello) {
    return ErrorReason(Connect(hello)->WaitClosed());
  }

  // Waits until the executor and housekeeping have released everything.
  bool WaitMemory(uint64_t bytes) {
    return WaitUntil([&] { return core_->ledger().usage().used == bytes; });
  }

  FakeDevice device_{16 << 20};
  WatchedClock clock_;
  FakeRandomSource random_;
  LeaseAuthority authority_;
  // The token granted last to each session.
  std::map<std::string, std::string> tokens_;
  // How clients that connect from now on reach the worker.
  StreamWay way_ = StreamWay::kLocal;
  std::vector<std::string> sharing_;
  std::vector<std::string> batching_;
  std::unique_ptr<WorkerCore> core_;
};

inline srg::Graph AddTo() {  // x += y
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  s.AddInPlace(x, y, 2);
  return s.get();
}

inline srg::Graph Fill() {  // x.fill_(float hole), for two elements
  FakeGraph s;
  s.FillInPlace(s.Bound(), 2);
  return s.get();
}

// Holds the executor at a node until it is opened.
class NodeGate {
 public:
  // Holds the `stop_at`th node from now on.
  NodeGate(FakeDevice* device, int stop_at) : device_(device) {
    device->SetExecuteHook([state = state_, stop_at](const std::string&) {
      MutexLock lock(&state->mu);
      ++state->nodes;
      state->changed.SignalAll();
      while (state->nodes == stop_at && !state->open) {
        state->changed.Wait(&state->mu);
      }
      return absl::OkStatus();
    });
  }
  ~NodeGate() {
    Open();
    device_->SetExecuteHook(
        [](const std::string&) { return absl::OkStatus(); });
  }
  void WaitReached(int nodes) {
    MutexLock lock(&state_->mu);
    for (Patience patience; state_->nodes < nodes;)
      patience.Wait(&state_->changed, &state_->mu);
  }
  void Open() {
    MutexLock lock(&state_->mu);
    state_->open = true;
    state_->changed.SignalAll();
  }
  int nodes() {
    MutexLock lock(&state_->mu);
    return state_->nodes;
  }

 private:
  // Shared, because the executor may still be in the hook when the gate is
  // gone.
  struct State {
    Mutex mu;
    CondVar changed;
    int nodes ABSL_GUARDED_BY(mu) = 0;
    bool open ABSL_GUARDED_BY(mu) = false;
  };
  FakeDevice* const device_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_TESTING_CORE_FIXTURE_H_
