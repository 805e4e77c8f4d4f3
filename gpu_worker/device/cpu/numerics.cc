#include "gpu_worker/device/cpu/numerics.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/Version.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/hash/hash.h"

namespace djinn::worker {
namespace {

// Returns whether libraries select their kernels by this key of /proc/cpuinfo,
// on x86 or ARM. Keys that vary with speeds and cores do not matter.
bool MattersForKernels(absl::string_view key) {
  for (const absl::string_view one :
       {"vendor_id", "cpu family", "model", "model name", "stepping",
        "cache size", "flags", "CPU implementer", "CPU architecture",
        "CPU variant", "CPU part", "CPU revision", "Features"}) {
    if (key == one) return true;
  }
  return false;
}

// Describes the cache sizes, by which libraries divide matrices into blocks.
std::string DescribeCaches() {
  std::string text;
  for (const int level :
       {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE}) {
    absl::StrAppend(&text, sysconf(level), " ");
  }
  return text;
}

}  // namespace

std::optional<std::string> DescribeProcessors(absl::string_view cpuinfo) {
  std::optional<std::string> described;
  for (const absl::string_view processor : absl::StrSplit(cpuinfo, "\n\n")) {
    std::string text;
    for (const absl::string_view line : absl::StrSplit(processor, '\n')) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(line, absl::MaxSplits(':', 1));
      const absl::string_view key = absl::StripAsciiWhitespace(pair.first);
      if (!MattersForKernels(key)) continue;
      absl::StrAppend(&text, key, ":", absl::StripAsciiWhitespace(pair.second),
                      "\n");
    }
    // Skips a paragraph that is not about a processor.
    if (text.empty()) continue;
    if (!described.has_value()) {
      described = std::move(text);
    } else if (*described != text) {
      return std::nullopt;
    }
  }
  return described;
}

std::string DescribeEnvironment(const char* const* entries) {
  std::vector<absl::string_view> lines;
  for (; *entries != nullptr; ++entries) {
    // The device sets the number of threads, whatever these say.
    if (absl::StartsWith(*entries, "OMP_NUM_THREADS=") ||
        absl::StartsWith(*entries, "MKL_NUM_THREADS=")) {
      continue;
    }
    // PyTorch and the libraries below it read variables with these prefixes.
    for (const absl::string_view prefix :
         {"ATEN_", "BLIS_", "DNNL_", "GOMP_", "GOTO_", "KMP_", "MKL_", "OMP_",
          "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH_"}) {
      if (absl::StartsWith(*entries, prefix)) lines.push_back(*entries);
    }
  }
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

std::string CpuNumerics() {
  std::ifstream file("/proc/cpuinfo");
  std::stringstream cpuinfo;
  cpuinfo << file.rdbuf();
  const std::optional<std::string> processors =
      DescribeProcessors(cpuinfo.str());
  if (!processors.has_value()) return "";
  const std::string all = absl::StrCat(
      *processors, "\n", DescribeCaches(), "\n", DescribeEnvironment(environ),
      "\n", at::show_config(), "\n", at::get_cpu_capability());
  return absl::StrCat("cpu-", absl::BytesToHexString(Sha256(all)).substr(0, 32),
                      "-", at::get_num_threads());
}

}  // namespace djinn::worker
