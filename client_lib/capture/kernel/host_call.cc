#include "client_lib/capture/kernel/host_call.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/util/DimVector.h>

#include <exception>
#include <string>

#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/outputs/cpu_trial.h"
#include "common/base/mutex.h"
#include "common/srg/graph.h"

namespace djinn::capture {
namespace {

// The largest number of calls that are executed to compute one value.
constexpr int kMaxCalls = 32;

bool IsWhole(const at::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) &&
         !tensor.is_neg();
}

// Returns whether both the storage and the elements are small. An expanded
// tensor has more elements than its storage.
bool IsSmall(const at::Tensor& tensor) {
  constexpr auto kMost = VirtualDevice::kMaxHostValueBytes;
  return tensor.storage().nbytes() <= kMost &&
         static_cast<uint64_t>(tensor.numel()) * tensor.element_size() <= kMost;
}

// Describes where a tensor's elements are in the bytes of a storage.
struct Layout {
  explicit Layout(const at::Tensor& tensor)
      : sizes(tensor.sizes()),
        strides(tensor.strides()),
        offset(tensor.storage_offset()),
        type(tensor.scalar_type()) {}

  bool IsOf(const at::Tensor& tensor) const {
    return tensor.scalar_type() == type && tensor.sizes() == sizes &&
           tensor.strides() == strides && tensor.storage_offset() == offset;
  }

  c10::DimVector sizes, strides;
  int64_t offset;
  c10::ScalarType type;
};

class Uploaded final : public HostValue {
 public:
  explicit Uploaded(const at::Tensor& tensor)
      : bytes_(std::make_shared<const std::string>(
            static_cast<const char*>(tensor.const_data_ptr()),
            tensor.nbytes())) {}

  HostBytes Bytes() const override { return bytes_; }

 private:
  const HostBytes bytes_;
};

// An operand's value and its layout.
struct Operand {
  HostValuePtr value;
  Layout layout;
  uint64_t extent_bytes;
  bool is_wrapped_number;

  // Computes the operand. Returns an undefined tensor if its value is unknown.
  at::Tensor ToTensor() const {
    const HostBytes bytes = value->Bytes();
    if (bytes == nullptr || extent_bytes > bytes->size()) return at::Tensor();
    // The cast is safe: no operator here writes its operands, and Compute()
    // gives a tensor that is overwritten its own memory.
    char* const first = const_cast<char*>(bytes->data());
    at::Tensor tensor = at::from_blob(
        first +
            layout.offset * static_cast<int64_t>(c10::elementSize(layout.type)),
        layout.sizes, layout.strides, [bytes](void*) {},
        at::TensorOptions(layout.type));
    if (is_wrapped_number) {
      tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return tensor;
  }
};

// The value of a tensor that a call creates or overwrites. It is computed when
// it is first read.
class Result final : public HostValue {
 public:
  Result(const OperatorInfo& info, const at::Tensor& result)
      : info_(info),
        layout_(result),
        storage_bytes_(result.storage().nbytes()) {}

  HostBytes Bytes() const override {
    {
      MutexLock lock(&mu_);
      if (is_computed_) return bytes_;
    }
    // Another thread may compute the same value at the same time.
    HostBytes bytes;
    try {
      bytes = Compute();
    } catch (const std::exception&) {
      // The worker reports what is wrong with the call.
    }
    MutexLock lock(&mu_);
    is_computed_ = true;
    bytes_ = bytes;
    return bytes;
  }

  int calls() const { return calls_; }

  // AddPlain() and AddTensors() add the call's arguments, in order. They must
  // be called before another thread can use this object.
  void AddPlain(c10::IValue value) {
    arguments_.push_back({std::move(value), {}});
  }
  void AddTensors(std::vector<Operand> tensors, bool is_list) {
    for (const Operand& operand : tensors) {
      const auto* const result =
          dynamic_cast<const Result*>(operand.value.get());
      if (result != nullptr) calls_ += result->calls();
    }
    arguments_.push_back({std::nullopt, std::move(tensors), is_list});
  }

 private:
  struct Argument {
    std::optional<c10::IValue> plain;
    std::vector<Operand> tensors;
    bool is_list = false;
  };

  // Executes the call. Returns null if its result is not as expected.
  HostBytes Compute() const {
    const at::DisableRecordFunctionGuard unprofiled;
    torch::jit::Stack stack;
    if (info_.host_use == HostUse::kOverwrites) {
      stack.emplace_back(at::empty_strided(layout_.sizes, layout_.strides,
                                           at::TensorOptions(layout_.type)));
    }
    for (const Argument& argument : arguments_) {
      if (argument.plain.has_value()) {
        stack.push_back(*argument.plain);
        continue;
      }
      c10::List<at::Tensor> tensors;
      for (const Operand& operand : argument.tensors) {
        tensors.push_back(operand.ToTensor());
        if (!tensors.get(tensors.size() - 1).defined()) return nullptr;
      }
      if (argument.is_list) {
        stack.emplace_back(std::move(tensors));
      } else {
        stack.emplace_back(tensors.get(0));
      }
    }
    RunOnCpu(info_, &stack);
    if (stack.size() != 1 || !stack[0].isTensor()) return nullptr;
    const at::Tensor& result = stack[0].toTensor();
    if (!layout_.IsOf(result) || result.storage().nbytes() != storage_bytes_) {
      return nullptr;
    }
    return std::make_shared<const std::string>(
        static_cast<const char*>(result.storage().data()), storage_bytes_);
  }

