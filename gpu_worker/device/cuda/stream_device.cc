#include "gpu_worker/device/cuda/stream_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/cuda/device_health.h"
#include "gpu_worker/device/cuda/stream_program.h"
#include "gpu_worker/device/cuda/stream_target.h"
#include "gpu_worker/device/cuda/transfers.h"
#include "gpu_worker/device/memory_gauge.h"
#include "gpu_worker/device/torch/compiler/node_compiler.h"
#include "gpu_worker/device/torch/guards/gpu_allow_list.h"
#include "gpu_worker/device/torch/guards/operand_guards.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kNoMemory = "OUT_OF_MEMORY";

const TorchBuffer& Torch(const Buffer& buffer) {
  return static_cast<const TorchBuffer&>(buffer);
}

// The size from which the system may back a block with huge pages. With small
// pages, the first touch of a value takes longer than its copy.
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Uninitialized host memory for bytes on their way to a reader.
struct HostBlock {
  std::shared_ptr<char> memory;
  uint64_t bytes = 0;

  SharedBytes Shared() && {
    const absl::string_view view(memory.get(), bytes);
    return {view, std::move(memory)};
  }
};

absl::StatusOr<HostBlock> MakeHostBlock(uint64_t bytes) {
  const bool huge = bytes >= kHugePage;
  void* const raw =
      huge ? std::aligned_alloc(kHugePage,
                                (bytes + kHugePage - 1) / kHugePage * kHugePage)
           : std::malloc(std::max<uint64_t>(bytes, 1));
  if (raw == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted, kNoMemory,
                     absl::StrCat("no ", bytes,
                                  " bytes of the host's for a "
                                  "value on its way"));
  }
  // Failure is harmless: the block then has small pages.
  if (huge) (void)madvise(raw, bytes, MADV_HUGEPAGE);
  return HostBlock{std::shared_ptr<char>(static_cast<char*>(raw), &std::free),
                   bytes};
}

class StreamLibrary final : public OperatorLibrary {
 public:
  StreamLibrary(StreamEnvironment environment, CustomOperators custom)
      : environment_(environment), custom_(std::move(custom)) {}

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) override {
    DJINN_ASSIGN_OR_RETURN(
        std::vector<TorchCall> calls,
        CompileNodes(graph, custom_, environment_.target->device()));
    for (const TorchCall& call : calls) {
      DJINN_RETURN_IF_ERROR(CheckAllowedOnGpu(call.op.schema()));
      const absl::Status fit = CheckOperandsOnGpu(call.op.schema(), call.call);
      if (!fit.ok()) {
        return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRAPH",
                         absl::StrCat(call.op.schema().name(),
                                      " on a GPU: ", fit.message()));
      }
    }
    return std::make_unique<StreamProgram>(environment_, graph,
                                           std::move(calls));
  }

  absl::StatusOr<uint64_t> GeneratorBytes() override {
    uint64_t bytes = generator_bytes_.load(std::memory_order_relaxed);
    if (bytes == 0) {
      DJINN_ASSIGN_OR_RETURN(const std::string state, Seeded(0));
      bytes = state.size();
      generator_bytes_.store(bytes, std::memory_order_relaxed);
    }
    return bytes;
  }

  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(
      uint64_t seed) override {
    DJINN_ASSIGN_OR_RETURN(const std::string state, Seeded(seed));
    std::shared_ptr<TorchBuffer> buffer;
    DJINN_RETURN_IF_ERROR(CatchTorch(kNoMemory, [&] {
      buffer = environment_.transfers->MakeForOperators(state.size());
      return absl::OkStatus();
    }));
    Transfers::WriteOnHost(*buffer, state);
    return buffer;
  }

  absl::Status CheckGenerator(absl::string_view state) override {
    return environment_.accelerator->CheckGenerator(state);
  }

 private:
  absl::StatusOr<std::string> Seeded(uint64_t seed) {
    std::string bytes;
    DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_GENERATOR", [&] {
      // Seeding asks the current device whether it is being recorded, so this
      // device must be the current one.
      const auto scope = environment_.accelerator->EnterCompute();
      at::Generator generator = environment_.accelerator->ThreadGenerator();
      generator.set_current_seed(seed);
      const at::Tensor state = generator.get_state();
      bytes.assign(static_cast<const char*>(state.const_data_ptr()),
                   state.nbytes());
      return absl::OkStatus();
    }));
    return bytes;
  }

  const StreamEnvironment environment_;
  const CustomOperators custom_;
  // Bytes of a generator's state; 0 while that is not known.
  std::atomic<uint64_t> generator_bytes_{0};
};

class StreamDevice final : public Device, public MemoryGauge {
 public:
  StreamDevice(std::unique_ptr<Accelerator> accelerator, CustomOperators custom,
               const StreamDeviceOptions& options)
      : accelerator_(std::move(accelerator)),
        memory_bytes_(options.memory_bytes > 0 ? options.memory_bytes
                                               : accelerator_->memory_bytes()),
        health_(accelerator_.get()),
        transfers_(accelerator_.get(), options.staging),
        target_(accelerator_.get(), &transfers_),
        graphs_(options.graphs),
        library_({accelerator_.get(), &target_, &transfers_, &health_, &graphs_,
                  options.fuse_attention},
                 std::move(custom)) {}

