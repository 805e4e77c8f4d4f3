#include "gpu_worker/supervised_worker.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/metrics/process_metrics.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "common/net/monitoring/certificate_metrics.h"
#include "common/net/tls/tls.h"
#include "common/net/tracing/tracing.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "gpu_worker/gpu_list.h"
#include "gpu_worker/nvml/nvml.h"
#include "gpu_worker/pull/grpc_peers.h"
#include "gpu_worker/registry/grpc_registry.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// Contents that the supervisor reports besides those of executors.
constexpr size_t kMaxContents = 65536;
constexpr absl::Duration kStep = absl::Milliseconds(100);
constexpr absl::Duration kTlsInterval = absl::Seconds(kTlsRefreshSeconds);
// Most descriptors of contents, as far as the system's limit allows.
constexpr uint64_t kMaxDescriptors = 65536;
// Where the system does not tell its limit.
constexpr size_t kFewDescriptors = 256;
constexpr char kHealthName[] = "djinn.v1.Execution";
// Address space of an executor beyond its memory: stacks, shared-memory rings,
// and what operators need for a while.
constexpr uint64_t kMoreAddressSpace = uint64_t{16} << 30;
// The part of an executor's memory on a GPU that is for values; the rest is for
// operators' temporaries. A worker without executors divides alike
// (cuda_accelerator.cc).
constexpr double kUsedMemory = 0.85;

// Returns how many descriptors contents may take. Raises the limit of this
// process as far as it may, because services start with a low one. Executors
// keep the former limit (process_launcher.cc).
size_t DescriptorsForContents() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewDescriptors;
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
    limit = raised;
  } else {
    log::Warning("the limit of open files is not raised, and bounds contents",
                 {{"limit", limit.rlim_cur}, {"error", std::strerror(errno)}});
  }
  return std::min<uint64_t>(limit.rlim_cur / 2, kMaxDescriptors);
}

// Returns which GPU to watch: the one that executors use. The supervisor has no
// CUDA context that could tell, and `cuda:N` counts the visible GPUs, in the
// order that Start() sets.
GpuMonitorOptions GpuOf(const WorkerConfig& config) {
  GpuMonitorOptions gpu;
  gpu.library = config.nvml_library;
  gpu.uuid = config.gpu_uuid;
  gpu.index = config.device_ordinal;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!gpu.uuid.empty() || visible == nullptr) return gpu;
  const auto nvml = Nvml::Open(gpu.library);
  // The monitor says what is missing.
  if (!nvml.ok()) return gpu;
  const auto uuids = ListGpus(**nvml, absl::string_view(visible));
  const auto index = static_cast<size_t>(config.device_ordinal);
  // A name that NVML does not know leaves the GPU unwatched.
  gpu.uuid = uuids.ok() && index < uuids->size() ? (*uuids)[index] : visible;
  return gpu;
}

}  // namespace

// Tells clients that they must use the address of their lease, and other
// workers the address of the executor that has a session.
class ExecutorAddressService : public v1::Execution::Service {
 public:
  ExecutorAddressService(const Supervisor* supervisor, uint64_t incarnation,
                         CallMetrics* calls, UnprovenConnections* unproven)
      : supervisor_(*supervisor),
        incarnation_(incarnation),
        calls_(calls),
        unproven_(unproven) {}

  grpc::Status Control(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ControlResponse, v1::ControlRequest>*
      /*stream*/) override {
    return CountedStream(calls_, "djinn.v1.Execution/Control")
        .EndWithoutSizes(Refuse());
  }
  grpc::Status Bulk(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::BulkChunk, v1::BulkChunk>* /*stream*/)
      override {
    return CountedStream(calls_, "djinn.v1.Execution/Bulk")
        .EndWithoutSizes(Refuse());
  }
  grpc::Status Pull(grpc::ServerContext* context,
                    const v1::PullRequest* request,
                    grpc::ServerWriter<v1::PullResponse>* /*writer*/) override {
    return CountedStream(calls_, "djinn.v1.Execution/Pull")
        .EndWithoutSizes(Redirect(*context, request));
  }

