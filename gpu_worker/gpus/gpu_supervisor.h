// Runs a worker for each GPU as a process of its own, starts again what ends,
// and joins the workers' health.
//
// A worker that ends is started again after a pause, which doubles from a
// second to a minute and is short again once a worker has run for long. The
// others are not concerned.
#ifndef GPU_WORKER_GPUS_GPU_SUPERVISOR_H_
#define GPU_WORKER_GPUS_GPU_SUPERVISOR_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "common/net/monitoring/monitoring_server.h"

namespace djinn::worker {

// Starts and ends the processes. One thread calls Launch(), Signal() and
// Reap(), another one Address() and NotReady().
class GpuLauncher {
 public:
  virtual ~GpuLauncher() = default;

  // Starts the worker of the GPU with this index.
  virtual absl::StatusOr<pid_t> Launch(int index) = 0;
  virtual void Signal(pid_t pid, int signal) = 0;
  // Returns how the process ended, such as "exit status 1", or nothing while it
  // runs. Call it again until it returns something, and then no more.
  virtual std::optional<std::string> Reap(pid_t pid) = 0;
  // Returns the address at which the worker serves clients; empty while it does
  // not serve.
  virtual std::string Address(int index) = 0;
  // Asks the worker why it is not ready, and waits for the answer for at most a
  // few seconds; empty when it is ready.
  virtual std::string NotReady(int index) = 0;
};

class GpuSupervisor {
 public:
  static constexpr absl::Duration kFirstPause = absl::Seconds(1);
  static constexpr absl::Duration kLongestPause = absl::Minutes(1);
  // A worker that ran for so long has a short pause again.
  static constexpr absl::Duration kLong = absl::Minutes(5);
  // How often the workers are asked for their health.
  static constexpr absl::Duration kHealthInterval = absl::Seconds(1);

  // `launcher` and `clock` must outlive this.
  GpuSupervisor(std::vector<std::string> uuids, GpuLauncher* launcher,
                Clock* clock);

  // Sends signals, starts what is due, and takes note of what ended. Waits for
  // no worker. One thread calls it, often.
  void Step();
  // Asks each worker whose last answer is old for its health. A worker that
  // hangs delays the answers of the others, and nothing else. A second thread
  // calls it, often.
  void AskHealth();
  // Has the next Step() send a signal to every process. After SIGTERM, SIGINT
  // or SIGKILL, what ends is not started again.
  void Signal(int signal);

  // Returns true when every worker serves or has ended at least once.
  bool Started() const;
  // Returns true when no process runs.
  bool Ended() const;
  // Returns the addresses of those that serve, in order.
  std::vector<std::string> Addresses() const;
  // Returns a check for each worker, called "gpuN".
  std::vector<ReadinessCheck> Checks() const;
  void Collect(Exposition* out) const;

 private:
  struct Child {
    std::string uuid;
    // 0 while it does not run.
    pid_t pid = 0;
    absl::Duration since;
    // When it is to be started next, monotonic.
    absl::Duration due;
    absl::Duration pause = kFirstPause;
    uint64_t starts = 0;
    std::string address;
    // Why it is not ready.
    std::string failure = "it was not started yet";
    absl::Duration health_due;
  };
  void Advance(int index, absl::Duration now);
  void AskHealthOf(int index);
  void Launch(int index, absl::Duration now);
  void NoteEnd(int index, const std::string& how, absl::Duration now);

  GpuLauncher* const launcher_;
  Clock* const clock_;

  mutable Mutex mu_;
  std::vector<Child> children_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // To be sent.
  std::vector<int> signals_ ABSL_GUARDED_BY(mu_);
};

struct GpuProcessOptions {
  // UUIDs of the GPUs, by index.
  std::vector<std::string> uuids;
  // The configuration that all workers share.
  std::string config_path;
};

// Starts the running program again for each GPU, with CUDA_VISIBLE_DEVICES. The
// processes end when this one does. Returns Internal when there is no folder
// for the files with their addresses.
absl::StatusOr<std::unique_ptr<GpuLauncher>> MakeGpuProcessLauncher(
    GpuProcessOptions options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_GPUS_GPU_SUPERVISOR_H_
