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
#include "common/lease/testing/lease_authority.h"
#include "common/net/protocol_version.h"
#include "common/transport/in_process.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gpu_worker/testing/test_client.h"
#include "gtest/gtest.h"

namespace djinn::worker {

using Floats = std::vector<float>;

// Knows how many wait for it.
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

class WorkerCoreTest : public testing::Test {
 protected:
  WorkerCoreTest() { Start({}); }
  ~WorkerCoreTest() override { core_->Shutdown(); }

  // Another core instead of the one that is there.
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

  // Lists the next issue of the lease, and has HelloFor() present it.
  void Grant(const v1::LeaseClaims& lease, int seconds = 60) {
    Grant(lease, "w0", absl::Seconds(seconds), core_.get());
  }
  void Grant(const v1::LeaseClaims& lease, const std::string& worker_id,
             absl::Duration valid_for, WorkerCore* core) {
    const v1::SignedLease issue =
        authority_.Issue(lease, worker_id, core->incarnation(), valid_for);
    v1::DesiredState desired = Agreed();
    authority_.List(issue, &desired);
    core->Apply(desired);
    tokens_[lease.session_id()] = issue.SerializeAsString();
  }

  // These tenants share contents from now on, and no others.
  void Share(std::vector<std::string> tenants) {
    sharing_ = std::move(tenants);
    core_->Apply(Agreed());
  }
  // The same for products.
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
    EXPECT_EQ(client
                  ->WaitFor([](const v1::ControlResponse& r) {
                    return r.has_hello();
                  })
                  .hello()
                  .worker_id(),
              "w0");
    return client;
  }

  // Another stream for the client, from where it was.
  void Resume(TestClient* client, const std::string& session = "s1") {
    InProcessPair pair = MakeInProcessPair();
    core_->Attach(std::move(pair.worker), way_);
    client->Resume(std::move(pair.client), HelloFor(session));
  }
  // Cuts the network, and waits until the worker noticed.
  void Break(TestClient* client) {
    client->Break();
    EXPECT_TRUE(WaitUntil([this] { return core_->detached_sessions() > 0; }));
  }
  // Housekeeping looks every few milliseconds.
  template <typename Condition>
  static bool WaitUntil(Condition condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  // That a run was received is known before that its session waits for its
  // turn. So many runs are there, and the client's session waits.
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
  // The same of all sessions that have runs there, but for who is served.
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
  static std::string IdOf(const v1::HeldSession& held) {
    return UncheckedClaims(held.lease()).session_id();
  }

  std::string Refusal(const v1::ClientHello& hello) {
    return ErrorReason(Connect(hello)->WaitClosed());
  }

  // Waits until the executor and housekeeping let go of everything.
  bool WaitMemory(uint64_t bytes) {
    return WaitUntil([&] { return core_->ledger().usage().used == bytes; });
  }

  FakeDevice device_{16 << 20};
  WatchedClock clock_;
  FakeRandomSource random_;
  LeaseAuthority authority_;
  // Of each session, the last one granted.
  std::map<std::string, std::string> tokens_;
  // Of the clients that connect from now on.
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

// Holds the executor at a node until it is let go.
class NodeGate {
 public:
  // The `stop_at`th node from now on waits.
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
  // The executor may still be in the hook when the gate is gone.
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
