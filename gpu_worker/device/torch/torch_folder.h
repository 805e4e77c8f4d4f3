// Finds the PyTorch that this process runs with. Depends on no PyTorch.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_FOLDER_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_FOLDER_H_

#include <string>

namespace djinn::worker {

// Returns the folder from which the process loaded libtorch_cpu.so, or "" if it
// loaded none. PyTorch's other libraries lie there as well.
std::string TorchFolder();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_FOLDER_H_
