#include "tests/bench/machine.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "ATen/Parallel.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/stubs/common.h"
#include "grpcpp/grpcpp.h"
#include "torch/version.h"

namespace djinn::bench {
namespace {

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view text = line;
    if (!absl::ConsumePrefix(&text, "model name")) continue;
    text = absl::StripAsciiWhitespace(text);
    absl::ConsumePrefix(&text, ":");
    return std::string(absl::StripAsciiWhitespace(text));
  }
  return "unknown";
}

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 0;
  return CPU_COUNT(&cores);
}

}  // namespace

nlohmann::json DescribeMachine() {
  utsname kernel = {};
  uname(&kernel);
  return {{"processor", ProcessorName()},
          {"architecture", kernel.machine},
          {"cores", UsableCores()},
          {"memory_bytes", static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE))},
          {"kernel", absl::StrCat(kernel.sysname, " ", kernel.release)}};
}

nlohmann::json DescribeVersions() {
  return {{"torch", TORCH_VERSION},
          {"torch_parallelism", at::get_parallel_info()},
          {"grpc", grpc::Version()},
          {"protobuf",
           google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)},
          {"compiler", __VERSION__},
#ifdef NDEBUG
          {"assertions", false},
#else
          {"assertions", true},
#endif
#ifdef __OPTIMIZE__
          {"optimised", true}
#else
          {"optimised", false}
#endif
  };
}

nlohmann::json LoadAverages() {
  std::array<double, 3> loads = {};
  if (getloadavg(loads.data(), loads.size()) < 0) return nullptr;
  return loads;
}

}  // namespace djinn::bench
