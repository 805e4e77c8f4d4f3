// A worker on a fake device, a coordinator that grants what it is asked for,
// and in-process streams between the worker and any number of sessions.
#ifndef TESTS_SCHEDULES_CLUSTER_H_
#define TESTS_SCHEDULES_CLUSTER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/recording/session.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/lease/testing/lease_authority.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "tests/schedules/granting_link.h"
#include "tests/schedules/network.h"
#include "tests/schedules/schedule.h"
#include "tests/schedules/skipping_clock.h"

namespace djinn::schedules {

// Largest value inside a message.
inline constexpr uint64_t kInlineBytes = 8192;

class Cluster : public Grantor {
 public:
  explicit Cluster(const Setup& setup);
  ~Cluster() override;

  // Session number `index` of the schedule, from 0.
  std::unique_ptr<Session> Open(int index);

  // Ends the worker, which crashes or says so, and starts it anew.
  void Restart(bool drains);
  void EndLease(int device);
  void Unplug(int device) { network_.Unplug(device); }

  // Never null but during Restart().
  std::shared_ptr<worker::WorkerCore> core() const;

  // Waits until the sessions left nothing but contents; otherwise says what is
  // left.
  std::string WaitUntilEmpty();
  // Ends the worker; says what is left then.
  std::string Stop();

  // Of sessions and their links.
  v1::Lease Grant(const std::string& session_id, const std::string& tenant,
                  int device, LinkEnd* link) override;
  bool LetsSpan() const override { return setup_.spans; }
  void DropSession(const std::string& session_id) override;
  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(int device);

 private:
  struct Granted {
    v1::LeaseClaims record;
    LinkEnd* link;
  };

  std::shared_ptr<worker::WorkerCore> MakeCore();
  // Lists a new issue of the lease; returns its token.
  std::string List(const v1::LeaseClaims& record,
                   const worker::WorkerCore& core, v1::DesiredState* desired);
  std::string Leftovers() const;

  const Setup setup_;
  FakeClock worker_clock_;
  SkippingClock client_clock_;
  FakeRandomSource random_;
  std::atomic<int> nodes_{0};
  worker::FakeDevice device_;
  Network network_;
  Mutex issue_mu_;
  LeaseAuthority authority_ ABSL_GUARDED_BY(issue_mu_);
  mutable Mutex mu_;
  CondVar core_changed_;
  std::shared_ptr<worker::WorkerCore> core_ ABSL_GUARDED_BY(mu_);
  // A value on its way to a client is still theirs, until Stop().
  std::vector<std::shared_ptr<worker::WorkerCore>> former_cores_
      ABSL_GUARDED_BY(mu_);
  std::map<int, Granted> granted_ ABSL_GUARDED_BY(mu_);  // by device
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_CLUSTER_H_