  const OperatorInfo& info_;
  const Layout layout_;
  const size_t storage_bytes_;
  int calls_ = 1;
  std::vector<Argument> arguments_;

  mutable Mutex mu_;
  mutable bool is_computed_ ABSL_GUARDED_BY(mu_) = false;
  mutable HostBytes bytes_ ABSL_GUARDED_BY(mu_);
};

// Collects the values of a call's operands, one argument after the other.
class OperandCollector {
 public:
  OperandCollector(VirtualDevice* device, Result* result,
                   std::vector<StorageAt>* sources)
      : device_(*device), result_(*result), sources_(*sources) {}

  // Adds an argument. Returns false if its value is unknown.
  bool Add(const c10::IValue& value) {
    // A floating-point number would make the result depend on rounding.
    if (value.isDouble() || value.isComplexDouble() || value.isGenerator()) {
      return false;
    }
    const bool is_list = value.isTensorList();
    if (!is_list && !(value.isTensor() && value.toTensor().defined())) {
      result_.AddPlain(value.isDevice() ? c10::Device(c10::kCPU) : value);
      return true;
    }
    std::vector<Operand> tensors;
    if (is_list) {
      for (const at::Tensor& tensor : value.toTensorList()) {
        if (!AddTensor(tensor, &tensors)) return false;
      }
    } else if (!AddTensor(value.toTensor(), &tensors)) {
      return false;
    }
    result_.AddTensors(std::move(tensors), is_list);
    return result_.calls() <= kMaxCalls;
  }

 private:
  bool AddTensor(const at::Tensor& tensor, std::vector<Operand>* tensors) {
    // A CPU tensor is excluded, because the program may change it before the
    // value is needed.
    if (!IsRemote(tensor) || !IsWhole(tensor) || !IsSmall(tensor)) return false;
    const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(ViewOf(tensor));
    if (!extent.ok()) return false;
    const RemoteStorage* const storage = OwnStorageOf(tensor);
    const StorageAt now{storage, device_.VersionOf(*storage)};
    HostValuePtr value = device_.FindHostValue(now);
    if (value == nullptr) return false;
    sources_.push_back(now);
    tensors->push_back({std::move(value), Layout(tensor), *extent,
                        tensor.unsafeGetTensorImpl()->is_wrapped_number()});
    return true;
  }

  VirtualDevice& device_;
  Result& result_;
  std::vector<StorageAt>& sources_;
};

bool IsAlias(const at::Tensor& written, const c10::IValue& other) {
  return other.isTensor() && other.toTensor().defined() &&
         other.toTensor().is_alias_of(written);
}

}  // namespace

HostWrite::HostWrite(const at::Tensor& written, bool creates,
                     VirtualDevice* device)
    : device_(*device) {
  const RemoteStorage* const storage = OwnStorageOf(written);
  const uint64_t now = device->VersionOf(*storage);
  written_ = {storage, now + (now == 0 && !creates ? 2 : 1)};
}

std::optional<HostWrite> HostWrite::OfCall(const OperatorInfo& info,
                                           c10::ArrayRef<c10::IValue> arguments,
                                           const at::Tensor& result,
                                           VirtualDevice* device) {
  if (!IsRemote(result) || !IsWhole(result) || !IsSmall(result)) {
    return std::nullopt;
  }
  const bool overwrites = info.host_use == HostUse::kOverwrites;
  if (overwrites &&
      !srg::CoversStorage(ViewOf(result), OwnStorageOf(result)->size_bytes())) {
    return std::nullopt;
  }
  auto value = std::make_shared<Result>(info, result);
  std::vector<StorageAt> operands;
  OperandCollector collector(device, value.get(), &operands);
  for (const c10::IValue& argument : arguments.slice(overwrites ? 1 : 0)) {
    if (overwrites && IsAlias(result, argument)) return std::nullopt;
    if (!collector.Add(argument)) return std::nullopt;
  }
  HostWrite write(result, /*creates=*/!overwrites, device);
  write.operands_ = std::move(operands);
  write.value_ = std::move(value);
  write.readable_ = true;
  return write;
}

std::optional<HostWrite> HostWrite::OfUpload(const at::Tensor& bytes,
                                             const at::Tensor& destination,
                                             VirtualDevice* device) {
  if (!IsWhole(destination) || !IsSmall(destination)) return std::nullopt;
  HostWrite write(destination, /*creates=*/true, device);
  write.value_ = std::make_shared<Uploaded>(bytes);
  return write;
}

}  // namespace djinn::capture
