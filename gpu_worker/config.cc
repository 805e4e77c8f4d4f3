#include "gpu_worker/config.h"

#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/net/server_address.h"
#include "common/net/tls_config.h"

namespace djinn::worker {
namespace {

constexpr int kMaxThreads = 1024;
// Leaves room for the suffix and the final zero of the pull socket's path.
constexpr size_t kMaxSocketPath =
    sizeof(sockaddr_un::sun_path) - sizeof(kPullSocketSuffix);
constexpr int kMaxOrdinal = 127;
// "-gpu" and a number.
constexpr size_t kGpuSuffixSize = 7;
// The name under which NVIDIA's driver installs its management library.
constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";
// Operators' temporaries have no other limit.
constexpr uint64_t kCudaMinFreeBytes = uint64_t{2} << 30;
// Endpoints of tenants in a report.
constexpr uint64_t kMaxExecutors = 256;
// Runs of a batch multiply their rows together, and hold their memory together.
constexpr uint64_t kMaxBatchRuns = 64;

// Leaves half of the memory to other processes on the machine.
uint64_t HalfOfMachineMemory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) / 2;
}

std::vector<v1::Phase> ReadPhases(ConfigMap* root) {
  std::vector<v1::Phase> phases;
  for (const std::string& name : root->Strings("phases")) {
    v1::Phase phase;
    if (v1::Phase_Parse("PHASE_" + absl::AsciiStrToUpper(name), &phase) &&
        phase != v1::PHASE_UNSPECIFIED) {
      phases.push_back(phase);
    } else {
      root->Error("phases", "there is no phase \"" + name + "\"");
    }
  }
  return phases;
}

v1::DeviceSpeed ReadSpeed(ConfigMap map) {
  v1::DeviceSpeed speed;
  speed.set_flops_per_second(map.Number("flops_per_second", 0));
  speed.set_bytes_per_second(map.Number("bytes_per_second", 0));
  speed.set_seconds_per_call(
      absl::ToDoubleSeconds(map.Duration("seconds_per_call", {})));
  for (const auto& [key, value] :
       {std::pair("flops_per_second", speed.flops_per_second()),
        std::pair("bytes_per_second", speed.bytes_per_second())}) {
    if (!(value > 0)) map.Error(key, "a positive number is required");
  }
  return speed;
}

// Reads "first-last".
bool ReadPorts(const std::string& text, WorkerConfig* config) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  uint32_t first = 0;
  uint32_t last = 0;
  if (!absl::SimpleAtoi(ends.first, &first) ||
      !absl::SimpleAtoi(ends.second, &last) || first == 0 || first > last ||
      last > 65535) {
    return false;
  }
  config->first_executor_port = static_cast<uint16_t>(first);
  config->last_executor_port = static_cast<uint16_t>(last);
  return true;
}

// Reads the kind and number of the device, or that all GPUs are meant.
void ReadKind(ConfigMap* root, ConfigMap* device, WorkerConfig* config) {
  config->device_kind = device->String("kind", "cpu");
  absl::string_view ordinal = config->device_kind;
  if (absl::ConsumePrefix(&ordinal, "cuda:") &&
      absl::SimpleAtoi(ordinal, &config->device_ordinal) &&
      config->device_ordinal >= 0 && config->device_ordinal <= kMaxOrdinal) {
    config->device_kind = "cuda";
  } else if (config->device_kind == "cuda" ||
             config->device_kind == "fake:all") {
    config->all_gpus = true;
    config->device_kind = config->device_kind == "cuda" ? "cuda" : "fake";
  } else if (config->device_kind != "cpu" && config->device_kind != "fake") {
    device->Error("kind",
                  "cpu, cuda for all GPUs, cuda:N with a device's number, or "
                  "fake");
  }
  if (config->all_gpus && !config->shared_memory_socket.empty() &&
      config->shared_memory_socket.size() + kGpuSuffixSize > kMaxSocketPath) {
    root->Error("shared_memory_socket",
                absl::StrCat("at most ", kMaxSocketPath - kGpuSuffixSize,
                             " characters, the folder included, because each "
                             "GPU's has a suffix"));
  }
}

// Notes an error where a default would decide between tenants of other hosts
// that share a process and a mode that is experimental on the device.
void DemandMode(const WorkerConfig& config, ConfigMap* isolation) {
  if (config.device_kind != "cuda") return;
  isolation->Error(
      "mode",
      "required where a worker listens off loopback and has a cuda device. Say "
      "shared if all tenants trust each other, or process, which is "
      "experimental on a GPU");
}

