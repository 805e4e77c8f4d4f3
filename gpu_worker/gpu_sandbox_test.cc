// Tests that PyTorch computes in the sandbox of an executor on a GPU. There is
// no GPU: the device is the CPU, and the driver's files are plain ones.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <tuple>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "c10/core/InferenceMode.h"
#include "common/base/clock.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/torch/device_speed.h"
#include "gpu_worker/sandbox/sandbox_child.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Does what an executor does before it serves: makes its device, warms it up,
// and closes the sandbox. Then runs `act`.
void ExpectInExecutor(const std::function<int()>& act) {
  const FakeGpu gpu;
  const int status = InChild([&] {
    if (!PrepareSandbox(STDERR_FILENO).ok()) return kNoSandbox;
    absl::StatusOr<FileBroker> broker = FileBroker::Fork();
    if (!broker.ok()) return kNoSandbox;
    const auto device =
        MakeCpuDevice({.memory_bytes = 256 << 20, .threads = 2});
    if (!device.ok()) return kNoSandbox;
    (void)MeasureDeviceSpeed(device->get(), Clock::Real());
    const auto rules = FilesOfGpu(FakeGpu::kBusId, gpu.root());
    if (!rules.ok()) return kNoSandbox;
    const absl::Status confined = broker->Confine(*rules);
    if (absl::IsUnimplemented(confined)) return kNoLandlock;
    if (!confined.ok() || !EnterSandbox({.added_data = uint64_t{4} << 30,
                                         .files = &*broker,
                                         .nvidia = true})
                               .ok()) {
      return kNoSandbox;
    }
    return act();
  });
  if (ExitOf(status) == kNoLandlock) {
    GTEST_SKIP() << "this machine's kernel has no Landlock";
  }
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(GpuExecutorTest, OperatorsRunAndAreRefusedNothing) {
  ExpectInExecutor([] {
    const c10::InferenceMode inference;
    at::manual_seed(3);
    const at::Tensor a = at::randn({256, 256});
    const at::Tensor identity = at::eye(256);
    if (!at::equal(at::matmul(a, identity), a)) return 1;
    // oneDNN generates code, and LAPACK and FFTs have libraries of their own.
    const at::Tensor image = at::randn({1, 3, 32, 32});
    if (at::conv2d(image, at::randn({8, 3, 3, 3})).size(1) != 8) return 2;
    const at::Tensor inverse = at::linalg_inv(a);
    if (!at::allclose(at::matmul(a, inverse), identity, 1e-2, 1e-2)) return 3;
    if (!at::allclose(at::fft_irfft(at::fft_rfft(a)), a, 1e-3, 1e-4)) return 4;
    if (std::get<0>(at::topk(at::randperm(1 << 16), 1)).size(0) != 1) return 5;
    const at::Tensor half = a.to(at::kBFloat16);
    if (at::matmul(half, half).scalar_type() != at::kBFloat16) return 6;
    return RefusedSystemCalls() == 0 ? 0 : kNotCounted;
  });
}

TEST(GpuExecutorTest, LibrariesBesidePyTorchLoadLate) {
  Dl_info torch = {};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch), 0);
  const std::filesystem::path folder =
      std::filesystem::canonical(torch.dli_fname).parent_path();
  // PyTorch brings this one, and nothing here needs it.
  const std::string library = folder / "libshm.so";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "no " << library;
  ExpectInExecutor([&] {
    void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    return loaded != nullptr && RefusedSystemCalls() == 0 ? 0 : 1;
  });
}

}  // namespace
}  // namespace djinn::worker
