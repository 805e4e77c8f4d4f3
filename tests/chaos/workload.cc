#include "tests/chaos/workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "tests/schedules/fake_calls.h"

namespace djinn {
namespace {

using schedules::FakeCall;
using schedules::FloatView;

constexpr size_t kMaxLive = 12;
// Sizes far below and above the inline limit. The larger ones need several
// chunks.
constexpr uint64_t kSizes[] = {4, 64, 4096, 600'000, 3'000'000};

int64_t Count(uint64_t bytes) {
  return static_cast<int64_t>(bytes / sizeof(float));
}

}  // namespace

Workload::Workload(std::shared_ptr<VirtualDevice> device, uint32_t lane,
                   uint64_t seed)
    : device_(std::move(device)), lane_(lane), random_(seed) {}

WorkloadResult Workload::Run(const std::atomic<bool>& stop,
                             uint64_t max_calls) {
  WorkloadResult result;
  while (!stop && result.calls < max_calls && result.wrong.empty()) {
    const absl::Duration start = Clock::Real()->Monotonic();
    result.error = Step(&result);
    ++result.calls;
    result.longest =
        std::max(result.longest, Clock::Real()->Monotonic() - start);
    if (!result.error.ok()) break;
  }
  live_.clear();
  return result;
}

absl::Status Workload::Step(WorkloadResult* result) {
  if (live_.empty()) return Upload();
  const size_t index = Draw(live_.size());
  switch (Draw(8)) {
    case 0:
      return live_.size() < kMaxLive ? Upload() : Read(index, result);
    case 1:
      live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
      return absl::OkStatus();
    case 2:
    case 3:
      return Read(index, result);
    default:
      return AddOne(index);
  }
}

absl::Status Workload::Upload() {
  const uint64_t size = kSizes[Draw(std::size(kSizes))];
  const auto value = static_cast<float>(Draw(1000));
  const std::vector<float> values(size / sizeof(float), value);
  const auto bytes = std::make_shared<std::string>(
      reinterpret_cast<const char*>(values.data()), size);
  StoragePtr storage = device_->NewStorage(size);
  DJINN_RETURN_IF_ERROR(device_->Upload(lane_, storage.get(), {*bytes, bytes}));
  live_.emplace_back(std::move(storage), value);
  return absl::OkStatus();
}

absl::Status Workload::AddOne(size_t index) {
  Filled& filled = live_[index];
  StoragePtr sum = device_->NewStorage(filled.storage()->size_bytes());
  const int64_t count = Count(sum->size_bytes());
  FakeCall call("fake::add");
  call.Tensor(filled.storage().get(), count).Real(1.0).Result(sum.get(), count);
  DJINN_RETURN_IF_ERROR(device_->Record(lane_, call.get()));
  // Sometimes both values are used further.
  Filled next(std::move(sum), filled.value() + 1);
  if (Draw(4) == 0 && live_.size() < kMaxLive) {
    live_.push_back(std::move(next));
  } else {
    filled = std::move(next);
  }
  return absl::OkStatus();
}

absl::Status Workload::Read(size_t index, WorkloadResult* result) {
  const Filled& filled = live_[index];
  const uint64_t size = filled.storage()->size_bytes();
  std::vector<float> values(size / sizeof(float), -1);
  DJINN_RETURN_IF_ERROR(device_->Read(lane_, filled.storage().get(),
                                      FloatView(Count(size)), values.data(),
                                      size));
  ++result->reads;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == filled.value()) continue;
    result->wrong = absl::StrCat("element ", i, " of ", values.size(), " is ",
                                 values[i], ", must be ", filled.value());
    break;
  }
  return absl::OkStatus();
}

}  // namespace djinn
