#include "gpu_worker/device/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/io/fresh_memory.h"
#include "gpu_worker/device/cpu/available_memory.h"
#include "gpu_worker/device/cpu/memory_limit.h"
#include "gpu_worker/device/cpu/packed_objects.h"
#include "gpu_worker/device/cpu/prepacked_linear.h"
#include "gpu_worker/device/cpu/torch_operator_library.h"
#include "gpu_worker/device/memory_gauge.h"
#include "gpu_worker/device/torch/custom_operators.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

const TorchBuffer& Torch(const Buffer& buffer) {
  return static_cast<const TorchBuffer&>(buffer);
}

class CpuDevice final : public Device, public MemoryGauge {
 public:
  CpuDevice(uint64_t memory_bytes, CustomOperators custom,
            std::shared_ptr<PrepackedLinear> prepacked,
            std::shared_ptr<PackedObjects> packed,
            const CpuDeviceOptions& options)
      : memory_bytes_(memory_bytes),
        one_tenant_(options.one_tenant),
        prepacked_(std::move(prepacked)),
        packed_(std::move(packed)),
        operators_(std::move(custom), prepacked_, packed_,
                   options.fuse_attention, options.longest_call) {}

  std::string name() const override { return "cpu"; }
  uint64_t memory_bytes() const override { return memory_bytes_; }
  bool times_nodes() const override { return true; }

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) override {
    return MakeBuffer([&] { return ZeroedStorage(bytes); });
  }

  absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) override {
    return MakeBuffer([&] { return UninitialisedStorage(bytes); });
  }

  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer& source,
                                                uint64_t bytes) override {
    return MakeBuffer([&] {
      c10::Storage storage = UninitialisedStorage(bytes);
      const uint64_t kept = std::min(bytes, source.size_bytes());
      char* const target = static_cast<char*>(storage.mutable_data());
      if (kept > 0) std::memcpy(target, Torch(source).data(), kept);
      if (bytes > kept) std::memset(target + kept, 0, bytes - kept);
      return storage;
    });
  }

  absl::Status Write(Buffer* buffer, uint64_t offset,
                     absl::string_view bytes) override {
    DJINN_RETURN_IF_ERROR(CheckWrite(*buffer, offset, bytes.size()));
    if (!bytes.empty()) {
      Torch(*buffer).WillBeWritten();
      char* const to = Torch(*buffer).data() + offset;
      PopulateForWrite(to, bytes.size());
      std::memcpy(to, bytes.data(), bytes.size());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) override {
    const absl::string_view bytes(Torch(*buffer).data(), buffer->size_bytes());
    return SharedBytes{bytes, std::move(buffer)};
  }

  absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                       const srg::TensorView& view) override {
    DJINN_ASSIGN_OR_RETURN(const uint64_t extent,
                           ExtentInside(view, buffer->size_bytes()));
    if (extent == 0) return SharedBytes{absl::string_view(), buffer};
    if (IsPlainContiguous(view)) {
      const int64_t start =
          view.storage_offset * srg::ElementSize(view.data_type);
      const absl::string_view bytes(Torch(*buffer).data() + start,
                                    extent - static_cast<uint64_t>(start));
      return SharedBytes{bytes, std::move(buffer)};
    }
    std::shared_ptr<TorchBuffer> gathered;
    DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_VIEW", [&] {
      c10::InferenceMode inference;
      const OverwritesTensors overwrites;
      const at::Tensor tensor = MakeTensor(view, Torch(*buffer).storage())
                                    .resolve_conj()
                                    .resolve_neg()
                                    .contiguous();
      gathered = std::make_shared<TorchBuffer>(tensor.storage());
      return absl::OkStatus();
    }));
    const absl::string_view bytes(gathered->data(), gathered->size_bytes());
    return SharedBytes{bytes, std::move(gathered)};
  }

  OperatorLibrary* operators() override { return &operators_; }

  void SetSpareMemory(SpareMemory* spare) override {
    prepacked_->SetSpareMemory(spare);
    packed_->SetSpareMemory(spare);
  }
  uint64_t ReleaseSpareMemory(uint64_t bytes) override {
    const uint64_t released = prepacked_->Release(bytes);
    return released >= bytes ? released
                             : released + packed_->Release(bytes - released);
  }
  void ReleaseUnusedMemory() override { TidyTensorMemory(); }
  absl::StatusOr<uint64_t> AvailableBytes() const override {
    // A process that serves one tenant may not look at the machine's memory.
    if (one_tenant_) return memory_bytes_;
    return AvailableMemory();
  }

 private:
  template <typename MakeStorage>
  absl::StatusOr<std::shared_ptr<Buffer>> MakeBuffer(MakeStorage make) {
    std::shared_ptr<Buffer> buffer;
    DJINN_RETURN_IF_ERROR(CatchTorch("OUT_OF_MEMORY", [&] {
      const OverwritesTensors overwrites;
      buffer = std::make_shared<TorchBuffer>(make());
      return absl::OkStatus();
    }));
    return buffer;
  }

  const uint64_t memory_bytes_;
  const bool one_tenant_;
  const std::shared_ptr<PrepackedLinear> prepacked_;
  const std::shared_ptr<PackedObjects> packed_;
  TorchOperatorLibrary operators_;
};

uint64_t PhysicalMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(
    const CpuDeviceOptions& options) {
  if (options.threads < 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
                     absl::StrCat("threads: ", options.threads));
  }
  const uint64_t memory_bytes =
      options.memory_bytes > 0 ? options.memory_bytes : PhysicalMemoryBytes();
  const int threads =
      options.threads > 0
          ? options.threads
          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_CONFIG", [&] {
    SetTensorMemoryLimit(memory_bytes);
    SetOneTenant(options.one_tenant);
    at::set_num_threads(threads);
    return absl::OkStatus();
  }));
  DJINN_ASSIGN_OR_RETURN(
      CustomOperators custom,
      LoadOperatorLibraries(options.operator_libraries,
                            options.optional_operator_libraries));
  const uint64_t packed_bytes = options.packed_weight_bytes > 0
                                    ? options.packed_weight_bytes
                                    : memory_bytes / 4;
  return std::make_unique<CpuDevice>(
      memory_bytes, std::move(custom),
      std::make_shared<PrepackedLinear>(options.packed_weights ? packed_bytes
                                                               : 0),
      std::make_shared<PackedObjects>(packed_bytes), options);
}

std::shared_ptr<Buffer> WrapHostMemory(void* memory, uint64_t bytes,
                                       std::shared_ptr<void> owner) {
  auto* const kept = new std::shared_ptr<void>(std::move(owner));
  c10::DataPtr data(
      memory, kept,
      [](void* context) {
        delete static_cast<std::shared_ptr<void>*>(context);
      },
      c10::Device(c10::kCPU));
  return std::make_shared<TorchBuffer>(
      c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
          std::move(data), /*allocator=*/nullptr, /*resizable=*/false)));
}

}  // namespace djinn::worker
