#include "djinn/transfers.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/session/transfer/upload_progress.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {

struct PendingTensor::State {
  at::Tensor value;
  // Null for a tensor without elements. It is destroyed before `value`, because
  // it writes to the memory of `value`.
  std::unique_ptr<PendingRead> read;
};

bool PendingTensor::Ready() const {
  return state_->read == nullptr || state_->read->Ready();
}

absl::StatusOr<at::Tensor> PendingTensor::Wait(absl::Duration timeout) const {
  if (state_->read != nullptr) {
    DJINN_RETURN_IF_ERROR(state_->read->Wait(timeout));
  }
  return state_->value;
}

void PendingTensor::OnReady(std::function<void()> callback) const {
  if (state_->read == nullptr) {
    callback();
  } else {
    state_->read->OnReady(std::move(callback));
  }
}

absl::StatusOr<PendingTensor> ReadAsync(const at::Tensor& tensor) {
  if (!capture::IsRemote(tensor)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "NOT_REMOTE",
        absl::StrCat("the tensor is ",
                     tensor.defined()
                         ? absl::StrCat("on ", tensor.device().str())
                         : "undefined",
                     ": an asynchronous read needs a tensor on a remote "
                     "device"));
  }
  if (tensor.layout() != c10::kStrided) {
    return MakeError(absl::StatusCode::kInvalidArgument, "NOT_STRIDED",
                     "an asynchronous read needs a strided tensor: read the "
                     "indices and the values of a sparse one, or the values of "
                     "a nested one");
  }
  auto state = std::make_shared<PendingTensor::State>();
  state->value = at::empty(
      tensor.sizes(), at::TensorOptions(c10::kCPU).dtype(tensor.scalar_type()));
  if (tensor.numel() != 0) {
    RemoteStorage* const storage = capture::StorageOf(tensor);
    if (storage == nullptr) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, "NOT_REMOTE",
          "the tensor was made from an address, and remote memory has no "
          "usable address");
    }
    DJINN_ASSIGN_OR_RETURN(
        state->read,
        storage->device()->StartRead(
            capture::CurrentLane(), storage, capture::ViewOf(tensor),
            state->value.mutable_data_ptr(),
            static_cast<uint64_t>(state->value.numel()) *
                state->value.element_size()));
  }
  return PendingTensor(std::move(state));
}

void SetUploadProgress(UploadCallback progress, uint64_t min_bytes) {
  WatchUploads(std::move(progress), min_bytes);
}

}  // namespace djinn
