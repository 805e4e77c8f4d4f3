#include "gpu_worker/device/torch/open_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/torch/torch_folder.h"

namespace djinn::worker {
namespace {

namespace fs = std::filesystem;

// PyTorch's libraries for which an empty one may stand in.
constexpr const char* kStandIns[] = {"libtorch.so", "libtorch_cuda.so",
                                     "libtorch_python.so"};
// No Python code runs, so the symbols of any version of libpython will do.
constexpr int kOldestPython = 9;
constexpr int kNewestPython = 15;

std::string LoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

// The bytes of a shared library that has a name and no symbols.
struct EmptyLibrary {
  explicit EmptyLibrary(absl::string_view soname) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = offsetof(EmptyLibrary, load);
    header.e_ehsize = sizeof(header);
    header.e_phentsize = sizeof(load);
    header.e_phnum = 2;
    load.p_type = PT_LOAD;
    load.p_flags = PF_R | PF_W;
    load.p_filesz = load.p_memsz = sizeof(EmptyLibrary);
    load.p_align = 4096;
    dynamic.p_type = PT_DYNAMIC;
    dynamic.p_flags = PF_R | PF_W;
    dynamic.p_offset = dynamic.p_vaddr = offsetof(EmptyLibrary, entries);
    dynamic.p_filesz = dynamic.p_memsz = sizeof(entries);
    dynamic.p_align = alignof(Elf64_Dyn);
    const Elf64_Xword values[][2] = {
        {DT_SONAME, 1},  // texts begin with an empty one
        {DT_STRTAB, offsetof(EmptyLibrary, texts)},
        {DT_STRSZ, sizeof(texts)},
        {DT_SYMTAB, offsetof(EmptyLibrary, no_symbol)},
        {DT_SYMENT, sizeof(no_symbol)},
    };
    for (size_t i = 0; i < std::size(values); ++i) {
      entries[i].d_tag = static_cast<Elf64_Sxword>(values[i][0]);
      entries[i].d_un.d_val = values[i][1];
    }
    soname.copy(texts + 1, sizeof(texts) - 2);
  }

  Elf64_Ehdr header{};
  Elf64_Phdr load{};
  Elf64_Phdr dynamic{};
  Elf64_Dyn entries[6]{};  // an empty entry ends them
  Elf64_Sym no_symbol{};
  char texts[64]{};
};

// Opens an empty library of that name, unless the process has one of the name.
void StandInFor(const char* soname) {
  if (dlopen(soname, RTLD_LAZY | RTLD_NOLOAD) != nullptr) return;
  const EmptyLibrary image(soname);
  // The file stays open, because the loader takes libraries of one path for the
  // same library, and another file must not get this path.
  const int file = memfd_create(soname, MFD_CLOEXEC);
  if (file < 0 || write(file, &image, sizeof(image)) !=
                      static_cast<ssize_t>(sizeof(image))) {
    return;
  }
  dlopen(absl::StrCat("/proc/self/fd/", file).c_str(), RTLD_LAZY);
}

void OpenPython() {
  for (int version = kNewestPython; version >= kOldestPython; --version) {
    const std::string name = absl::StrCat("libpython3.", version, ".so.1.0");
    if (dlopen(name.c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr) return;
  }
}

absl::Status Open(const std::string& path, int flags) {
  return dlopen(path.c_str(), flags | RTLD_LOCAL) != nullptr
             ? absl::OkStatus()
             : absl::InvalidArgumentError(LoaderError());
}

}  // namespace

absl::Status OpenLibrary(const std::string& path) {
  // Once an empty library stands in, the loader finds it for later libraries,
  // too, and misses only its symbols.
  static std::atomic<bool> stood_in = false;
  absl::Status status = Open(path, RTLD_NOW);
  if (status.ok()) return status;
  if (absl::StrContains(status.message(), "cannot open shared object file")) {
    // The library names others that the loader does not find. PyTorch's own are
    // found in its folder only.
    const fs::path folder = TorchFolder();
    dlopen((folder / "libc10_cuda.so").c_str(), RTLD_LAZY | RTLD_GLOBAL);
    for (const char* const soname : kStandIns) StandInFor(soname);
    stood_in = true;
  } else if (!stood_in ||
             !absl::StrContains(status.message(), "undefined symbol")) {
    return status;
  }
  // Functions that are missing are of no concern until they are called.
  status = Open(path, RTLD_LAZY);
  if (status.ok() ||
      !absl::StrContains(status.message(), "undefined symbol: Py")) {
    return status;
  }
  OpenPython();
  return Open(path, RTLD_LAZY);
}

std::vector<std::string> InstalledOperatorLibraries() {
  std::vector<std::string> found;
  // The folder is site-packages/torch/lib.
  const fs::path site = fs::path(TorchFolder()).parent_path().parent_path();
  for (const fs::path& candidate :
       {site / "torchvision" / "_C.so",
        site / "torchaudio" / "lib" / "libtorchaudio.abi3.so",
        site / "torchaudio" / "lib" / "libtorchaudio.so"}) {
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored)) found.push_back(candidate);
  }
  return found;
}

}  // namespace djinn::worker
