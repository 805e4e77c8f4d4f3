#include "gpu_worker/device/fake/fake_device.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "gpu_worker/device/fake/fake_operators.h"

namespace djinn::worker {

struct FakeDevice::Usage {
  std::atomic<uint64_t> live_bytes{0};
};

FakeDevice::FakeDevice(uint64_t memory_bytes)
    : memory_bytes_(memory_bytes),
      usage_(std::make_shared<Usage>()),
      operators_(MakeFakeOperators(this)) {}

FakeDevice::~FakeDevice() = default;

absl::StatusOr<std::shared_ptr<Buffer>> FakeDevice::Allocate(uint64_t bytes) {
  if (usage_->live_bytes + bytes > memory_bytes_) {
    return LimitExceeded("DEVICE_FULL", "fake device", memory_bytes_,
                         usage_->live_bytes, bytes);
  }
  usage_->live_bytes += bytes;
  return std::shared_ptr<Buffer>(new FakeBuffer(bytes),
                                 [usage = usage_](FakeBuffer* buffer) {
                                   usage->live_bytes -= buffer->size_bytes();
                                   delete buffer;
                                 });
}

absl::StatusOr<std::shared_ptr<Buffer>> FakeDevice::AllocateUnset(
    uint64_t bytes) {
  absl::StatusOr<std::shared_ptr<Buffer>> buffer = Allocate(bytes);
  if (!buffer.ok()) return buffer;
  std::fill_n(static_cast<FakeBuffer*>(buffer->get())->data(), bytes, '\xa5');
  return buffer;
}

absl::StatusOr<std::shared_ptr<Buffer>> FakeDevice::Clone(const Buffer& source,
                                                          uint64_t bytes) {
  absl::StatusOr<std::shared_ptr<Buffer>> copy = Allocate(bytes);
  if (!copy.ok()) return copy;
  const auto& from = static_cast<const FakeBuffer&>(source);
  std::copy_n(from.data(), std::min(bytes, from.size_bytes()),
              static_cast<FakeBuffer*>(copy->get())->data());
  return copy;
}

absl::Status FakeDevice::Write(Buffer* buffer, uint64_t offset,
                               absl::string_view bytes) {
  std::copy(bytes.begin(), bytes.end(),
            static_cast<FakeBuffer*>(buffer)->data() + offset);
  return absl::OkStatus();
}

absl::StatusOr<SharedBytes> FakeDevice::HostBytes(
    std::shared_ptr<Buffer> buffer) {
  auto* bytes = static_cast<FakeBuffer*>(buffer.get());
  return SharedBytes{{bytes->data(), bytes->size_bytes()}, buffer};
}

absl::StatusOr<SharedBytes> FakeDevice::ReadView(std::shared_ptr<Buffer> buffer,
                                                 const srg::TensorView& view) {
  const auto* from = static_cast<const FakeBuffer*>(buffer.get());
  const int64_t element = srg::ElementSize(view.data_type);
  if (IsPlainContiguous(view)) {
    return SharedBytes{
        {from->data() + view.storage_offset * element,
         static_cast<size_t>(srg::ElementCount(view).value() * element)},
        std::move(buffer)};
  }
  auto out = std::make_shared<std::string>();
  // Counts through the indices, last dimension fastest.
  const int64_t count = srg::ElementCount(view).value();
  std::vector<int64_t> index(view.sizes.size(), 0);
  for (int64_t done = 0; done < count; ++done) {
    int64_t at = view.storage_offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * view.strides[d];
    out->append(from->data() + at * element, element);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < view.sizes[d]) break;
      index[d] = 0;
    }
  }
  return SharedBytes{*out, out};
}

void FakeDevice::SetExecuteHook(
    std::function<absl::Status(const std::string&)> hook) {
  MutexLock lock(&mu_);
  hook_ = std::move(hook);
}

absl::Status FakeDevice::RunExecuteHook(const std::string& name) {
  std::function<absl::Status(const std::string&)> hook;
  {
    MutexLock lock(&mu_);
    hook = hook_;
  }
  return hook ? hook(name) : absl::OkStatus();
}

void FakeDevice::Break(absl::Status why) {
  MutexLock lock(&mu_);
  health_ = std::move(why);
}

absl::Status FakeDevice::Health() const {
  MutexLock lock(&mu_);
  return health_;
}

void FakeDevice::SetSettleStatus(absl::Status status) {
  MutexLock lock(&mu_);
  settle_status_ = std::move(status);
}

absl::Status FakeDevice::settle_status() {
  MutexLock lock(&mu_);
  return settle_status_;
}

uint64_t FakeDevice::live_bytes() const { return usage_->live_bytes; }

}  // namespace djinn::worker
