#include "gpu_worker/executor_main.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/tls/tls_from_memory.h"
#include "gpu_worker/device/memory_gauge.h"
#include "gpu_worker/nvml/context_meter.h"
#include "gpu_worker/sandbox/file_broker.h"
#include "gpu_worker/sandbox/nvidia_profile.h"
#include "gpu_worker/sandbox/sandbox.h"
#include "gpu_worker/supervised_worker.h"
#include "gpu_worker/supervisor/fetching.h"
#include "gpu_worker/supervisor/launcher.h"
#include "gpu_worker/supervisor/metrics/joined_metrics.h"
#include "gpu_worker/supervisor/span_buffer.h"
#include "gpu_worker/supervisor/supervision_link.h"
#include "gpu_worker/supervisor/turn_word.h"
#include "gpu_worker/worker.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kHealthInterval = absl::Seconds(1);
constexpr absl::Duration kMetricsInterval = absl::Seconds(5);
// A worker kills executors that take longer.
constexpr absl::Duration kStopTimeout = absl::Seconds(4);

// Lets the worker own the way to the supervisor, which this thread uses, too.
class SharedLink : public RegistryConnector {
 public:
  explicit SharedLink(SupervisionLink* link) : link_(link) {}
  std::unique_ptr<RegistryStream> Open() override { return link_->Open(); }

 private:
  SupervisionLink* const link_;
};

TlsTexts TextsOf(const v1::TlsTexts& texts) {
  return {texts.private_key(), texts.certificate(), texts.client_ca()};
}

// Shows that the executor lives, and what it counts, until the supervisor is
// gone. Meanwhile gRPC health follows the supervisor's.
void ReportHealth(SupervisionLink* link, SpanBuffer* spans, Worker* worker) {
  absl::Duration sent;
  bool serving = false, told = false;
  while (!link->AwaitEnd(kHealthInterval, &serving)) {
    // Watchers hear of every call.
    if (serving != std::exchange(told, serving)) worker->SetServing(serving);
    v1::FromExecutor message;
    message.mutable_health()->set_refused_system_calls(RefusedSystemCalls());
    message.mutable_health()->set_mark(worker->MarkProgress());
    message.mutable_health()->set_available_bytes(worker->available_bytes());
    link->Send(message);
    for (size_t sent_spans = 0; sent_spans < SpanBuffer::kMaxSpans;
         sent_spans += SpanBuffer::kMaxTogether) {
      std::optional<v1::ExecutorSpans> next = spans->Take();
      if (!next.has_value()) break;
      *message.mutable_spans() = *std::move(next);
      link->Send(message);
    }
    const absl::Duration now = Clock::Real()->Monotonic();
    if (now - sent < kMetricsInterval) continue;
    sent = now;
    Exposition metrics;
    worker->Collect(&metrics);
    *message.mutable_metrics() = JoinedMetrics::Encode(metrics);
    link->Send(message);
  }
}

// The parts that only an executor on a GPU has. They must live as long as the
// process.
struct GpuParts {
  std::optional<FileBroker> files;
  std::optional<ContextMeter> meter;
};

// Call it before the process has a thread or uses a GPU.
absl::Status PrepareForGpu(const v1::ExecutorSetup& setup, GpuParts* gpu) {
  DJINN_ASSIGN_OR_RETURN(FileBroker files, FileBroker::Fork());
  gpu->files.emplace(std::move(files));
  // The driver would write the kernels that it compiles to files.
  setenv("CUDA_CACHE_DISABLE", "1", /*overwrite=*/1);
  absl::StatusOr<ContextMeter> meter =
      ContextMeter::Start(setup.nvml_library());
  if (meter.ok()) {
    gpu->meter.emplace(*std::move(meter));
  } else {
    log::Warning("the executor's memory on the GPU is not measured",
                 {{"error", meter.status()}});
  }
  return absl::OkStatus();
}

// Adds to `ready` what the executor takes on its GPU.
void MeasureContext(const GpuParts& gpu, const Device& device,
                    v1::ExecutorReady* ready) {
  if (!gpu.meter.has_value()) return;
  const auto* const gauge = dynamic_cast<const MemoryGauge*>(&device);
  const absl::StatusOr<uint64_t> available =
      gauge == nullptr ? absl::UnimplementedError("the device has no gauge")
                       : gauge->AvailableBytes();
  const absl::StatusOr<ContextMeter::Reading> reading =
      available.ok() ? gpu.meter->Read(device.bus_id(), *available)
                     : available.status();
  if (!reading.ok()) {
    log::Warning("the executor's memory on the GPU is not measured",
                 {{"error", reading.status()}});
    return;
  }
  ready->mutable_gpu_memory()->set_free_bytes(reading->free_bytes);
  ready->mutable_gpu_memory()->set_context_bytes(reading->context_bytes);
}

