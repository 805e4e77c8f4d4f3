#include "gpu_worker/device/torch/torch_buffer.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "c10/core/CPUAllocator.h"
#include "c10/core/ScalarTypeToTypeMeta.h"
#include "c10/core/TensorImpl.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "common/torch/data_type.h"

namespace djinn::worker {

TorchBuffer::TorchBuffer(c10::Storage storage)
    : storage_(std::move(storage)),
      data_(static_cast<char*>(storage_.mutable_data())),
      size_bytes_(storage_.nbytes()) {
  storage_.unsafeGetStorageImpl()->set_resizable(false);
}

TorchBuffer::TorchBuffer(c10::Storage storage, const Pitch& pitch,
                         std::unique_ptr<PitchRoom> room)
    : storage_(std::move(storage)),
      data_(static_cast<char*>(storage_.mutable_data())),
      size_bytes_(pitch.blocks * pitch.block_bytes),
      spread_(std::make_unique<Spread>()) {
  storage_.unsafeGetStorageImpl()->set_resizable(false);
  spread_->pitch = pitch;
  MutexLock lock(&spread_->mu);
  spread_->room = std::move(room);
}

TorchBuffer::~TorchBuffer() { delete derived(); }

DerivedFromBytes* TorchBuffer::SetDerived(
    std::unique_ptr<DerivedFromBytes> derived) const {
  DerivedFromBytes* present = nullptr;
  if (derived_.compare_exchange_strong(present, derived.get(),
                                       std::memory_order_acq_rel)) {
    return derived.release();
  }
  return present;
}

bool TorchBuffer::IsOver(const c10::StorageImpl* impl) const {
  if (!apart()) return storage_.unsafeGetStorageImpl() == impl;
  MutexLock lock(&spread_->mu);
  return storage_.unsafeGetStorageImpl() == impl;
}

std::optional<TorchBuffer::Blocks> TorchBuffer::Apart() const {
  if (!apart()) return std::nullopt;
  MutexLock lock(&spread_->mu);
  if (!spread_->apart.load(std::memory_order_relaxed)) return std::nullopt;
  return Blocks{storage_, spread_->pitch};
}

std::unique_ptr<PitchRoom> TorchBuffer::TakeRoom() const {
  if (!apart()) return nullptr;
  MutexLock lock(&spread_->mu);
  storage_ = c10::Storage();
  data_ = nullptr;
  size_bytes_ = 0;
  spread_->apart.store(false, std::memory_order_release);
  return std::move(spread_->room);
}

void TorchBuffer::MoveTogether() const {
  std::unique_ptr<PitchRoom> room;
  c10::Storage before;
  {
    MutexLock lock(&spread_->mu);
    if (!spread_->apart.load(std::memory_order_relaxed)) return;
    c10::Storage together = UninitialisedStorage(size_bytes_);
    auto* to = static_cast<char*>(together.mutable_data());
    const char* from = data_;
    const Pitch& pitch = spread_->pitch;
    for (uint64_t i = 0; i < pitch.blocks; ++i) {
      std::memcpy(to, from, pitch.block_bytes);
      to += pitch.block_bytes;
      from += pitch.pitch_bytes;
    }
    before = std::exchange(storage_, std::move(together));
    data_ = static_cast<char*>(storage_.mutable_data());
    room = std::move(spread_->room);
    spread_->apart.store(false, std::memory_order_release);
  }
  room->Lost();
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

at::Tensor MakeTensor(const srg::TensorView& view,
                      const TorchBuffer::Blocks& blocks) {
  const auto element = static_cast<uint64_t>(srg::ElementSize(view.data_type));
  if (blocks.pitch.block_bytes % element != 0 ||
      blocks.pitch.pitch_bytes % element != 0) {
    return at::Tensor();
  }
  const auto block = static_cast<int64_t>(blocks.pitch.block_bytes / element);
  const auto pitch = static_cast<int64_t>(blocks.pitch.pitch_bytes / element);
  srg::TensorView apart = view;
  // A dimension leads from block to block, or all of them together stay within
  // one.
  int64_t within = view.storage_offset % block;
  apart.storage_offset = view.storage_offset / block * pitch + within;
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    const int64_t stride = view.strides[d];
    if (view.sizes[d] == 0) return at::Tensor();
    if (stride % block == 0) {
      apart.strides[d] = stride / block * pitch;
      continue;
    }
    int64_t way;
    if (__builtin_mul_overflow(view.sizes[d] - 1, stride, &way) ||
        __builtin_add_overflow(within, way, &within) || within >= block) {
      return at::Tensor();
    }
  }
  return MakeTensor(apart, blocks.storage);
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
