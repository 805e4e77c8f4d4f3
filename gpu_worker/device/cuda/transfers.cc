#include "gpu_worker/device/cuda/transfers.h"

#include <utility>

#include "common/mutex.h"
#include "common/status_macros.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kFailed = "DEVICE_COPY_FAILED";

// The only thing that is derived from buffers' bytes on these devices.
class HostCopy final : public DerivedFromBytes {
 public:
  void Invalidate() override { Set(nullptr); }

  void Set(std::shared_ptr<const std::string> bytes) {
    MutexLock lock(&mu_);
    bytes_ = std::move(bytes);
  }
  std::shared_ptr<const std::string> bytes() {
    MutexLock lock(&mu_);
    return bytes_;
  }

 private:
  Mutex mu_;
  std::shared_ptr<const std::string> bytes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::shared_ptr<TorchBuffer> Transfers::MakeForUpload(uint64_t bytes) {
  std::shared_ptr<TorchBuffer> buffer(
      new TorchBuffer(accelerator_.Allocate(bytes, StreamId::kCopyIn)),
      [this](TorchBuffer* gone) {
        order_.Forget(*gone);
        delete gone;
      });
  order_.Add(*buffer);
  return buffer;
}

std::shared_ptr<TorchBuffer> Transfers::MakeForOperators(uint64_t bytes) {
  return std::make_shared<TorchBuffer>(
      accelerator_.Allocate(bytes, StreamId::kCompute));
}

absl::Status Transfers::Write(const TorchBuffer& buffer, uint64_t offset,
                              absl::string_view bytes) {
  buffer.WillBeWritten();
  const bool uploads = order_.EventOf(buffer) != nullptr;
  DJINN_RETURN_IF_ERROR(
      staging_.Upload(buffer.data() + offset, bytes,
                      uploads ? StreamId::kCopyIn : StreamId::kCompute));
  if (!uploads) return absl::OkStatus();
  return CatchTorch(kFailed, [&] {
    order_.Wrote(buffer);
    return absl::OkStatus();
  });
}

absl::Status Transfers::Read(const TorchBuffer& buffer, uint64_t offset,
                             char* to, uint64_t bytes) {
  DJINN_RETURN_IF_ERROR(CatchTorch(kFailed, [&] {
    EventPtr behind = order_.EventOf(buffer);
    if (behind == nullptr) behind = accelerator_.Record(StreamId::kCompute);
    accelerator_.Wait(StreamId::kCopyOut, behind);
    return absl::OkStatus();
  }));
  return staging_.Download(to, buffer.data() + offset, bytes);
}

absl::Status Transfers::AwaitCompute() {
  EventPtr all;
  DJINN_RETURN_IF_ERROR(CatchTorch(kFailed, [&] {
    all = accelerator_.Record(StreamId::kCompute);
    return absl::OkStatus();
  }));
  return accelerator_.Await(all);
}

absl::Status Transfers::ReadMade(const void* from, char* to, uint64_t bytes) {
  DJINN_RETURN_IF_ERROR(CatchTorch(kFailed, [&] {
    accelerator_.Wait(StreamId::kCopyOut,
                      accelerator_.Record(StreamId::kCompute));
    return absl::OkStatus();
  }));
  return staging_.Download(to, from, bytes);
}

void Transfers::KeepOnHost(const TorchBuffer& buffer, absl::string_view bytes) {
  DerivedFromBytes* derived = buffer.derived();
  if (derived == nullptr) {
    derived = buffer.SetDerived(std::make_unique<HostCopy>());
  }
  static_cast<HostCopy*>(derived)->Set(
      std::make_shared<const std::string>(bytes));
}

std::shared_ptr<const std::string> Transfers::OnHost(
    const TorchBuffer& buffer) {
  DerivedFromBytes* const derived = buffer.derived();
  return derived == nullptr ? nullptr
                            : static_cast<HostCopy*>(derived)->bytes();
}

}  // namespace djinn::worker