 private:
  grpc::Status Redirect(const grpc::ServerContext& context,
                        const v1::PullRequest* request) const {
    if (request->worker_incarnation() != incarnation_) {
      return ToGrpcStatus(
          MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                    "the worker restarted since the bytes were offered"));
    }
    const std::string address = supervisor_.AddressOf(request->session_id());
    if (address.empty()) return ToGrpcStatus(OfferTable::Unknown());
    // Only a worker that was told of an offer knows the id of a session.
    NoteProven(context, unproven_);
    return ToGrpcStatus(
        MakeError(absl::StatusCode::kFailedPrecondition, kRedirectReason,
                  "another process of this worker has the session",
                  {{kRedirectAddress, address}}));
  }

  static grpc::Status Refuse() {
    return ToGrpcStatus(MakeError(
        absl::StatusCode::kFailedPrecondition, kRedirectReason,
        "each tenant has an address of its own at this worker, which the "
        "coordinator names with the lease"));
  }

  const Supervisor& supervisor_;
  const uint64_t incarnation_;
  CallMetrics* const calls_;
  UnprovenConnections* const unproven_;
};

v1::ExecutorSetup SetupOf(const WorkerConfig& config) {
  v1::ExecutorSetup setup;
  setup.set_insecure(config.insecure);
  setup.set_device_kind(config.device_kind);
  setup.set_threads(config.device_threads);
  setup.set_packed_weights(config.packed_weights);
  setup.set_packed_weight_memory(config.packed_weight_memory /
                                 config.executors);
  setup.set_fuse_attention(config.fuse_attention);
  setup.mutable_operator_libraries()->Assign(config.operator_libraries.begin(),
                                             config.operator_libraries.end());
  setup.mutable_optional_operator_libraries()->Assign(
      config.optional_operator_libraries.begin(),
      config.optional_operator_libraries.end());
  setup.set_installed_operator_libraries(config.installed_operator_libraries);
  *setup.mutable_longest_call() = ToProtoDuration(config.longest_call);
  setup.set_calibrate(config.calibrate);
  if (config.speed.flops_per_second() > 0) {
    *setup.mutable_speed() = config.speed;
  }
  *setup.mutable_heartbeat_interval() =
      ToProtoDuration(config.heartbeat_interval);
  *setup.mutable_transfer_idle_timeout() =
      ToProtoDuration(config.transfer_idle_timeout);
  *setup.mutable_offer_timeout() = ToProtoDuration(config.offer_timeout);
  *setup.mutable_resume_timeout() = ToProtoDuration(config.resume_timeout);
  setup.set_max_connections(config.max_connections);
  setup.set_graph_cache_entries(config.graph_cache_entries);
  setup.set_max_batch_runs(config.max_batch_runs);
  setup.set_tokens_first(config.tokens_first);
  setup.set_tracing(!config.tracing.endpoint.empty());
  setup.set_trace_sample_ratio(config.tracing.sample_ratio);
  const uint64_t part = config.device_memory / config.executors;
  if (config.device_kind == "cuda") {
    setup.set_device_ordinal(config.device_ordinal);
    setup.set_device_plugin(config.device_plugin);
    setup.set_nvml_library(config.nvml_library);
    setup.set_graph_memory(config.graph_memory / config.executors);
    setup.set_graphs(config.graphs);
    setup.set_process_memory(
        static_cast<uint64_t>(static_cast<double>(part) / kUsedMemory));
    // The driver reserves addresses for all GPUs.
    setup.set_data_bytes(part + kMoreAddressSpace);
  } else {
    setup.set_address_space_bytes(2 * part + kMoreAddressSpace);
  }
  return setup;
}

