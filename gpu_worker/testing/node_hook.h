// Runs of which every node takes time on a fake clock, and functions that a
// test has called before a certain node, for tests.
#ifndef GPU_WORKER_TESTING_NODE_HOOK_H_
#define GPU_WORKER_TESTING_NODE_HOOK_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/base/proto_duration.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {

// Storages of every client.
inline constexpr uint64_t kSum = 1;
inline constexpr uint64_t kOne = 2;

// Every node takes a second. A letter records it: a(dd), f(ill), d(raw).
class NodeHookTest : public WorkerCoreTest {
 protected:
  NodeHookTest() {
    device_.SetExecuteHook([this](const std::string& name) {
      std::function<void()> happens;
      {
        MutexLock lock(&mu_);
        const auto found = before_.find(order_.size());
        if (found != before_.end()) {
          happens = std::move(found->second);
          before_.erase(found);
        }
      }
      if (happens) happens();
      clock_.Advance(absl::Milliseconds(node_milliseconds_.load()));
      MutexLock lock(&mu_);
      order_ += name[6];
      return absl::OkStatus();
    });
  }
  ~NodeHookTest() override { core_->Shutdown(); }

  // Has the executor's thread call the function before the node.
  void Before(size_t node, std::function<void()> happens) {
    MutexLock lock(&mu_);
    before_[node] = std::move(happens);
  }
  // Returns the letters of the executed nodes.
  std::string Order() {
    MutexLock lock(&mu_);
    return order_;
  }

  v1::LeaseClaims LeaseWithDeadline(const std::string& session,
                                    const std::string& tenant,
                                    absl::Duration run_deadline) {
    v1::LeaseClaims lease = Lease(session, tenant);
    lease.mutable_limits()->set_max_outstanding(256);
    if (run_deadline > absl::ZeroDuration()) {
      *lease.mutable_urgency()->mutable_run_deadline() =
          ToProtoDuration(run_deadline);
    }
    return lease;
  }
  // Opens a session that has a sum of 0 and a one.
  std::unique_ptr<TestClient> OpenToAdd(const v1::LeaseClaims& lease) {
    Grant(lease, 1'000'000);
    std::unique_ptr<TestClient> client = Connect(HelloFor(lease.session_id()));
    client->Create(kSum, 4);
    client->InstallInline(kOne, FloatBytes({1}));
    return client;
  }
  // Returns a graph that adds one `nodes` times.
  static srg::Graph Long(int nodes) {
    FakeGraph s;
    const uint32_t sum = s.Bound();
    const uint32_t one = s.Bound();
    for (int i = 0; i < nodes; ++i) s.AddInPlace(sum, one, 1);
    return s.get();
  }

  // How long a node takes.
  std::atomic<int> node_milliseconds_{1000};

 private:
  Mutex mu_;
  std::map<size_t, std::function<void()>> before_ ABSL_GUARDED_BY(mu_);
  std::string order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_TESTING_NODE_HOOK_H_
