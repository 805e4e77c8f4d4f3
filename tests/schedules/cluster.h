// Runs a worker on a fake device, a coordinator that grants every requested
// lease, and in-process streams between the worker and any number of sessions.
#ifndef TESTS_SCHEDULES_CLUSTER_H_
#define TESTS_SCHEDULES_CLUSTER_H_

#include <algorithm>
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

namespace djinn::schedules {

// Runs in real time, except that short pauses end early: a wait for less than
// kShort takes only kLittle, and the clock then counts the remaining time as
// passed for that thread. Clients thus retry at once, while the timeouts that
// detect a hang stay long for other threads. Threads must not exchange
// deadlines, because each thread has its own time.
class SkippingClock : public Clock {
 public:
  static constexpr absl::Duration kShort = absl::Seconds(3);
  static constexpr absl::Duration kLittle = absl::Microseconds(200);

  absl::Time Now() override { return Clock::Real()->Now() + skipped_; }
  absl::Duration Monotonic() override {
    return Clock::Real()->Monotonic() + skipped_;
  }
  void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const bool skips = timeout < kShort;
    const absl::Duration wait =
        std::min(timeout, skips ? kLittle : absl::Hours(1));
    if (signal->WaitWithTimeout(mu, wait) && skips) {
      skipped_ += timeout - wait;
    }
  }

 private:
  static inline thread_local absl::Duration skipped_;
};

// The largest value that travels inside a message, in bytes.
inline constexpr uint64_t kInlineBytes = 8192;

class Cluster : public Grantor {
 public:
  explicit Cluster(const Setup& setup);
  ~Cluster() override;

  // Opens session number `index` of the schedule, from 0.
  std::unique_ptr<Session> Open(int index);

  // Ends the worker, by a drain or a crash, and starts a new one.
  void Restart(bool drains);
  // Ends the device's lease, with its session unless the device `lost` its
  // worker.
  void EndLease(int device, bool lost);
  void Unplug(int device) { network_.Unplug(device); }

  // Returns the worker. Null only during Restart().
  std::shared_ptr<worker::WorkerCore> core() const;

  // Waits until the sessions have left only contents on the worker. Returns an
  // empty string, or after a timeout a description of what is left.
  std::string WaitUntilEmpty();
  // Ends the worker. Returns what is left then, or an empty string.
  std::string Stop();

  // Sessions and their links call the following functions.
  v1::Lease Grant(const std::string& session_id, const std::string& tenant,
                  int device, LinkEnd* link) override;
  bool LetsSpan() const override { return setup_.spans; }
  void DropSession(const std::string& session_id) override;
  void ReturnLease(const std::string& lease_id) override;
  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(int device);

 private:
  struct Granted {
    v1::LeaseClaims record;
    LinkEnd* link;
  };

  std::shared_ptr<worker::WorkerCore> MakeCore();
  // Lists a new revision of the lease. Returns its token.
  std::string List(const v1::LeaseClaims& record,
                   const worker::WorkerCore& core, v1::DesiredState* desired);
  std::string Leftovers() const;

  const Setup setup_;
  FakeClock worker_clock_;
  SkippingClock client_clock_;
  FakeRandomSource random_;
  std::atomic<int> nodes_{0};
  std::atomic<int> grants_{0};
  worker::FakeDevice device_;
  Network network_;
  Mutex authority_mu_;
  LeaseAuthority authority_ ABSL_GUARDED_BY(authority_mu_);
  mutable Mutex mu_;
  CondVar core_changed_;
  std::shared_ptr<worker::WorkerCore> core_ ABSL_GUARDED_BY(mu_);
  // Former workers, which own values on their way to clients until Stop().
  std::vector<std::shared_ptr<worker::WorkerCore>> former_cores_
      ABSL_GUARDED_BY(mu_);
  std::map<int, Granted> granted_ ABSL_GUARDED_BY(mu_);  // by device
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_CLUSTER_H_