WorkerConfig ConfigOf(const v1::ExecutorSetup& setup) {
  WorkerConfig config;
  config.worker_id = setup.worker_id();
  config.one_tenant = true;
  // The listener is bound; the name appears in no message.
  config.listen = "unix:executor";
  config.insecure = setup.insecure();
  config.device_kind = setup.device_kind();
  config.device_memory = setup.memory_bytes();
  config.device_threads = setup.threads();
  config.packed_weights = setup.packed_weights();
  config.packed_weight_memory = setup.packed_weight_memory();
  config.fuse_attention = setup.fuse_attention();
  config.operator_libraries.assign(setup.operator_libraries().begin(),
                                   setup.operator_libraries().end());
  config.optional_operator_libraries.assign(
      setup.optional_operator_libraries().begin(),
      setup.optional_operator_libraries().end());
  config.installed_operator_libraries = setup.installed_operator_libraries();
  config.longest_call = FromProtoDuration(setup.longest_call());
  config.calibrate = setup.calibrate();
  config.speed = setup.speed();
  config.heartbeat_interval = FromProtoDuration(setup.heartbeat_interval());
  config.transfer_idle_timeout =
      FromProtoDuration(setup.transfer_idle_timeout());
  config.offer_timeout = FromProtoDuration(setup.offer_timeout());
  config.resume_timeout = FromProtoDuration(setup.resume_timeout());
  config.max_connections = setup.max_connections();
  config.graph_cache_entries = setup.graph_cache_entries();
  config.max_batch_runs = setup.max_batch_runs();
  config.tokens_first = setup.tokens_first();
  config.device_ordinal = setup.device_ordinal();
  config.device_plugin = setup.device_plugin();
  config.graph_memory = setup.graph_memory();
  if (config.device_kind == "cuda") config.graphs = setup.graphs();
  config.process_memory = setup.process_memory();
  return config;
}

SupervisedWorker::SupervisedWorker() = default;

