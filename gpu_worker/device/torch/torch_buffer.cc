#include "gpu_worker/device/torch/torch_buffer.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/CPUAllocator.h"
#include "c10/core/ScalarTypeToTypeMeta.h"
#include "c10/core/TensorImpl.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/torch/data_type.h"

namespace djinn::worker {

TorchBuffer::TorchBuffer(c10::Storage storage)
    : storage_(std::move(storage)),
      data_(static_cast<char*>(storage_.mutable_data())),
      size_bytes_(storage_.nbytes()) {
  storage_.unsafeGetStorageImpl()->set_resizable(false);
}

TorchBuffer::TorchBuffer(c10::Device device, uint64_t bytes,
                         std::shared_ptr<const Unmade> unmade)
    : storage_(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
          c10::DataPtr(nullptr, device), /*allocator=*/nullptr,
          /*resizable=*/false)),
      data_(nullptr),
      size_bytes_(bytes),
      unmade_(std::move(unmade)) {}

TorchBuffer::~TorchBuffer() {
  for (const std::atomic<DerivedFromBytes*>& each : derived_) {
    delete each.load(std::memory_order_acquire);
  }
}

DerivedFromBytes* TorchBuffer::SetDerived(
    std::unique_ptr<DerivedFromBytes> derived,
    DerivedFromBytes::Kind kind) const {
  DerivedFromBytes* present = nullptr;
  if (derived_[kind].compare_exchange_strong(present, derived.get(),
                                             std::memory_order_acq_rel)) {
    return derived.release();
  }
  return present;
}

c10::Storage UninitialisedStorage(uint64_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= INT64_MAX,
                   "out of memory: asked ", bytes);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::GetCPUAllocator(), /*resizable=*/false));
}

c10::Storage ZeroedStorage(uint64_t bytes) {
  c10::Storage storage = UninitialisedStorage(bytes);
  if (bytes > 0) std::memset(storage.mutable_data(), 0, bytes);
  return storage;
}

absl::Status CheckViewOfTorch(const srg::TensorView& view) {
  const std::optional<c10::ScalarType> type = DataTypeToTorch(view.data_type);
  absl::string_view problem;
  if (!type.has_value()) {
    problem = "unknown data type";
  } else if (view.conjugate && !c10::isComplexType(*type)) {
    problem = "conjugation of real elements";
  } else if (view.negative && !c10::isComplexType(*type) &&
             !c10::isFloatingType(*type)) {
    problem = "lazy negation of integers";
  } else {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
                   absl::StrCat(problem, " in view ", srg::DescribeView(view)));
}

absl::StatusOr<uint64_t> ExtentInside(const srg::TensorView& view,
                                      uint64_t size_bytes) {
  DJINN_RETURN_IF_ERROR(CheckViewOfTorch(view));
  DJINN_ASSIGN_OR_RETURN(const uint64_t extent, srg::ExtentBytes(view));
  if (extent <= size_bytes) return extent;
  return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
                   absl::StrCat("view ", srg::DescribeView(view),
                                " ends at byte ", extent, " of ", size_bytes));
}

absl::Status CheckWrite(const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  if (offset <= buffer.size_bytes() && bytes <= buffer.size_bytes() - offset) {
    return absl::OkStatus();
  }
  return absl::InternalError("write outside the buffer");
}

at::Tensor MakeTensor(const srg::TensorView& view,
                      const c10::Storage& storage) {
  const c10::DispatchKey key = storage.device_type() == c10::kCPU
                                   ? c10::DispatchKey::CPU
                                   : c10::DispatchKey::CUDA;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key),
      c10::scalarTypeToTypeMeta(*DataTypeToTorch(view.data_type)));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(
      c10::IntArrayRef(view.sizes.data(), view.sizes.size()),
      c10::IntArrayRef(view.strides.data(), view.strides.size()),
      view.storage_offset);
  if (view.conjugate) impl->_set_conj(true);
  if (view.negative) impl->_set_neg(true);
  return tensor;
}

bool DescribeTensor(const at::Tensor& tensor, srg::TensorView* view) {
  const std::optional<srg::DataType> data_type =
      DataTypeFromTorch(tensor.scalar_type());
  if (!data_type.has_value()) return false;
  view->data_type = *data_type;
  view->sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  view->strides.assign(tensor.strides().begin(), tensor.strides().end());
  view->storage_offset = tensor.storage_offset();
  view->conjugate = tensor.is_conj();
  view->negative = tensor.is_neg();
  return true;
}

}  // namespace djinn::worker
