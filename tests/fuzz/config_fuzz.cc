// Reads the configuration files of the coordinator and the worker with the
// strict reader.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/config/config_reader.h"
#include "common/fuzz/require.h"
#include "common/log/log.h"
#include "coordinator/config/config.h"
#include "gpu_worker/config.h"

namespace djinn {
namespace {

using fuzz::Require;

void CheckRefusal(const absl::Status& status) {
  if (status.ok()) return;
  Require(ErrorReason(status) == "BAD_CONFIG", "a refusal has its reason");
  Require(!status.message().empty(), "and says what is wrong");
}

void TestOne(const std::string& text) {
  // A configuration may name any file, which is then read. Inputs must
  // therefore not name devices.
  if (absl::StrContains(text, "/dev") || absl::StrContains(text, "/proc")) {
    return;
  }
  constexpr char kFolder[] = "common/fuzz/corpus/config";
  const absl::StatusOr<coordinator::Config> config =
      coordinator::ReadConfig(ConfigReader::FromText(text, "c.yaml", kFolder));
  CheckRefusal(config.status());
  if (config.ok()) {
    Require(!config->tenants.empty() && !config->join_token.empty(),
            "an accepted file has what is required");
  }
  const absl::StatusOr<worker::WorkerConfig> worker =
      worker::ReadWorkerConfig(ConfigReader::FromText(text, "w.yaml", kFolder));
  CheckRefusal(worker.status());
  if (worker.ok()) {
    Require(!worker->worker_id.empty() && worker->device_memory > 0,
            "an accepted file has what is required");
  }
  (void)ParseSize(text);
}

}  // namespace
}  // namespace djinn

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  djinn::log::Configure("", djinn::log::Level::kOff);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  djinn::TestOne(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