absl::StatusOr<std::unique_ptr<SupervisedWorker>> SupervisedWorker::Start(
    const WorkerConfig& config, Clock* clock, RandomSource* random) {
  auto worker = absl::WrapUnique(new SupervisedWorker);
  worker->settings_ = std::make_unique<Settings>(config, clock);
  Settings* const settings = worker->settings_.get();
  if (config.device_kind == "cuda") {
    // Executors inherit it. NVML numbers GPUs in this order, too. No other
    // thread reads the environment yet.
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
    const char* const order = std::getenv("CUDA_DEVICE_ORDER");
    if (config.gpu_uuid.empty() && absl::string_view(order) != "PCI_BUS_ID") {
      log::Warning(
          "health is watched of the GPU of this number in the order of PCI "
          "addresses, which may be another one than executors use",
          {{"worker", config.worker_id}, {"CUDA_DEVICE_ORDER", order}});
    }
  }
  DJINN_RETURN_IF_ERROR(worker->ReachPeers(config, clock));
  worker->launcher_ =
      MakeProcessLauncher({.listen = config.listen,
                           .advertise = config.advertise,
                           .first_port = config.first_executor_port,
                           .last_port = config.last_executor_port,
                           .shared_memory_socket = config.shared_memory_socket,
                           .gpu = config.device_kind == "cuda"});
  if (config.device_kind == "cuda") {
    log::Warning(
        "isolation.mode process is experimental on a GPU: read "
        "docs/design/isolation.md, \"On a GPU\"",
        {{"worker", config.worker_id}});
  }
  worker->arbiter_ = std::make_unique<Arbiter>(clock);
  SupervisorOptions options;
  options.worker_id = config.worker_id;
  options.incarnation = random->NonZero64();
  options.memory_bytes = config.device_memory;
  options.max_executors = config.executors;
  options.node_limit = config.node_limit;
  options.setup = SetupOf(config);
  options.computing_threads = static_cast<size_t>(config.device_threads);
  DJINN_ASSIGN_OR_RETURN(
      worker->spans_,
      StartTracing(config.tracing, "djinn-worker", config.worker_id, clock));
  options.spans = worker->spans_.get();
  options.serve_fetching = [raw = worker.get()](uint64_t executor,
                                                Descriptor socket) {
    return raw->fetching_->Serve(executor, std::move(socket));
  };
  DJINN_RETURN_IF_ERROR(worker->KeepContents(config, clock, random));
  ContentService* const contents = worker->contents_.get();
  if (contents != nullptr) {
    options.serve_contents = [contents](uint64_t executor, Descriptor socket) {
      return contents->Serve(executor, std::move(socket));
    };
  }
  worker->leave_request_.set_worker_id(options.worker_id);
  worker->leave_request_.set_incarnation(options.incarnation);
  const absl::Duration start_timeout = options.start_timeout;
  worker->supervisor_ = std::make_unique<Supervisor>(
      std::move(options), worker->launcher_.get(), worker->arbiter_.get(),
      clock, [raw = worker.get()] { raw->NotifyChange(); });
  Supervisor* const supervisor = worker->supervisor_.get();
  worker->clock_ = clock;
  worker->tls_files_ = config.tls;
  DJINN_RETURN_IF_ERROR(worker->PassTlsOn());
  worker->thread_ = std::thread([raw = worker.get()] { raw->Supervise(); });
  const absl::Time deadline = absl::Now() + start_timeout;
  absl::Status ready = supervisor->Ready();
  while (!ready.ok() && ErrorReason(ready).empty() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
    ready = supervisor->Ready();
  }
  DJINN_RETURN_IF_ERROR(ready);
  worker->service_ = std::make_unique<ExecutorAddressService>(
      supervisor, worker->leave_request_.incarnation(), &worker->call_metrics_,
      &worker->unproven_);
  ServerOptions server_options;
  server_options.address = config.listen;
  server_options.tls = config.tls;
  server_options.insecure = config.insecure;
  server_options.services = {worker->service_.get()};
  server_options.health_services = {kHealthName};
  server_options.serving = false;
  server_options.is_operator = [settings](absl::string_view token) {
    return settings->IsAdminToken(token);
  };
  server_options.call_metrics = &worker->call_metrics_;
  server_options.unproven = &worker->unproven_;
  DJINN_ASSIGN_OR_RETURN(worker->server_, Server::Start(server_options));
  DJINN_ASSIGN_OR_RETURN(
      ChannelSecurity security,
      ChannelSecurity::Make(config.coordinator_tls, config.insecure));
  const GrpcRegistryOptions registry = {
      config.coordinator, [settings] { return settings->join_token(); },
      std::move(security)};
  DJINN_ASSIGN_OR_RETURN(worker->registry_, MakeGrpcRegistry(registry));
  DJINN_ASSIGN_OR_RETURN(worker->leave_, MakeGrpcLeave(registry, clock));
  worker->WatchDevice(config, clock);
  SynchronizerOptions synchronizer_options;
  synchronizer_options.heartbeat_interval = config.heartbeat_interval;
  synchronizer_options.describe_acknowledgement =
      [supervisor](v1::WorkerState* state) {
        supervisor->DescribeEndpoints(state);
      };
  v1::WorkerState always;
  always.set_address(config.advertise.empty() ? worker->server_->address()
                                              : config.advertise);
  {
    MutexLock lock(&worker->mu_);
    worker->synchronizer_ = std::make_unique<Synchronizer>(
        synchronizer_options, worker->registry_.get(), random,
        [supervisor, contents, settings, gpu = worker->gpu_.get(), always] {
          v1::WorkerState state = supervisor->Snapshot();
          if (contents != nullptr) contents->Describe(kMaxContents, &state);
          state.MergeFrom(always);
          settings->AddFacts(&state);
          if (gpu != nullptr) *state.mutable_gpu_health() = gpu->health();
          return state;
        },
        [supervisor, contents,
         pulls = worker->pulls_.get()](const v1::DesiredState& desired) {
          pulls->Learn(desired);
          if (contents != nullptr) {
            contents->SetSharing({desired.sharing_tenants().begin(),
                                  desired.sharing_tenants().end()});
          }
          supervisor->Apply(desired);
        });
  }
  if (worker->gpu_ != nullptr) {
    worker->gpu_->Start([raw = worker.get()] { raw->NotifyChange(); });
  }
  worker->readiness_ = std::make_unique<Readiness>(
      [raw = worker.get()] { return raw->CheckReadiness(); },
      [server = worker->server_.get(), supervisor](bool ready) {
        server->SetServing(ready);
        supervisor->SetServing(ready);
      });
  DJINN_RETURN_IF_ERROR(worker->StartMonitoring(config));
  return worker;
}

