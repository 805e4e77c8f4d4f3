#include "gpu_worker/all_gpus_worker.h"

#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/metrics/process_metrics.h"
#include "gpu_worker/gpu_list.h"
#include "gpu_worker/nvml/nvml.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(50);
// Loading PyTorch and calibrating a busy GPU takes seconds.
constexpr absl::Duration kStartTimeout = absl::Minutes(10);
// A worker that drained needs at most this long to stop.
constexpr absl::Duration kStopMargin = absl::Seconds(25);
// The whole process has 20 seconds.
constexpr absl::Duration kStopTimeout = absl::Seconds(15);
constexpr absl::Duration kKillTimeout = absl::Seconds(2);

absl::StatusOr<std::vector<std::string>> VisibleGpus(
    const WorkerConfig& config) {
  DJINN_ASSIGN_OR_RETURN(const std::unique_ptr<Nvml> nvml,
                         Nvml::Open(config.nvml_library));
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return ListGpus(*nvml, visible == nullptr
                             ? std::nullopt
                             : std::optional<absl::string_view>(visible));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AllGpusWorker>> AllGpusWorker::Start(
    const WorkerConfig& config, const std::string& config_path, Clock* clock) {
  DJINN_ASSIGN_OR_RETURN(std::vector<std::string> uuids, VisibleGpus(config));
  const int count = static_cast<int>(uuids.size());
  for (int i = 0; i < count; ++i) {
    DJINN_RETURN_IF_ERROR(ConfigOfGpu(config, i, count, uuids[i]).status());
  }
  log::Info("a worker for each GPU", {{"worker", config.worker_id},
                                      {"gpus", absl::StrJoin(uuids, " ")}});
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<GpuLauncher> launcher,
      MakeGpuProcessLauncher({.uuids = uuids, .config_path = config_path}));
  return StartWith(config, std::move(uuids), std::move(launcher), clock);
}

absl::StatusOr<std::unique_ptr<AllGpusWorker>> AllGpusWorker::StartWith(
    const WorkerConfig& config, std::vector<std::string> uuids,
    std::unique_ptr<GpuLauncher> launcher, Clock* clock) {
  auto worker = absl::WrapUnique(new AllGpusWorker);
  worker->clock_ = clock;
  worker->settings_ = std::make_unique<Settings>(config, clock);
  worker->launcher_ = std::move(launcher);
  worker->supervisor_ = std::make_unique<GpuSupervisor>(
      std::move(uuids), worker->launcher_.get(), clock);
  GpuSupervisor* const supervisor = worker->supervisor_.get();
  worker->thread_ = std::thread([raw = worker.get()] {
    while (!raw->stopping_) {
      raw->supervisor_->Step();
      absl::SleepFor(kStep);
    }
  });
  worker->health_thread_ = std::thread([raw = worker.get()] {
    while (!raw->stopping_) {
      raw->supervisor_->AskHealth();
      absl::SleepFor(kStep);
    }
  });
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (!supervisor->Started() && absl::Now() < deadline) {
    absl::SleepFor(kStep);
  }
  if (supervisor->Addresses().empty()) {
    std::string why = "no worker of a GPU serves";
    for (const ReadinessCheck& check : supervisor->Checks()) {
      absl::StrAppend(&why, "; ", check.name, " (", check.detail,
                      "): ", check.failure);
    }
    return MakeError(absl::StatusCode::kUnavailable, "NO_GPU_SERVES", why);
  }
  worker->readiness_ = std::make_unique<Readiness>(
      [supervisor] { return supervisor->Checks(); }, [](bool /*ready*/) {});
  DJINN_RETURN_IF_ERROR(worker->StartMonitoring(config));
  return worker;
}

absl::Status AllGpusWorker::StartMonitoring(const WorkerConfig& config) {
  if (config.monitoring.listen.empty()) return absl::OkStatus();
  MonitoringOptions options;
  options.address = config.monitoring.listen;
  options.insecure = config.monitoring.insecure;
  options.sources = {ProcessMetrics("worker"),
                     [this](Exposition* out) { supervisor_->Collect(out); },
                     [this](Exposition* out) { readiness_->Collect(out); },
                     [this](Exposition* out) { settings_->Collect(out); }};
  options.readiness = [this] { return readiness_->Evaluate(); };
  DJINN_ASSIGN_OR_RETURN(monitoring_, MonitoringPort::Open(std::move(options)));
  return absl::OkStatus();
}

std::string AllGpusWorker::address() const {
  return absl::StrJoin(supervisor_->Addresses(), " ");
}

void AllGpusWorker::Reload(const absl::StatusOr<WorkerConfig>& read) {
  settings_->Reload(read);
  supervisor_->Signal(SIGHUP);
}

void AllGpusWorker::Drain(const WaitFunction& wait) {
  readiness_->Leave("the worker stops");
  supervisor_->Signal(SIGTERM);
  const absl::Duration deadline =
      clock_->Monotonic() + settings_->drain_timeout() + kStopMargin;
  while (!supervisor_->Ended() && clock_->Monotonic() < deadline) {
    if (wait(kStep)) return;
  }
}

bool AllGpusWorker::AwaitEnd(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!supervisor_->Ended()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kStep);
  }
  return true;
}

AllGpusWorker::~AllGpusWorker() { Stop(); }

void AllGpusWorker::Stop() {
  if (supervisor_ == nullptr || stopping_) return;
  if (readiness_ != nullptr) readiness_->Leave("the worker stops");
  monitoring_.reset();
  readiness_.reset();
  supervisor_->Signal(SIGINT);
  if (!AwaitEnd(kStopTimeout)) {
    log::Error("workers of GPUs did not stop in time, killing them",
               {{"timeout", kStopTimeout}});
    supervisor_->Signal(SIGKILL);
    AwaitEnd(kKillTimeout);
  }
  stopping_ = true;
  thread_.join();
  health_thread_.join();
}

}  // namespace djinn::worker
