// djinn-worker --config=FILE
//
// Runs a worker until SIGTERM or SIGINT. See config.h for the file and
// common/daemon for flags and exit status. A worker with `isolation.mode:
// process` starts this program again with --executor for each tenant, and one
// with `device.kind: cuda` with --gpu for each GPU.
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "common/log/log.h"
#include "gpu_worker/all_gpus_worker.h"
#include "gpu_worker/config.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/numerics.h"
#include "gpu_worker/device/cuda/load_plugin.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/torch/device_speed.h"
#include "gpu_worker/device/torch/open_library.h"
#include "gpu_worker/executor_main.h"
#include "gpu_worker/gpu_list.h"
#include "gpu_worker/supervised_worker.h"
#include "gpu_worker/worker.h"

ABSL_FLAG(int, gpu, -1,
          "Serve the GPU with this index of all; a worker with `device.kind: "
          "cuda` sets this and the next two.");
ABSL_FLAG(int, gpus, 0, "The number of all GPUs.");
ABSL_FLAG(std::string, gpu_uuid, "", "The GPU's UUID.");

namespace djinn::worker {
namespace {

// Returns the configuration of this process: of the worker, or of the worker of
// one of all GPUs.
absl::StatusOr<WorkerConfig> ReadOwnConfig(ConfigReader reader) {
  DJINN_ASSIGN_OR_RETURN(WorkerConfig config,
                         ReadWorkerConfig(std::move(reader)));
  const int gpu = absl::GetFlag(FLAGS_gpu);
  if (gpu < 0) return config;
  if (!config.all_gpus) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                     "device.kind no longer means all GPUs: restart the worker "
                     "that serves them");
  }
  return ConfigOfGpu(config, gpu, absl::GetFlag(FLAGS_gpus),
                     absl::GetFlag(FLAGS_gpu_uuid));
}

// Returns the libraries without which the worker starts as well.
std::vector<std::string> OptionalLibraries(const WorkerConfig& config) {
  std::vector<std::string> paths = config.optional_operator_libraries;
  if (!config.installed_operator_libraries) return paths;
  for (std::string& path : InstalledOperatorLibraries()) {
    paths.push_back(std::move(path));
  }
  return paths;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const WorkerConfig& config) {
  if (config.device_kind == "fake") {
    return std::make_unique<FakeDevice>(config.device_memory);
  }
  if (config.device_kind == "cuda") {
    return LoadCudaDevice(
        config.device_plugin.empty() ? FindCudaPlugin() : config.device_plugin,
        {.ordinal = config.device_ordinal,
         .memory_bytes = config.device_memory,
         .graph_bytes = config.graph_memory,
         .graphs = config.graphs,
         .fuse_attention = config.fuse_attention,
         .operator_libraries = config.operator_libraries,
         .optional_operator_libraries = OptionalLibraries(config),
         .process_bytes = config.process_memory});
  }
  return MakeCpuDevice(
      {.memory_bytes = config.device_memory,
       .threads = config.device_threads,
       .packed_weights = config.packed_weights,
       .packed_weight_bytes = config.packed_weight_memory,
       .fuse_attention = config.fuse_attention,
       .operator_libraries = config.operator_libraries,
       .optional_operator_libraries = OptionalLibraries(config),
       .one_tenant = config.one_tenant,
       .longest_call = config.longest_call});
}

// OpenMP's threads spin for milliseconds between parallel regions by default,
// so an idle worker takes cores from the clients on its machine. A short spin
// still catches the next operator. The runtime reads its settings when it is
// loaded, so the program restarts itself with these settings; descriptors and
// the process id stay. A wait policy that is set in the environment takes
// precedence.
void RestartWithDrowsyThreads(char** argv) {
  constexpr char kPolicy[] = "OMP_WAIT_POLICY";
  if (std::getenv(kPolicy) != nullptr) return;
  setenv(kPolicy, "passive", /*overwrite=*/1);
  // Tens of microseconds.
  setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  // Uses the program's own path; otherwise the process would be called "exe".
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length > 0) {
    path[length] = '\0';
    execv(path, argv);
  }
  std::perror("djinn-worker: cannot restart with OMP_WAIT_POLICY=passive");
}

// Ends the process when the device is broken, as a signal would, and with a
// failing exit status. A supervisor must restart it.
class EndWhenBroken {
 public:
  void operator()(const absl::Status& why) {
    log::Error("the device is broken, ending", {{"error", why}});
    broken_ = true;
    kill(getpid(), SIGTERM);
  }
  bool broken() const { return broken_; }

 private:
  std::atomic<bool> broken_{false};
};