  std::string name() const override { return accelerator_->name(); }
  std::string bus_id() const override { return accelerator_->bus_id(); }
  uint64_t memory_bytes() const override { return memory_bytes_; }
  absl::Status Health() const override { return health_.status(); }
  absl::StatusOr<uint64_t> AvailableBytes() const override {
    return accelerator_->AvailableBytes();
  }
  std::vector<std::pair<std::string, uint64_t>> Counts() const override {
    return graphs_.counts();
  }

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) override {
    return Make([&] {
      std::shared_ptr<TorchBuffer> buffer = transfers_.MakeForOperators(bytes);
      if (bytes > 0) target_.FillWithZeros(buffer->storage());
      return buffer;
    });
  }

  absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) override {
    return Make([&] { return transfers_.MakeForUpload(bytes); });
  }

  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer& source,
                                                uint64_t bytes) override {
    return Make([&] {
      std::shared_ptr<TorchBuffer> copy = transfers_.MakeForOperators(bytes);
      const auto known = Transfers::OnHost(Torch(source));
      if (known != nullptr && bytes == known->size()) {
        Transfers::WriteOnHost(*copy, *known);
        return copy;
      }
      transfers_.Use(Torch(source));
      const uint64_t kept = std::min(bytes, source.size_bytes());
      if (kept > 0) {
        accelerator_->Copy(copy->data(), Torch(source).data(), kept,
                           StreamId::kCompute);
      }
      if (bytes > kept) {
        accelerator_->Zero(copy->data() + kept, bytes - kept,
                           StreamId::kCompute);
      }
      return copy;
    });
  }

  absl::Status Write(Buffer* buffer, uint64_t offset,
                     absl::string_view bytes) override {
    DJINN_RETURN_IF_ERROR(CheckWrite(*buffer, offset, bytes.size()));
    DJINN_RETURN_IF_ERROR(health_.status());
    if (bytes.empty()) return absl::OkStatus();
    return health_.Note(transfers_.Write(Torch(*buffer), offset, bytes));
  }

  absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) override {
    const uint64_t bytes = buffer->size_bytes();
    return HostRange(std::move(buffer), 0, bytes);
  }

  absl::StatusOr<SharedBytes> HostRange(std::shared_ptr<Buffer> buffer,
                                        uint64_t offset,
                                        uint64_t bytes) override {
    DJINN_RETURN_IF_ERROR(health_.status());
    DJINN_ASSIGN_OR_RETURN(HostBlock copy, MakeHostBlock(bytes));
    DJINN_RETURN_IF_ERROR(health_.Note(
        transfers_.Read(Torch(*buffer), offset, copy.memory.get(), bytes)));
    return std::move(copy).Shared();
  }

  absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                       const srg::TensorView& view) override {
    DJINN_ASSIGN_OR_RETURN(const uint64_t extent,
                           ExtentInside(view, buffer->size_bytes()));
    if (extent == 0) return SharedBytes{absl::string_view(), buffer};
    if (IsPlainContiguous(view)) {
      const uint64_t start = static_cast<uint64_t>(
          view.storage_offset * srg::ElementSize(view.data_type));
      return HostRange(std::move(buffer), start, extent - start);
    }
    DJINN_RETURN_IF_ERROR(health_.status());
    at::Tensor gathered;
    DJINN_RETURN_IF_ERROR(health_.Note(CatchTorch("INVALID_VIEW", [&] {
      const c10::InferenceMode inference;
      transfers_.Use(Torch(*buffer));
      const auto scope = accelerator_->EnterCompute();
      gathered = MakeTensor(view, Torch(*buffer).storage())
                     .resolve_conj()
                     .resolve_neg()
                     .contiguous();
      return absl::OkStatus();
    })));
    DJINN_ASSIGN_OR_RETURN(HostBlock copy, MakeHostBlock(gathered.nbytes()));
    DJINN_RETURN_IF_ERROR(health_.Note(transfers_.ReadMade(
        gathered.const_data_ptr(), copy.memory.get(), copy.bytes)));
    return std::move(copy).Shared();
  }

  OperatorLibrary* operators() override { return &library_; }

  void SetSpareMemory(SpareMemory* spare) override {
    // The source must outlive what was reserved from it.
    if (spare == nullptr) graphs_.Release(UINT64_MAX);
    graphs_.SetSpareMemory(spare);
  }
  uint64_t ReleaseSpareMemory(uint64_t bytes) override {
    return graphs_.Release(bytes);
  }

 private:
  template <typename MakeOne>
  absl::StatusOr<std::shared_ptr<Buffer>> Make(MakeOne make) {
    DJINN_RETURN_IF_ERROR(health_.status());
    std::shared_ptr<Buffer> buffer;
    DJINN_RETURN_IF_ERROR(health_.Note(CatchTorch(kNoMemory, [&] {
      buffer = make();
      return absl::OkStatus();
    })));
    return buffer;
  }

  const std::unique_ptr<Accelerator> accelerator_;
  const uint64_t memory_bytes_;
  DeviceHealth health_;
  Transfers transfers_;
  StreamTarget target_;
  GraphStore graphs_;
  StreamLibrary library_;
};

}  // namespace

std::unique_ptr<Device> MakeStreamDevice(
    std::unique_ptr<Accelerator> accelerator, CustomOperators custom,
    const StreamDeviceOptions& options) {
  return std::make_unique<StreamDevice>(std::move(accelerator),
                                        std::move(custom), options);
}

}  // namespace djinn::worker
