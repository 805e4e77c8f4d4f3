#include "gpu_worker/device/torch/torch_folder.h"

#include <link.h>

#include <cstddef>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace djinn::worker {

std::string TorchFolder() {
  std::string folder;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const absl::string_view path = info->dlpi_name;
        if (!absl::EndsWith(path, "/libtorch_cpu.so")) return 0;
        *static_cast<std::string*>(found) =
            std::filesystem::path(std::string(path)).parent_path();
        return 1;
      },
      &folder);
  return folder;
}

}  // namespace djinn::worker