void SupervisedWorker::WatchDevice(const WorkerConfig& config, Clock* clock) {
  if (!config.nvml_library.empty()) {
    gpu_ = std::make_unique<GpuMonitor>(GpuOf(config));
  }
  SupervisedDeviceOptions options;
  options.kind = config.device_kind;
  options.memory_bytes = config.device_memory;
  options.min_free_bytes = settings_->min_free_bytes();
  options.gpu = gpu_.get();
  options.said_by_executors = [supervisor = supervisor_.get()] {
    return supervisor->available_bytes();
  };
  options.most_kept_bytes = SetupOf(config).process_memory();
  device_ = std::make_unique<SupervisedDevice>(std::move(options), clock);
}

absl::Status SupervisedWorker::ReachPeers(const WorkerConfig& config,
                                          Clock* clock) {
  DJINN_ASSIGN_OR_RETURN(
      ChannelSecurity security,
      ChannelSecurity::Make(config.peer_tls, config.insecure));
  peer_channels_ = std::make_unique<ChannelPool>(
      ChannelPool::Options{.max_users = kMaxPullsPerChannel}, clock);
  peers_ = MakeGrpcPeers(std::move(security), peer_channels_.get());
  no_offers_ = std::make_unique<OfferTable>(OfferTable::Options(), clock);
  // No incarnation is 0, and no executor asks for a value of this worker.
  pulls_ = std::make_unique<PeerPulls>(config.worker_id, /*incarnation=*/0,
                                       no_offers_.get());
  pulls_->SetConnector(peers_.get());
  fetching_ = std::make_unique<FetchingServer>(
      config.worker_id, pulls_.get(),
      [this](uint64_t executor, const std::string& session_id) {
        return supervisor_->HasSession(executor, session_id);
      });
  return absl::OkStatus();
}

absl::Status SupervisedWorker::KeepContents(const WorkerConfig& config,
                                            Clock* clock,
                                            RandomSource* random) {
  std::unique_ptr<DiskStore> disk;
  if (!config.content_disk_directory.empty()) {
    // Executors wait before they offer a content.
    DJINN_ASSIGN_OR_RETURN(
        disk, DiskStore::Open({.directory = config.content_disk_directory,
                               .limit_bytes = config.content_disk_limit,
                               .write_after = absl::ZeroDuration()},
                              clock));
  }
  if (disk == nullptr && config.content_memory == 0) return absl::OkStatus();
  ContentService::Options options;
  options.worker_id = config.worker_id;
  options.executor_bytes = config.device_memory / config.executors;
  options.kept_bytes = config.content_memory;
  options.executors = config.executors;
  options.descriptors = DescriptorsForContents();
  options.answer_timeout = config.transfer_idle_timeout;
  options.tenant_of = [this](uint64_t executor) {
    return supervisor_->TenantOf(executor);
  };
  options.refuse = [this](uint64_t executor, const absl::Status& why) {
    supervisor_->Refuse(executor, why);
  };
  options.changed = [this] { NotifyChange(); };
  contents_ = std::make_unique<ContentService>(std::move(options),
                                               std::move(disk), clock, random);
  return absl::OkStatus();
}

absl::Status SupervisedWorker::PassTlsOn() {
  if (!tls_files_.enabled()) return absl::OkStatus();
  tls_read_ = clock_->Monotonic();
  DJINN_ASSIGN_OR_RETURN(TlsTexts texts, FitServerTexts(tls_files_));
  if (texts == tls_) return absl::OkStatus();
  tls_ = std::move(texts);
  v1::TlsTexts message;
  message.set_private_key(tls_.private_key);
  message.set_certificate(tls_.certificate);
  message.set_client_ca(tls_.authorities);
  supervisor_->SetTls(message);
  return absl::OkStatus();
}