// Returns an empty speed where it cannot be measured; placement then treats it
// as unknown.
v1::DeviceSpeed MeasureSpeed(const WorkerConfig& config, Device* device) {
  if (config.device_kind == "fake") return {};
  absl::StatusOr<v1::DeviceSpeed> speed =
      MeasureDeviceSpeed(device, Clock::Real());
  if (speed.ok()) return *std::move(speed);
  log::Warning(
      "the device's speed was not measured; placement treats it as unknown",
      {{"error", speed.status()}});
  return {};
}

// Makes the device, and completes the configuration with what it shows.
absl::StatusOr<std::unique_ptr<Device>> MakeMeasuredDevice(
    WorkerConfig* config) {
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeDevice(*config));
  if (config->device_kind == "cpu") config->numerics = CpuNumerics();
  if (config->calibrate) {
    config->speed = MeasureSpeed(*config, device.get());
  } else if (config->one_tenant && config->device_kind == "cuda") {
    // Has the driver and PyTorch prepare what they need while the executor may
    // still open files. Its speed is known.
    (void)MeasureSpeed(*config, device.get());
  }
  log::Info("device ready",
            {{"worker", config->worker_id},
             {"device", device->name()},
             {"flops_per_second", config->speed.flops_per_second()},
             {"bytes_per_second", config->speed.bytes_per_second()}});
  return device;
}

bool IsExecutor(int argc, char** argv) {
  return argc == 2 && absl::string_view(argv[1]) == "--executor";
}

int Main(int argc, char** argv) {
  if (IsExecutor(argc, argv)) {
    return RunExecutor(MakeMeasuredDevice, WrapHostMemory);
  }
  EndWhenBroken end;
  WorkerConfig config;
  std::unique_ptr<Worker> worker;
  // Replaces the other one where tenants have processes of their own.
  std::unique_ptr<SupervisedWorker> supervised;
  // Replaces both where there is a worker for each GPU.
  std::unique_ptr<AllGpusWorker> all_gpus;
  Daemon daemon;
  daemon.role = "worker";
  daemon.configure = [&](ConfigReader reader) -> absl::Status {
    DJINN_ASSIGN_OR_RETURN(config, ReadOwnConfig(std::move(reader)));
    return absl::OkStatus();
  };
  daemon.start = [&]() -> absl::StatusOr<std::string> {
    if (config.all_gpus) {
      DJINN_ASSIGN_OR_RETURN(
          all_gpus, AllGpusWorker::Start(config, ConfigPath(), Clock::Real()));
      return all_gpus->address();
    }
    log::Info(config.isolated
                  ? "each tenant has a process of its own"
                  : "tenants share this process, which a misbehaving kernel "
                    "could read and end",
              {{"isolation.mode", config.isolated ? "process" : "shared"}});
    if (config.isolated) {
      DJINN_ASSIGN_OR_RETURN(
          supervised,
          SupervisedWorker::Start(config, Clock::Real(), RandomSource::Real()));
      return supervised->address();
    }
    DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                           MakeMeasuredDevice(&config));
    DJINN_ASSIGN_OR_RETURN(
        worker, Worker::Start(config, std::move(device), Clock::Real(),
                              RandomSource::Real(),
                              [&end](const absl::Status& why) { end(why); }));
    return worker->address();
  };
  daemon.monitoring_address = [&] {
    return all_gpus != nullptr     ? all_gpus->monitoring_address()
           : supervised != nullptr ? supervised->monitoring_address()
                                   : worker->monitoring_address();
  };
  daemon.reload = [&] {
    const absl::StatusOr<WorkerConfig> read =
        ReadOwnConfig(ConfigReader::FromFile(ConfigPath()));
    if (all_gpus != nullptr) {
      all_gpus->Reload(read);
    } else if (supervised != nullptr) {
      supervised->Reload(read);
    } else {
      worker->Reload(read);
    }
  };
  daemon.drain = [&](const Daemon::WaitFunction& wait) {
    if (all_gpus != nullptr) {
      all_gpus->Drain(wait);
    } else if (supervised != nullptr) {
      supervised->Drain(wait);
    } else if (!end.broken()) {
      worker->Drain(wait);
    }
  };
  daemon.stop = [&] {
    if (all_gpus != nullptr) {
      all_gpus->Stop();
    } else if (supervised != nullptr) {
      supervised->Stop();
    } else {
      worker->Stop();
    }
  };
  daemon.failed = [&] { return end.broken(); };
  return RunDaemon(daemon, argc, argv);
}

}  // namespace
}  // namespace djinn::worker

int main(int argc, char** argv) {
  djinn::worker::RestartWithDrowsyThreads(argv);
  return djinn::worker::Main(argc, argv);
}
