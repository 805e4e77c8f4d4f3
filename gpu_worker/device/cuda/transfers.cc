#include "gpu_worker/device/cuda/transfers.h"

#include <cstring>
#include <utility>

#include "c10/util/Exception.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

constexpr absl::string_view kFailed = "DEVICE_COPY_FAILED";

// The bytes of a buffer that the host keeps. Buffers of these devices have no
// other derived values.
class HostCopy final : public DerivedFromBytes {
 public:
  void Invalidate() override { Set(nullptr, /*ahead=*/false); }

  void Set(std::shared_ptr<const std::string> bytes, bool ahead) {
    MutexLock lock(&mu_);
    bytes_ = std::move(bytes);
    ahead_ = ahead;
  }
  // Returns the bytes that only the host has, once; then null.
  std::shared_ptr<const std::string> TakeAhead() {
    MutexLock lock(&mu_);
    if (!ahead_) return nullptr;
    ahead_ = false;
    return bytes_;
  }
  std::shared_ptr<const std::string> bytes() {
    MutexLock lock(&mu_);
    return bytes_;
  }

 private:
  Mutex mu_;
  std::shared_ptr<const std::string> bytes_ ABSL_GUARDED_BY(mu_);
  // True while the device has not received `bytes_`.
  bool ahead_ ABSL_GUARDED_BY(mu_) = false;
};

void SetOnHost(const TorchBuffer& buffer, absl::string_view bytes, bool ahead) {
  DerivedFromBytes* derived = buffer.derived();
  if (derived == nullptr) {
    derived = buffer.SetDerived(std::make_unique<HostCopy>());
  }
  static_cast<HostCopy*>(derived)->Set(
      std::make_shared<const std::string>(bytes), ahead);
}

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
  if (buffer.derived() != nullptr && bytes.size() < buffer.size_bytes()) {
    DJINN_RETURN_IF_ERROR(CatchTorch(kFailed, [&] {
      CatchUp(buffer);
      return absl::OkStatus();
    }));
  }
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
  if (const std::shared_ptr<const std::string> kept = OnHost(buffer)) {
    std::memcpy(to, kept->data() + offset, bytes);
    return absl::OkStatus();
  }
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
  SetOnHost(buffer, bytes, /*ahead=*/false);
}

void Transfers::WriteOnHost(const TorchBuffer& buffer,
                            absl::string_view bytes) {
  SetOnHost(buffer, bytes, /*ahead=*/true);
}

void Transfers::CatchUp(const TorchBuffer& buffer) {
  const std::shared_ptr<const std::string> bytes =
      static_cast<HostCopy*>(buffer.derived())->TakeAhead();
  if (bytes == nullptr) return;
  const bool uploads = order_.EventOf(buffer) != nullptr;
  const absl::Status written = staging_.Upload(
      buffer.data(), *bytes, uploads ? StreamId::kCopyIn : StreamId::kCompute);
  TORCH_CHECK(written.ok(), std::string(written.message()));
  if (uploads) order_.Wrote(buffer);
}

std::shared_ptr<const std::string> Transfers::OnHost(
    const TorchBuffer& buffer) {
  DerivedFromBytes* const derived = buffer.derived();
  return derived == nullptr ? nullptr
                            : static_cast<HostCopy*>(derived)->bytes();
}

}  // namespace djinn::worker
