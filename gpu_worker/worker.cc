#include "gpu_worker/worker.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/metrics/process_metrics.h"
#include "common/net/monitoring/certificate_metrics.h"
#include "common/net/tls/tls.h"
#include "common/net/tracing/tracing.h"
#include "common/transport/shared_memory/shared_memory_stream.h"
#include "common/transport/stream.h"
#include "gpu_worker/pull/grpc_peers.h"
#include "gpu_worker/registry/grpc_registry.h"
#include "gpu_worker/service/execution_service.h"
#include "gpu_worker/store/disk_store.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
constexpr RingSizes kClientRingSizes = {.control = 256 << 10,
                                        .bulk = 4 * kBulkChunkBytes};

// Returns the socket where other workers on this machine fetch values; empty
// when there is none.
std::string PullSocket(const WorkerConfig& config) {
  const std::string& socket = config.shared_memory_socket;
  return socket.empty() ? "" : absl::StrCat(socket, kPullSocketSuffix);
}

// Connects to workers on this machine over shared memory, and to others over
// gRPC.
std::unique_ptr<SharedMemoryPeers> MakeSharedMemoryPeers(
    ChannelSecurity security, ChannelPool* channels, Clock* clock) {
  auto peers = std::make_unique<SharedMemoryPeers>(clock);
  peers->SetOther(MakeGrpcPeers(
      std::move(security), channels,
      [peers = peers.get()](const v1::Peer& peer, const std::string& socket) {
        peers->Learn(peer, socket);
      }));
  return peers;
}

// Returns the state that does not change while the worker serves at `address`.
v1::WorkerState StateOf(const WorkerConfig& config,
                        const std::string& address) {
  v1::WorkerState state;
  state.set_address(address);
  state.set_shared_memory_socket(config.shared_memory_socket);
  state.set_numerics(config.numerics);
  if (config.speed.flops_per_second() > 0) {
    *state.mutable_speed() = config.speed;
  }
  // Tenants may demand a GPU even if the owner did not list it as a capability.
  if (config.device_kind == "cuda") state.add_capabilities("cuda");
  return state;
}

}  // namespace

