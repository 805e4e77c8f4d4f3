// Opens shared libraries that were linked for a Python process with all of
// PyTorch. Such a library names libtorch.so, libtorch_cuda.so and
// libtorch_python.so although its CPU kernels use none of them. A worker has
// libtorch_cpu.so, and libtorch_cuda.so only if its device is a GPU.
#ifndef GPU_WORKER_DEVICE_TORCH_OPEN_LIBRARY_H_
#define GPU_WORKER_DEVICE_TORCH_OPEN_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace djinn::worker {

// Opens the library for the life of the process. If the loader lacks one of
// PyTorch's libraries, an empty one stands in for it. If the library itself
// uses Python, libpython is opened before it. Returns InvalidArgument with the
// loader's text if all this does not suffice. May throw what the library's
// initializers throw. Call it before other threads use PyTorch.
//
// Where a library stands in, a call of one of its functions ends the process.
// These are functions of CUDA and Python, which CPU kernels do not call.
absl::Status OpenLibrary(const std::string& path);

// Returns the libraries of torchvision and torchaudio that are installed beside
// the PyTorch of this process.
std::vector<std::string> InstalledOperatorLibraries();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_OPEN_LIBRARY_H_
