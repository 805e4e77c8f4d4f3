#include "gpu_worker/gpu_list.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

constexpr char kUnix[] = "unix:";
constexpr uint32_t kMaxPort = 65535;

absl::Status UnknownGpu(absl::string_view entry, absl::string_view why) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "GPU_UNKNOWN",
      absl::StrCat("\"", entry, "\" in CUDA_VISIBLE_DEVICES ", why));
}

// Returns the number of the GPU that an entry names.
absl::StatusOr<size_t> Find(const std::vector<std::string>& uuids,
                            absl::string_view entry) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(entry, &number)) {
    if (number < uuids.size()) return number;
    return UnknownGpu(entry,
                      absl::StrCat("is no number of ", uuids.size(), " GPUs"));
  }
  std::optional<size_t> found;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (entry.empty() || !absl::StartsWith(uuids[i], entry)) continue;
    if (found.has_value()) return UnknownGpu(entry, "names several GPUs");
    found = i;
  }
  if (found.has_value()) return *found;
  return UnknownGpu(entry, "names no whole GPU");
}

// Raises the port of an address, or adds a suffix to a Unix socket.
absl::Status Shift(const char* key, int by, const std::string& suffix,
                   std::string* address) {
  if (address->empty()) return absl::OkStatus();
  if (absl::StartsWith(*address, kUnix)) {
    absl::StrAppend(address, suffix);
    return absl::OkStatus();
  }
  const size_t colon = address->rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(address->substr(colon + 1), &port)) {
    return absl::OkStatus();  // ReadWorkerConfig() has checked addresses.
  }
  if (port == 0) return absl::OkStatus();
  port += static_cast<uint32_t>(by);
  if (port > kMaxPort) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                     absl::StrCat(key, ": ", *address, " leaves no port for ",
                                  "the worker", suffix));
  }
  *address = absl::StrCat(address->substr(0, colon + 1), port);
  return absl::OkStatus();
}

// Gives the worker of GPU `index` its part of the executors' ports, if any were
// configured.
absl::Status DividePorts(int index, int count, const std::string& suffix,
                         WorkerConfig* config) {
  if (config->first_executor_port == 0) return absl::OkStatus();
  const int part =
      (config->last_executor_port - config->first_executor_port + 1) / count;
  if (part <= static_cast<int>(config->executors)) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                     absl::StrCat("isolation.ports: ", part,
                                  " ports are left for the worker", suffix,
                                  ", which needs at least one more than its ",
                                  config->executors, " executors"));
  }
  config->first_executor_port =
      static_cast<uint16_t>(config->first_executor_port + index * part);
  config->last_executor_port =
      static_cast<uint16_t>(config->first_executor_port + part - 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListGpus(
    const Nvml& nvml, std::optional<absl::string_view> visible) {
  DJINN_ASSIGN_OR_RETURN(const unsigned count, nvml.Count());
  std::vector<std::string> uuids;
  for (unsigned i = 0; i < count; ++i) {
    DJINN_ASSIGN_OR_RETURN(const Nvml::Gpu gpu, nvml.ByIndex(i));
    DJINN_ASSIGN_OR_RETURN(std::string uuid, nvml.Uuid(gpu));
    uuids.push_back(std::move(uuid));
  }
  const auto none = [](absl::string_view why) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_GPU",
                     absl::StrCat("device.kind is cuda, and ", why));
  };
  if (uuids.empty()) return none("this machine has no GPU");
  if (!visible.has_value()) return uuids;
  if (absl::StripAsciiWhitespace(*visible).empty()) {
    return none("CUDA_VISIBLE_DEVICES hides all GPUs");
  }
  std::vector<std::string> chosen;
  for (const absl::string_view text : absl::StrSplit(*visible, ',')) {
    const absl::string_view entry = absl::StripAsciiWhitespace(text);
    DJINN_ASSIGN_OR_RETURN(const size_t index, Find(uuids, entry));
    if (std::find(chosen.begin(), chosen.end(), uuids[index]) != chosen.end()) {
      return UnknownGpu(entry, "names a GPU a second time");
    }
    chosen.push_back(uuids[index]);
  }
  return chosen;
}

absl::StatusOr<WorkerConfig> ConfigOfGpu(const WorkerConfig& all, int index,
                                         int count, const std::string& uuid) {
  WorkerConfig config = all;
  const std::string suffix = absl::StrCat(kGpuSuffix, index);
  config.all_gpus = false;
  config.device_ordinal = 0;
  config.gpu_uuid = uuid;
  absl::StrAppend(&config.worker_id, suffix);
  DJINN_RETURN_IF_ERROR(Shift("listen", index, suffix, &config.listen));
  DJINN_RETURN_IF_ERROR(Shift("advertise", index, suffix, &config.advertise));
  // The supervisor asks for the health there, also while the port is busy.
  config.monitoring.stand_in = true;
  if (config.monitoring.listen.empty()) {
    config.monitoring.listen = "127.0.0.1:0";
  }
  DJINN_RETURN_IF_ERROR(
      Shift("monitoring.listen", index + 1, suffix, &config.monitoring.listen));
  if (!config.shared_memory_socket.empty()) {
    absl::StrAppend(&config.shared_memory_socket, suffix);
  }
  if (!config.content_disk_directory.empty()) {
    absl::StrAppend(&config.content_disk_directory, suffix);
    config.content_disk_limit /= static_cast<uint64_t>(count);
  }
  config.content_memory /= static_cast<uint64_t>(count);
  DJINN_RETURN_IF_ERROR(DividePorts(index, count, suffix, &config));
  return config;
}

}  // namespace djinn::worker
