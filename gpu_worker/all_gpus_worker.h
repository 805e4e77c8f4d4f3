// Runs the process of a worker with `device.kind: cuda`. The process starts a
// worker for each visible GPU, restarts workers that end, and reports the
// health of all. It has no device and executes nothing.
#ifndef GPU_WORKER_ALL_GPUS_WORKER_H_
#define GPU_WORKER_ALL_GPUS_WORKER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/net/monitoring/monitoring_port.h"
#include "common/net/monitoring/readiness.h"
#include "gpu_worker/config.h"
#include "gpu_worker/gpus/gpu_supervisor.h"
#include "gpu_worker/settings.h"

namespace djinn::worker {

// Runs from Start() until Stop(). Not thread-safe.
class AllGpusWorker {
 public:
  // Waits, and returns true when the process must stop at once.
  using WaitFunction = std::function<bool(absl::Duration)>;

  // Starts the workers, and returns when each of them serves or has ended once.
  // `config_path` is the file that `config` was read from. Returns Unavailable
  // (NO_GPU_SERVES) with the end of each when none serves, and the errors of
  // Nvml::Open(), ListGpus(), ConfigOfGpu() and MonitoringPort::Open().
  // `clock` must outlive this.
  static absl::StatusOr<std::unique_ptr<AllGpusWorker>> Start(
      const WorkerConfig& config, const std::string& config_path, Clock* clock);
  // Like Start(), with processes of `launcher`, for the GPUs with these UUIDs.
  // Returns NO_GPU_SERVES and the errors of MonitoringPort::Open().
  static absl::StatusOr<std::unique_ptr<AllGpusWorker>> StartWith(
      const WorkerConfig& config, std::vector<std::string> uuids,
      std::unique_ptr<GpuLauncher> launcher, Clock* clock);
  // Calls Stop().
  ~AllGpusWorker();

  // Returns the addresses of the workers that serve, with a space between them.
  std::string address() const;
  // Empty when no monitoring port is configured.
  std::string monitoring_address() const {
    return monitoring_ == nullptr ? "" : monitoring_->address();
  }

  // Like Settings::Reload(). Also makes every worker read the file again.
  void Reload(const absl::StatusOr<WorkerConfig>& read);
  // Makes every worker drain and end, and waits for their ends as long as the
  // configuration's drain_timeout allows.
  void Drain(const WaitFunction& wait);
  // Ends every worker at once. Call it once.
  void Stop();

 private:
  AllGpusWorker() = default;
  absl::Status StartMonitoring(const WorkerConfig& config);
  // Waits until no process runs. Returns false when `timeout` is over.
  bool AwaitEnd(absl::Duration timeout);

  Clock* clock_ = nullptr;
  std::unique_ptr<Settings> settings_;
  std::unique_ptr<GpuLauncher> launcher_;
  std::unique_ptr<GpuSupervisor> supervisor_;
  std::atomic<bool> stopping_{false};
  // Calls GpuSupervisor::Step().
  std::thread thread_;
  // Calls GpuSupervisor::AskHealth().
  std::thread health_thread_;
  std::unique_ptr<Readiness> readiness_;
  // Null when it is not configured.
  std::unique_ptr<MonitoringPort> monitoring_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_ALL_GPUS_WORKER_H_
