#include "gpu_worker/device/cuda/stream_target.h"

#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "c10/util/Exception.h"
#include "common/srg/graph.h"

namespace djinn::worker {

c10::Storage StreamTarget::Zeroed(uint64_t bytes) const {
  c10::Storage storage = accelerator_.Allocate(bytes, StreamId::kCompute);
  if (bytes > 0) FillWithZeros(storage);
  return storage;
}

void StreamTarget::FillWithZeros(const c10::Storage& storage) const {
  accelerator_.Zero(storage.mutable_data(), storage.nbytes(),
                    StreamId::kCompute);
  // Orders this thread's next operators after the command.
  const auto scope = accelerator_.EnterCompute();
}

at::Tensor StreamTarget::ReadState(const TorchBuffer& buffer) const {
  const uint64_t bytes = buffer.size_bytes();
  c10::Storage host = UninitialisedStorage(bytes);
  if (const std::shared_ptr<const std::string> kept =
          Transfers::OnHost(buffer)) {
    std::memcpy(host.mutable_data(), kept->data(), bytes);
  } else {
    const absl::Status read = transfers_.Read(
        buffer, 0, static_cast<char*>(host.mutable_data()), bytes);
    TORCH_CHECK(read.ok(), std::string(read.message()));
    Transfers::KeepOnHost(buffer,
                          {static_cast<const char*>(host.data()), bytes});
  }
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(bytes)};
  view.strides = {1};
  return MakeTensor(view, host);
}

void StreamTarget::WriteState(const TorchBuffer& buffer,
                              const at::Tensor& state) const {
  const absl::string_view bytes(
      static_cast<const char*>(state.const_data_ptr()), state.nbytes());
  // Writes on the host instead of the device, so that the thread that calls
  // operators does not wait for a staging block.
  TORCH_CHECK(bytes.size() == buffer.size_bytes());
  Transfers::WriteOnHost(buffer, bytes);
}

}  // namespace djinn::worker
