#include "gpu_worker/device/torch/custom_operators.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <filesystem>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kBad = "BAD_OPERATOR_LIBRARY";

std::set<std::string> KnownNames() {
  std::set<std::string> names;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    names.insert(c10::toString(name));
  }
  return names;
}

absl::Status Load(const std::string& path) {
  const auto bad = [&](absl::string_view why) {
    return MakeError(absl::StatusCode::kInvalidArgument, kBad,
                     absl::StrCat("operator library ", path, ": ", why));
  };
  if (path.empty() || path[0] != '/') return bad("not an absolute path");
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return bad("cannot be read");
  if (!S_ISREG(status.st_mode)) return bad("not a regular file");
  return CatchTorch(kBad, [&] {
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr
               ? bad(dlerror())
               : absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<CustomOperators> LoadOperatorLibraries(
    const std::vector<std::string>& paths) {
  CustomOperators custom;
  std::set<std::string> known = KnownNames();
  for (const std::string& path : paths) {
    DJINN_RETURN_IF_ERROR(Load(path));
    const size_t before = custom.names.size();
    for (const std::string& name : KnownNames()) {
      if (!known.insert(name).second) continue;
      // Ignores operators that a library adds to PyTorch's own namespace.
      if (!absl::StartsWith(name, "aten::")) custom.names.insert(name);
    }
    if (custom.names.size() == before) {
      return MakeError(absl::StatusCode::kInvalidArgument, kBad,
                       absl::StrCat("operator library ", path,
                                    ": it registers no operators"));
    }
    custom.libraries.push_back(std::filesystem::path(path).filename());
  }
  return custom;
}

}  // namespace djinn::worker