void SupervisedWorker::Supervise() {
  while (!stopping_) {
    supervisor_->Step(kStep);
    // Files that were fit once leave no error.
    if (clock_->Monotonic() - tls_read_ >= kTlsInterval) {
      PassTlsOn().IgnoreError();
    }
  }
  supervisor_->Stop();
}

void SupervisedWorker::NotifyChange() {
  MutexLock lock(&mu_);
  if (synchronizer_ != nullptr) synchronizer_->NotifyChange();
}

std::vector<ReadinessCheck> SupervisedWorker::CheckReadiness() {
  bool joined = false;
  {
    MutexLock lock(&mu_);
    joined = synchronizer_ != nullptr && synchronizer_->joined();
  }
  std::vector<ReadinessCheck> checks = {
      {"coordinator", joined ? "" : "it does not answer, or not yet"},
      {"executor", std::string(supervisor_->Ready().message())},
      device_->Check()};
  if (gpu_ != nullptr) {
    checks.push_back({"gpu", gpu_->failure(), gpu_->health().source()});
  }
  return checks;
}

absl::Status SupervisedWorker::StartMonitoring(const WorkerConfig& config) {
  if (config.monitoring.listen.empty()) return absl::OkStatus();
  MonitoringOptions options;
  options.address = config.monitoring.listen;
  options.insecure = config.monitoring.insecure;
  options.stand_in = config.monitoring.stand_in;
  options.sources = {
      ProcessMetrics("worker"),
      [this](Exposition* out) { supervisor_->Collect(out); },
      [this](Exposition* out) {
        if (gpu_ != nullptr) gpu_->Collect(leave_request_.worker_id(), out);
      },
      [this](Exposition* out) {
        device_->Collect(leave_request_.worker_id(), out);
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
      },
      [this](Exposition* out) {
        if (contents_ != nullptr) contents_->Collect(out);
      },
      // Executors add to no family before this one, and calls are counted by
      // both.
      [this](Exposition* out) { supervisor_->CollectExecutors(out); },
      // Caches are counted by both, too.
      [this](Exposition* out) {
        if (contents_ != nullptr) contents_->CollectCache(out);
      },
      [this](Exposition* out) { call_metrics_.Collect(out); }};
  options.readiness = [this] { return readiness_->Evaluate(); };
  DJINN_ASSIGN_OR_RETURN(monitoring_, MonitoringPort::Open(std::move(options)));
  return absl::OkStatus();
}

void SupervisedWorker::Reload(const absl::StatusOr<WorkerConfig>& read) {
  if (!settings_->Reload(read)) return;
  device_->SetMinFree(settings_->min_free_bytes());
  NotifyChange();
}

void SupervisedWorker::Drain(const WaitFunction& wait) {
  readiness_->Leave("the worker stops");
  leave_request_.set_known_term(synchronizer_->known_term());
  DrainLeases(leave_request_, leave_, wait, settings_->drain_timeout());
}

SupervisedWorker::~SupervisedWorker() { Stop(); }

void SupervisedWorker::Stop() {
  if (stopping_.exchange(true)) return;
  if (readiness_ != nullptr) readiness_->Leave("the worker stops");
  monitoring_.reset();
  readiness_.reset();
  // Clients hear of the shutdown first; the coordinator sees its stream end
  // last.
  if (thread_.joinable()) {
    supervisor_->Wake();
    thread_.join();
  }
  device_.reset();
  if (gpu_ != nullptr) gpu_->Stop();
  // No executor sends spans any more.
  if (spans_ != nullptr) {
    spans_->Stop();
    const uint64_t dropped = spans_->counts().dropped;
    if (dropped > 0) log::Warning("spans were dropped", {{"count", dropped}});
  }
  std::unique_ptr<Synchronizer> synchronizer;
  {
    MutexLock lock(&mu_);
    synchronizer = std::move(synchronizer_);
  }
  if (synchronizer != nullptr) synchronizer->Stop();
  if (server_ != nullptr) server_->Shutdown(kShutdownGrace);
  server_.reset();
}

}  // namespace djinn::worker