absl::Status Serve(SupervisionLink* link, const MakeDeviceFunction& make_device,
                   const WrapMemory& wrap, GpuParts* gpu) {
  DJINN_ASSIGN_OR_RETURN(const v1::ExecutorSetup setup, link->ReadSetup());
  // Closes what the supervisor had open there, before something else is.
  if (setup.shared_memory_listener_fd() == 0) close(kSharedMemoryListenerFd);
  if (setup.contents_fd() == 0) close(kContentsFd);
  WorkerConfig config = ConfigOf(setup);
  const bool on_gpu = config.device_kind == "cuda";
  if (on_gpu) DJINN_RETURN_IF_ERROR(PrepareForGpu(setup, gpu));
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, make_device(&config));
  v1::FromExecutor ready;
  ready.mutable_ready()->set_device(device->name());
  if (on_gpu) MeasureContext(*gpu, *device, ready.mutable_ready());
  const std::string bus_id = device->bus_id();
  *ready.mutable_ready()->mutable_speed() = config.speed;
  ready.mutable_ready()->set_numerics(config.numerics);
  ExecutorSeams seams;
  seams.registry = std::make_unique<SharedLink>(link);
  seams.incarnation = setup.incarnation();
  seams.listener = setup.listener_fd();
  if (setup.shared_memory_listener_fd() > 0) {
    seams.shared_memory_listener = setup.shared_memory_listener_fd();
  }
  std::optional<TlsFromMemory> tls;
  if (setup.has_tls()) {
    tls.emplace(TextsOf(setup.tls()));
    link->SetTlsListener(
        [&tls](const v1::TlsTexts& texts) { tls->Replace(TextsOf(texts)); });
    seams.tls = &*tls;
  }
  seams.peers = MakeSupervisorPeers(Descriptor(setup.fetching_fd()));
  if (setup.contents_fd() > 0) {
    SupervisorStore::Options options;
    if (config.device_kind == "cpu") options.wrap = wrap;
    seams.contents = std::make_shared<SupervisorStore>(
        Descriptor(setup.contents_fd()), std::move(options), Clock::Real());
  }
  DJINN_ASSIGN_OR_RETURN(TurnWord word, TurnWord::Map(setup.turn_word_fd()));
  close(setup.turn_word_fd());
  SharedTurnGate gate(std::move(word), Descriptor(setup.turn_event_fd()));
  seams.gate = &gate;
  SpanBuffer spans(setup.trace_sample_ratio());
  if (setup.tracing()) seams.spans = &spans;
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<Worker> worker,
      Worker::StartExecutor(
          config, std::move(seams), std::move(device), Clock::Real(),
          RandomSource::Real(), [](const absl::Status& why) {
            log::Error("the device is broken, ending", {{"error", why}});
            std::_Exit(EXIT_FAILURE);
          }));
  SandboxOptions sandbox;
  sandbox.added_address_space = setup.address_space_bytes();
  sandbox.added_data = setup.data_bytes();
  if (on_gpu) {
    // All libraries that are loaded so far are known now.
    DJINN_ASSIGN_OR_RETURN(const FileRules rules, FilesOfGpu(bus_id));
    DJINN_RETURN_IF_ERROR(gpu->files->Confine(rules));
    sandbox.files = &*gpu->files;
    sandbox.nvidia = true;
  }
  DJINN_RETURN_IF_ERROR(EnterSandbox(sandbox));
  Exposition declared;
  worker->Declare(&declared);
  v1::FromExecutor families;
  *families.mutable_metrics() = JoinedMetrics::Encode(declared);
  link->Send(families);
  link->Send(ready);
  std::thread health([&] { ReportHealth(link, &spans, worker.get()); });
  absl::Status accepting;
  // Leases are known before the first client that has one is served.
  if (link->AwaitOrders()) accepting = worker->AcceptClients();
  if (!accepting.ok()) {
    log::Error("cannot serve clients", {{"error", accepting}});
    std::_Exit(EXIT_FAILURE);
  }
  health.join();
  std::thread([] {
    absl::SleepFor(kStopTimeout);
    std::_Exit(EXIT_FAILURE);
  }).detach();
  worker->Stop();
  return absl::OkStatus();
}

}  // namespace

int RunExecutor(const MakeDeviceFunction& make_device, const WrapMemory& wrap) {
  const absl::Status prepared = PrepareSandbox(kLastFd);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  log::Configure("executor", log::Level::kInfo);
  std::signal(SIGPIPE, SIG_IGN);
  // The supervisor receives these, and ends its executors.
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  absl::Status served = prepared;
  GpuParts gpu;
  if (served.ok()) {
    SupervisionLink link{Descriptor(kSupervisionFd)};
    served = Serve(&link, make_device, wrap, &gpu);
  }
  if (!served.ok()) log::Error("executor failed", {{"error", served}});
  // Skips destructors of libraries, some of which use files.
  std::_Exit(served.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace djinn::worker