WorkerCoreOptions Worker::CoreOptions(const WorkerConfig& config) {
  WorkerCoreOptions options;
  options.worker_id = config.worker_id;
  options.transfer_idle_timeout = config.transfer_idle_timeout;
  options.resume_timeout = config.resume_timeout;
  options.max_connections = config.max_connections;
  options.graph_cache.max_plans = config.graph_cache_entries;
  options.max_batch_runs = config.max_batch_runs;
  options.tokens_first = config.tokens_first;
  options.offer_timeout = config.offer_timeout;
  options.min_free_bytes = config.min_free_bytes;
  options.speed = config.speed;
  options.numerics = config.numerics;
  return options;
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(
    const WorkerConfig& config, std::unique_ptr<Device> device, Clock* clock,
    RandomSource* random,
    std::function<void(const absl::Status&)> device_broken) {
  auto worker = absl::WrapUnique(new Worker);
  worker->device_ = std::move(device);
  DJINN_ASSIGN_OR_RETURN(
      ChannelSecurity security,
      ChannelSecurity::Make(config.coordinator_tls, config.insecure));
  worker->settings_ = std::make_unique<Settings>(config, clock);
  Settings* const settings = worker->settings_.get();
  const GrpcRegistryOptions registry = {
      config.coordinator, [settings] { return settings->join_token(); },
      std::move(security)};
  DJINN_ASSIGN_OR_RETURN(worker->registry_, MakeGrpcRegistry(registry));
  DJINN_ASSIGN_OR_RETURN(worker->leave_, MakeGrpcLeave(registry, clock));
  DJINN_ASSIGN_OR_RETURN(
      worker->spans_,
      StartTracing(config.tracing, "djinn-worker", config.worker_id, clock));
  WorkerCoreOptions options = CoreOptions(config);
  options.spans = worker->spans_.get();
  options.device_broken = std::move(device_broken);
  if (!config.content_disk_directory.empty()) {
    DJINN_ASSIGN_OR_RETURN(
        options.store,
        DiskStore::Open({.directory = config.content_disk_directory,
                         .limit_bytes = config.content_disk_limit},
                        clock));
  }
  DJINN_ASSIGN_OR_RETURN(
      ChannelSecurity peer_security,
      ChannelSecurity::Make(config.peer_tls, config.insecure));
  worker->peer_channels_ = std::make_unique<ChannelPool>(
      ChannelPool::Options{.max_users = kMaxPullsPerChannel}, clock);
  ChannelPool* const channels = worker->peer_channels_.get();
  const std::string pull_socket = PullSocket(config);
  if (pull_socket.empty()) {
    // The worker uses shared memory only if others can reach it that way, too.
    worker->peers_ = MakeGrpcPeers(std::move(peer_security), channels);
  } else {
    auto peers =
        MakeSharedMemoryPeers(std::move(peer_security), channels, clock);
    worker->shared_memory_peers_ = peers.get();
    worker->peers_ = std::move(peers);
  }
  worker->core_ = std::make_unique<WorkerCore>(options, worker->device_.get(),
                                               clock, random);
  worker->leave_request_.set_worker_id(config.worker_id);
  worker->leave_request_.set_incarnation(worker->core_->incarnation());
  worker->core_->SetPeers(worker->peers_.get());
  worker->service_ = std::make_unique<ExecutionService>(
      worker->core_.get(), pull_socket, Clock::Real(), &worker->call_metrics_,
      &worker->unproven_);
  ServerOptions server_options;
  server_options.address = config.listen;
  server_options.tls = config.tls;
  server_options.insecure = config.insecure;
  server_options.services = {worker->service_.get()};
  server_options.health_services = {ExecutionService::kHealthName};
  server_options.serving = false;
  server_options.is_operator = [settings](absl::string_view token) {
    return settings->IsAdminToken(token);
  };
  server_options.call_metrics = &worker->call_metrics_;
  server_options.unproven = &worker->unproven_;
  DJINN_ASSIGN_OR_RETURN(worker->server_, Server::Start(server_options));
  DJINN_RETURN_IF_ERROR(worker->StartSharedMemory(config));
  if (!config.nvml_library.empty()) {
    worker->gpu_ = std::make_unique<GpuMonitor>(
        GpuMonitorOptions{.library = config.nvml_library,
                          .uuid = config.gpu_uuid,
                          .bus_id = worker->device_->bus_id(),
                          .index = config.device_ordinal});
  }
  worker->Synchronize(config, random);
  worker->readiness_ = std::make_unique<Readiness>(
      [raw = worker.get()] { return raw->CheckReadiness(); },
      [server = worker->server_.get()](bool ready) {
        server->SetServing(ready);
      });
  DJINN_RETURN_IF_ERROR(worker->StartMonitoring(config));
  return worker;
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::StartExecutor(
    const WorkerConfig& config, ExecutorSeams seams,
    std::unique_ptr<Device> device, Clock* clock, RandomSource* random,
    std::function<void(const absl::Status&)> device_broken) {
  auto worker = absl::WrapUnique(new Worker);
  worker->device_ = std::move(device);
  worker->settings_ = std::make_unique<Settings>(config, clock);
  worker->registry_ = std::move(seams.registry);
  WorkerCoreOptions options = CoreOptions(config);
  options.incarnation = seams.incarnation;
  options.one_tenant = true;
  options.gate = seams.gate;
  options.spans = seams.spans;
  options.store = std::move(seams.contents);
  options.device_broken = std::move(device_broken);
  worker->core_ = std::make_unique<WorkerCore>(options, worker->device_.get(),
                                               clock, random);
  worker->peers_ = std::move(seams.peers);
  worker->core_->SetPeers(worker->peers_.get());
  worker->service_ = std::make_unique<ExecutionService>(
      worker->core_.get(), /*pull_socket=*/"", Clock::Real(),
      &worker->call_metrics_, &worker->unproven_);
  ServerOptions server_options;
  server_options.address = config.listen;
  server_options.listener = seams.listener;
  server_options.tls_from_memory = seams.tls;
  server_options.insecure = config.insecure;
  server_options.services = {worker->service_.get()};
  server_options.health_services = {ExecutionService::kHealthName};
  server_options.serving = false;
  server_options.call_metrics = &worker->call_metrics_;
  server_options.unproven = &worker->unproven_;
  DJINN_ASSIGN_OR_RETURN(worker->server_, Server::Start(server_options));
  worker->shared_memory_listener_ = seams.shared_memory_listener;
  if (seams.shared_memory_listener >= 0) {
    // The sandbox lets an executor make none later.
    DJINN_ASSIGN_OR_RETURN(
        worker->regions_,
        RegionPool::Make(kClientRingSizes,
                         SharedMemoryServer::kMaxConnections));
  }
  worker->Synchronize(config, random);
  return worker;
}

absl::Status Worker::AcceptClients() {
  server_->Accept();
  if (shared_memory_listener_ < 0) return absl::OkStatus();
  return ServeSharedMemory(shared_memory_listener_);
}

void Worker::Synchronize(const WorkerConfig& config, RandomSource* random) {
  SynchronizerOptions synchronizer_options;
  synchronizer_options.heartbeat_interval = config.heartbeat_interval;
  const std::string address =
      config.advertise.empty() ? server_->address() : config.advertise;
  WorkerCore* const core = core_.get();
  Settings* const settings = settings_.get();
  synchronizer_ = std::make_unique<Synchronizer>(
      synchronizer_options, registry_.get(), random,
      [core, settings, gpu = gpu_.get(), always = StateOf(config, address)] {
        v1::WorkerState state = core->Snapshot();
        state.MergeFrom(always);
        settings->AddFacts(&state);
        if (gpu != nullptr) *state.mutable_gpu_health() = gpu->health();
        return state;
      },
      [core](const v1::DesiredState& desired) { core->Apply(desired); });
  const auto notify = [synchronizer = synchronizer_.get()] {
    synchronizer->NotifyChange();
  };
  core->SetChangeListener(notify);
  if (gpu_ != nullptr) gpu_->Start(notify);
}

absl::Status Worker::ServeSharedMemory(int listener) {
  WorkerCore* const core = core_.get();
  SharedMemoryServer::Options options;
  options.path = shared_memory_socket_;
  options.listener = listener;
  options.ring_sizes = kClientRingSizes;
  options.regions = regions_.get();
  options.incarnation = core->incarnation();
  options.serve = [core](SharedConnection connection) {
    core->Attach(MakeSharedMemoryWorkerStream(std::move(connection)));
  };
  DJINN_ASSIGN_OR_RETURN(shared_memory_, SharedMemoryServer::Start(options));
  return absl::OkStatus();
}

absl::Status Worker::StartSharedMemory(const WorkerConfig& config) {
  shared_memory_socket_ = config.shared_memory_socket;
  if (shared_memory_socket_.empty()) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(ServeSharedMemory(/*listener=*/-1));
  pull_connections_ = std::make_unique<PullConnections>(core_.get());
  PullConnections* const connections = pull_connections_.get();
  SharedMemoryServer::Options options;
  options.incarnation = core_->incarnation();
  options.path = PullSocket(config);
  options.ring_sizes = PullConnections::kRingSizes;
  options.serve = [connections](SharedConnection connection) {
    connections->Add(std::move(connection));
  };
  options.tick = [connections, peers = shared_memory_peers_] {
    connections->Tick();
    peers->Tick();
  };
  options.tick_interval = config.transfer_idle_timeout;
  absl::StatusOr<std::unique_ptr<SharedMemoryServer>> server =
      SharedMemoryServer::Start(options);
  if (server.ok()) {
    pull_server_ = *std::move(server);
  } else {
    // Without it, workers fetch values over the network.
    log::Warning("other workers do not find this one over shared memory",
                 {{"error", server.status()}});
  }
  return absl::OkStatus();
}

std::vector<ReadinessCheck> Worker::CheckReadiness() const {
  const DeviceWatch& device = *core_->device_watch();
  std::vector<ReadinessCheck> checks = {
      {"coordinator",
       synchronizer_->joined() ? "" : "it does not answer, or not yet"},
      {"device", device.failure(), device.detail()}};
  if (gpu_ != nullptr) {
    checks.push_back({"gpu", gpu_->failure(), gpu_->health().source()});
  }
  return checks;
}

void Worker::Collect(Exposition* out) const {
  core_->Collect(out);
  call_metrics_.Collect(out);
}

void Worker::Declare(Exposition* out) const {
  Collect(out);
  CallMetrics::Declare(out);
}

absl::Status Worker::StartMonitoring(const WorkerConfig& config) {
  if (config.monitoring.listen.empty()) return absl::OkStatus();
  MonitoringOptions options;
  options.address = config.monitoring.listen;
  options.insecure = config.monitoring.insecure;
  options.stand_in = config.monitoring.stand_in;
  options.sources = {
      ProcessMetrics("worker"),
      [this](Exposition* out) { Collect(out); },
      [this](Exposition* out) {
        if (gpu_ != nullptr) gpu_->Collect(leave_request_.worker_id(), out);
      },
      [this](Exposition* out) { CollectSpans(spans_.get(), out); },
      [this](Exposition* out) { readiness_->Collect(out); },
      [this](Exposition* out) { settings_->Collect(out); },
      CertificateMetrics(
          {{"tls", config.tls.certificate_file},
           {"coordinator_tls", config.coordinator_tls.certificate_file},
           {"peer_tls", config.peer_tls.certificate_file}}),
      [this](Exposition* out) {
        CollectChannels(peer_channels_->counts(), out);
      }};
  options.readiness = [this] { return readiness_->Evaluate(); };
  DJINN_ASSIGN_OR_RETURN(monitoring_, MonitoringPort::Open(std::move(options)));
  return absl::OkStatus();
}

Worker::~Worker() { Stop(); }

void Worker::Reload(const absl::StatusOr<WorkerConfig>& read) {
  if (!settings_->Reload(read)) return;
  core_->device_watch()->SetMinFree(settings_->min_free_bytes());
  synchronizer_->NotifyChange();
}

void Worker::Drain(const WaitFunction& wait) {
  readiness_->Leave("the worker stops");
  leave_request_.set_known_term(synchronizer_->known_term());
  DrainLeases(leave_request_, leave_, wait, settings_->drain_timeout());
}

void Worker::Stop() {
  if (server_ == nullptr) return;
  if (readiness_ != nullptr) readiness_->Leave("the worker stops");
  monitoring_.reset();
  readiness_.reset();
  shared_memory_.reset();
  pull_server_.reset();
  // Clients hear of the shutdown first; the coordinator sees its stream end
  // last.
  core_->Shutdown();
  server_->Shutdown(kShutdownGrace);
  // Copies over shared memory may finish until here, like those over gRPC.
  pull_connections_.reset();
  if (gpu_ != nullptr) gpu_->Stop();
  if (synchronizer_ != nullptr) synchronizer_->Stop();
  server_.reset();
}

}  // namespace djinn::worker