// Notes an error where a process could pass on what the supervisor lends it:
// over a Unix socket, a tenant that took its process over could hand a client
// descriptors of contents, which the client may empty under other tenants.
void RefuseUnixSocketsForContents(const WorkerConfig& config, ConfigMap* root) {
  std::vector<absl::string_view> sockets;
  if (absl::StartsWith(config.listen, "unix:")) {
    sockets.push_back("a Unix socket in listen");
  }
  if (!config.shared_memory_socket.empty()) {
    sockets.push_back("shared_memory_socket");
  }
  if (sockets.empty()) return;
  const std::string why = absl::StrCat(
      "not beside ", absl::StrJoin(sockets, " and "),
      " where isolation.mode is process: over a Unix socket, a tenant's "
      "process could pass on memory that other tenants use");
  if (config.content_memory > 0) root->Error("isolation.content_memory", why);
  if (!config.content_disk_directory.empty()) root->Error("content_disk", why);
}

// Reads the map under `isolation`, once the rest of `config` is read.
void ReadIsolation(ConfigMap* root, WorkerConfig* config) {
  ConfigMap map = root->Map("isolation");
  const bool other_hosts = absl::IsFailedPrecondition(
      CheckAddress(config->listen, /*other_hosts=*/false));
  std::string mode = map.String("mode", "");
  if (mode.empty()) mode = other_hosts ? "process" : "shared";
  if (mode != "shared" && mode != "process") {
    map.Error("mode", "shared or process");
  }
  config->isolated = mode == "process";
  if (other_hosts && !map.Has("mode")) DemandMode(*config, &map);
  config->executors =
      map.UInt("executors", config->executors, 1, kMaxExecutors);
  config->node_limit = map.Duration("node_limit", config->node_limit);
  if (config->node_limit < absl::Seconds(5)) {
    map.Error("node_limit", "at least 5s");
  }
  config->content_memory = map.Size("content_memory", 0);
  const std::string ports = map.String("ports", "");
  if (!ports.empty()) {
    if (!ReadPorts(ports, config)) {
      map.Error("ports", "two ports, such as 7100-7163");
    } else if (config->last_executor_port - config->first_executor_port <
               static_cast<int>(config->executors)) {
      map.Error("ports", "at least one more than executors");
    }
  }
  if (!config->isolated) {
    for (const char* const key :
         {"executors", "node_limit", "content_memory", "ports"}) {
      if (map.Has(key)) map.Error(key, "needs mode: process");
    }
    return;
  }
  RefuseUnixSocketsForContents(*config, root);
  if (config->device_kind == "cuda" && config->device_memory == 0) {
    root->Error("device.memory",
                "required for a cuda device where isolation.mode is process: "
                "each tenant's process has an equal part of it");
  }
}

}  // namespace

