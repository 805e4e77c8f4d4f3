#include "gpu_worker/device/torch/custom_operators.h"

#include <sys/stat.h>

#include <filesystem>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/torch/generator_operators.h"
#include "common/torch/packed_operators.h"
#include "common/torch/sparse_operators.h"
#include "gpu_worker/device/torch/open_library.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kBad = "BAD_OPERATOR_LIBRARY";

std::set<std::string> KnownNames() {
  std::set<std::string> names;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    names.insert(c10::toString(name));
  }
  return names;
}

absl::Status Open(const std::string& path) {
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError("not an absolute path");
  }
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return absl::InvalidArgumentError("cannot be read");
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError("not a regular file");
  }
  return CatchTorch(kBad, [&] { return OpenLibrary(path); });
}

// Returns the names of file and folder, which tell a library from others also
// where it is installed twice.
std::string ShortName(const std::string& path) {
  const fs::path whole(path);
  return whole.parent_path().filename() / whole.filename();
}

class Loader {
 public:
  absl::Status Load(const std::string& path) {
    absl::Status status = Open(path);
    const size_t before = custom_.names.size();
    // Also a library that cannot be used may have registered operators.
    for (const std::string& name : KnownNames()) {
      if (!known_.insert(name).second || !status.ok()) continue;
      // Ignores operators that a library adds to PyTorch's own namespace.
      if (!absl::StartsWith(name, "aten::")) custom_.names.insert(name);
    }
    if (status.ok() && custom_.names.size() == before) {
      status = absl::InvalidArgumentError("it registers no operators");
    }
    if (!status.ok()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, kBad,
          absl::StrCat("operator library ", path, ": ", status.message()));
    }
    custom_.libraries.push_back(fs::path(path).filename());
    short_names_.insert(ShortName(path));
    return absl::OkStatus();
  }

  bool Has(const std::string& path) const {
    return short_names_.contains(ShortName(path));
  }

  CustomOperators custom() && { return std::move(custom_); }

 private:
  std::set<std::string> known_ = KnownNames();
  std::set<std::string> short_names_;
  CustomOperators custom_;
};

}  // namespace

absl::StatusOr<CustomOperators> LoadOperatorLibraries(
    const std::vector<std::string>& required,
    const std::vector<std::string>& optional) {
  DJINN_RETURN_IF_ERROR(CatchTorch(kBad, [] {
    DefineGeneratorOperators();
    DefinePackedOperators();
    DefineSparseOperators();
    return absl::OkStatus();
  }));
  Loader loader;
  for (const std::string& path : required) {
    DJINN_RETURN_IF_ERROR(loader.Load(path));
  }
  for (const std::string& path : optional) {
    if (loader.Has(path)) continue;
    const absl::Status status = loader.Load(path);
    if (!status.ok()) {
      log::Info("an operator library was not loaded", {{"error", status}});
    }
  }
  return std::move(loader).custom();
}

}  // namespace djinn::worker