absl::StatusOr<WorkerConfig> ReadWorkerConfig(ConfigReader reader) {
  WorkerConfig config;
  ConfigMap root = reader.root();
  config.worker_id = root.RequiredString("worker_id");
  config.listen = root.String("listen", "127.0.0.1:0");
  config.advertise = root.String("advertise", "");
  const std::string shared_memory_socket = root.Path("shared_memory_socket");
  if (!shared_memory_socket.empty()) {
    config.shared_memory_socket =
        std::filesystem::absolute(shared_memory_socket);
    if (config.shared_memory_socket.size() > kMaxSocketPath) {
      root.Error("shared_memory_socket",
                 absl::StrCat("at most ", kMaxSocketPath,
                              " characters, the folder included: a socket's "
                              "path has ",
                              sizeof(sockaddr_un::sun_path) - 1, ", and ",
                              kPullSocketSuffix, " comes behind it"));
    }
  }
  config.insecure = root.Bool("insecure", false);
  config.monitoring = ReadMonitoring(&root);
  config.tracing = ReadTracing(&root);
  config.coordinator = root.RequiredString("coordinator");
  config.join_token = root.RequiredSecret("join_token_file");
  config.admin_token = root.Secret("admin_token_file");
  config.tls = ReadServerTls(&root, "tls", config.insecure);
  config.coordinator_tls =
      ReadChannelTls(&root, "coordinator_tls", config.insecure);
  config.peer_tls = ReadChannelTls(&root, "peer_tls", config.insecure);
  if (!root.Has("peer_tls") && config.tls.enabled()) {
    // Assumes that other workers are configured alike, with names of their own.
    config.peer_tls = config.coordinator_tls;
    config.peer_tls.server_name.clear();
  }
  const bool serves_others = config.insecure || config.tls.enabled();
  CheckConfigAddress(&root, "listen", config.listen, serves_others);
  if (!config.advertise.empty()) {
    CheckConfigAddress(&root, "advertise", config.advertise, serves_others);
  }
  if (!config.coordinator.empty()) {
    for (const std::string& address : SplitAddresses(config.coordinator)) {
      CheckConfigAddress(&root, "coordinator", address,
                         config.insecure || config.coordinator_tls.enabled());
    }
  }
  ConfigMap device = root.Map("device");
  ReadKind(&root, &device, &config);
  const bool cuda = config.device_kind == "cuda";
  const std::string plugin = device.Path("plugin");
  if (!plugin.empty()) {
    config.device_plugin = std::filesystem::absolute(plugin);
    if (!cuda) device.Error("plugin", "of cuda devices alone");
  }
  config.nvml_library = device.String("nvml_library", cuda ? kNvmlLibrary : "");
  if (!cuda && config.device_kind != "fake" && !config.nvml_library.empty()) {
    device.Error("nvml_library", "of cuda devices alone");
  }
  if (config.all_gpus && config.nvml_library.empty()) {
    device.Error("nvml_library", "is what lists the GPUs");
  }
  config.graph_memory = device.Size("graph_memory", 0);
  if (config.graph_memory > 0 && !cuda) {
    device.Error("graph_memory", "of cuda devices alone");
  }
  config.graphs = device.Bool("graphs", true);
  if (device.Has("graphs") && !cuda) {
    device.Error("graphs", "of cuda devices alone");
  }
  config.device_memory = device.Size("memory", 0);
  if (config.device_memory == 0 && !cuda) {
    config.device_memory = HalfOfMachineMemory();
  }
  config.min_free_bytes = device.Size("min_free", cuda ? kCudaMinFreeBytes : 0);
  config.device_threads =
      static_cast<int>(device.UInt("threads", 0, 0, kMaxThreads));
  config.packed_weights = device.Bool("packed_weights", true);
  config.packed_weight_memory = device.Size("packed_weight_memory", 0);
  if (!cuda && config.packed_weight_memory > config.device_memory) {
    device.Error("packed_weight_memory", "at most memory");
  }
  config.fuse_attention = device.Bool("fuse_attention", true);
  config.longest_call = device.Duration("longest_call", absl::Minutes(1));
  if (config.longest_call <= absl::ZeroDuration()) {
    device.Error("longest_call", "above 0");
  }
  if (device.Has("longest_call") && cuda) {
    device.Error("longest_call", "of cpu devices alone");
  }
  const bool says_speed = device.Has("speed");
  config.calibrate = device.Bool("calibrate", !says_speed);
  if (says_speed) {
    if (config.calibrate) device.Error("calibrate", "not where speed is given");
    config.speed = ReadSpeed(device.Map("speed"));
  }
  config.price_per_hour = root.Number("price_per_hour", 0);
  config.link_bandwidth = root.Size("link_bandwidth", 0);
  config.capabilities = root.Strings("capabilities");
  config.phases = ReadPhases(&root);
  for (ConfigMap& library : root.Maps("operator_libraries")) {
    std::string path = library.RequiredPath("path");
    if (!path.empty()) path = std::filesystem::absolute(path);
    (library.Bool("required", true) ? config.operator_libraries
                                    : config.optional_operator_libraries)
        .push_back(path);
  }
  config.installed_operator_libraries =
      root.Bool("installed_operator_libraries", true);
  if (config.device_kind == "fake" && !config.operator_libraries.empty()) {
    root.Error("operator_libraries", "none for the fake device");
  }
  config.heartbeat_interval =
      root.Duration("heartbeat_interval", absl::Seconds(2));
  if (config.heartbeat_interval < absl::Milliseconds(10)) {
    root.Error("heartbeat_interval", "at least 10ms");
  }
  config.transfer_idle_timeout =
      root.Duration("transfer_idle_timeout", absl::Seconds(30));
  if (config.transfer_idle_timeout < absl::Milliseconds(100)) {
    root.Error("transfer_idle_timeout", "at least 100ms");
  }
  config.offer_timeout = root.Duration("offer_timeout", config.offer_timeout);
  if (config.offer_timeout < config.transfer_idle_timeout) {
    root.Error("offer_timeout", "at least transfer_idle_timeout");
  }
  config.resume_timeout =
      root.Duration("resume_timeout", config.resume_timeout);
  config.drain_timeout = root.Duration("drain_timeout", config.drain_timeout);
  config.max_connections =
      root.UInt("max_connections", config.max_connections, 1);
  config.graph_cache_entries = root.UInt("graph_cache_entries", 4096, 1);
  config.max_batch_runs =
      root.UInt("max_batch_runs", config.max_batch_runs, 1, kMaxBatchRuns);
  config.tokens_first = root.Bool("tokens_first", true);
  ConfigMap disk = root.Map("content_disk");
  const std::string directory = disk.Path("directory");
  if (!directory.empty()) {
    config.content_disk_directory = std::filesystem::absolute(directory);
  }
  config.content_disk_limit = disk.Size("limit", 0);
  if (directory.empty() != (config.content_disk_limit == 0)) {
    root.Error("content_disk", "needs a directory and a limit above 0");
  }
  ReadIsolation(&root, &config);
  DJINN_RETURN_IF_ERROR(reader.Finish());
  return config;
}

}  // namespace djinn::worker
