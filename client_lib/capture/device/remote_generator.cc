#include "client_lib/capture/device/remote_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <cstring>
#include <utility>
#include <vector>

#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/srg/graph.h"

namespace djinn::capture {
namespace {

std::string BytesOf(const at::Tensor& state) {
  return std::string(static_cast<const char*>(state.const_data_ptr()),
                     state.nbytes());
}

// Returns the size of a CPU generator's state in bytes. A worker checks it.
uint64_t CpuStateBytes() {
  static const uint64_t bytes =
      at::detail::createCPUGenerator().get_state().nbytes();
  return bytes;
}

// The size of a GPU generator's state in bytes: a seed and an offset of 64 bits
// each, as in torch.cuda.get_rng_state().
constexpr uint64_t kPhiloxStateBytes = 16;

thread_local uint64_t settings = 0;

// Waits until the device's worker was reached.
uint64_t StateBytesOf(VirtualDevice& device) {
  const DevicePlacement placement = ValueOrThrow(device.Placement());
  return placement.generator_bytes > 0 ? placement.generator_bytes
                                       : CpuStateBytes();
}

}  // namespace

RemoteGenerator::RemoteGenerator(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      // Equals the seed of an unseeded CPU generator, so that both draw the
      // same numbers.
      seed_(c10::default_rng_seed_val) {}

RemoteGenerator::~RemoteGenerator() {
  if (storage_) storage_->device()->MarkDead(storage_.get());
}

StoragePtr RemoteGenerator::StorageOn(
    const std::shared_ptr<VirtualDevice>& device, uint32_t lane) const {
  // A lock that another thread held at the fork stays locked in the child.
  if (IsForkedChild()) ThrowIfError(AfterForkError());
  {
    MutexLock lock(&mu_);
    if (IsSetOn(*device)) return storage_;
  }
  // Other threads that draw wait here until the seed or state is sent.
  MutexLock sending(&sending_mu_);
  uint64_t setting, seed;
  std::string state;
  StoragePtr storage;
  {
    MutexLock lock(&mu_);
    if (IsSetOn(*device)) return storage_;
    setting = setting_;
    seed = seed_;
    state = state_;
    storage = storage_;
  }
  // The seed alone is sent; the worker derives the state from it.
  const uint64_t bytes = state.empty() ? CpuStateBytes() : state.size();
  const bool is_new =
      !storage || storage->device() != device || storage->size_bytes() != bytes;
  if (is_new) storage = device->NewStorage(bytes);
  // A state is sent after a seed, because seeding makes a storage a generator.
  if (is_new || state.empty()) {
    ThrowIfError(device->Seed(lane, storage.get(), seed));
  }
  if (is_new) {
    StoragePtr former = storage;
    {
      MutexLock lock(&mu_);
      std::swap(former, storage_);
      sent_ = 0;
    }
    if (former) former->device()->MarkDead(former.get());
  }
  if (!state.empty()) {
    auto owner = std::make_shared<const std::string>(std::move(state));
    ThrowIfError(device->Upload(lane, storage.get(), {*owner, owner}));
  }
  MutexLock lock(&mu_);
  sent_ = setting;
  return storage;
}

void RemoteGenerator::set_current_seed(uint64_t seed) {
  ++settings;
  if (IsForkedChild()) {
    // A forked child needs no lock, because none of its calls draws; and the
    // lock may be held for ever.
    seed_ = seed;
    return;
  }
  MutexLock lock(&mu_);
  seed_ = seed;
  state_.clear();
  ++setting_;
}

uint64_t RemoteGenerator::current_seed() const { return seed_; }

uint64_t RemoteGenerator::seed() {
  const uint64_t value = c10::detail::getNonDeterministicRandom();
  set_current_seed(value);
  return value;
}

void RemoteGenerator::set_state(const c10::TensorImpl& new_state) {
  ++settings;
  const uint64_t expected = StateBytes();
  if (expected == kPhiloxStateBytes) return SetPhiloxState(new_state);
  // The CPU's generator parses the state, because it accepts older formats and
  // raises PyTorch's errors.
  at::Generator parsed = at::detail::createCPUGenerator();
  parsed.unsafeGetGeneratorImpl()->set_state(new_state);
  std::string bytes = BytesOf(parsed.get_state());
  TORCH_CHECK(bytes.size() == expected,
              "RNG state has the wrong size: the worker's has ", expected,
              " bytes, this one has ", bytes.size());
  MutexLock lock(&mu_);
  seed_ = parsed.current_seed();
  state_ = std::move(bytes);
  ++setting_;
}

void RemoteGenerator::SetPhiloxState(const c10::TensorImpl& state) {
  TORCH_CHECK(state.device().is_cpu() && state.layout() == c10::kStrided &&
                  state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                  state.is_contiguous() &&
                  state.numel() == static_cast<int64_t>(kPhiloxStateBytes),
              "RNG state must be a dense torch.ByteTensor on the CPU of ",
              kPhiloxStateBytes, " bytes, a seed and an offset");
  const auto* const bytes = static_cast<const char*>(state.data());
  uint64_t seed, offset;
  std::memcpy(&seed, bytes, sizeof(seed));
  std::memcpy(&offset, bytes + sizeof(seed), sizeof(offset));
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  MutexLock lock(&mu_);
  seed_ = seed;
  state_.assign(bytes, kPhiloxStateBytes);
  ++setting_;
}

c10::intrusive_ptr<c10::TensorImpl> RemoteGenerator::get_state() const {
  const std::shared_ptr<VirtualDevice> device =
      ValueOrThrow(DeviceOfProcess(device_.index()));
  const uint32_t lane = CurrentLane();
  const StoragePtr storage = StorageOn(device, lane);
  at::Tensor state = at::empty({static_cast<int64_t>(StateBytesOf(*device))},
                               at::TensorOptions(at::kCPU).dtype(at::kByte));
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {state.numel()};
  view.strides = {1};
  ThrowIfError(device->Read(lane, storage.get(), view, state.mutable_data_ptr(),
                            state.nbytes()));
  return std::move(state).getIntrusivePtr();
}

std::optional<RemoteGenerator::Setting> RemoteGenerator::PendingSetting()
    const {
  // A forked child has no session, and its locks may be held for ever.
  if (IsForkedChild()) return Setting{seed_, ""};
  {
    MutexLock lock(&mu_);
    if (!storage_ || sent_ != setting_) return Setting{seed_, state_};
  }
  // The storage may be that of an earlier session.
  std::shared_ptr<VirtualDevice> device;
  if (const std::shared_ptr<Session> session = CurrentSession()) {
    device = session->Device(device_.index()).value_or(nullptr);
  }
  MutexLock lock(&mu_);
  if (device != nullptr && IsSetOn(*device)) return std::nullopt;
  return Setting{seed_, state_};
}

void RemoteGenerator::Set(Setting setting) {
  if (setting.state.empty()) return set_current_seed(setting.seed);
  ++settings;
  if (IsForkedChild()) return;
  MutexLock lock(&mu_);
  seed_ = setting.seed;
  state_ = std::move(setting.state);
  ++setting_;
}

void RemoteGenerator::NoteSeed(uint64_t seed) {
  MutexLock lock(&mu_);
  if (sent_ == setting_) seed_ = seed;
}

void RemoteGenerator::set_offset(uint64_t offset) {
  if (StateBytes() != kPhiloxStateBytes) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        offset == 0, "only the generators of GPU workers have an offset");
    return;
  }
  const at::Tensor state = at::Tensor(get_state());
  std::memcpy(static_cast<char*>(state.mutable_data_ptr()) + sizeof(uint64_t),
              &offset, sizeof(offset));
  set_state(*state.unsafeGetTensorImpl());
}

uint64_t RemoteGenerator::get_offset() const {
  if (StateBytes() != kPhiloxStateBytes) return 0;
  uint64_t offset = 0;
  const at::Tensor state = at::Tensor(get_state());
  std::memcpy(&offset,
              static_cast<const char*>(state.const_data_ptr()) + sizeof(offset),
              sizeof(offset));
  return offset;
}

uint64_t RemoteGenerator::StateBytes() const {
  return StateBytesOf(*ValueOrThrow(DeviceOfProcess(device_.index())));
}

RemoteGenerator* RemoteGenerator::clone_impl() const {
  const at::Tensor state = at::Tensor(get_state());
  auto* const clone = new RemoteGenerator(device_.index());
  clone->set_state(*state.unsafeGetTensorImpl());
  return clone;
}

uint64_t RemoteGeneratorSettings() { return settings; }

const at::Generator& DefaultRemoteGenerator(c10::DeviceIndex index) {
  static const std::vector<at::Generator>* const generators = [] {
    auto* list = new std::vector<at::Generator>;
    for (int i = 0; i < DeviceCount(); ++i) {
      list->push_back(at::make_generator<RemoteGenerator>(
          static_cast<c10::DeviceIndex>(i)));
    }
    return list;
  }();
  TORCH_CHECK(index >= 0 && static_cast<size_t>(index) < generators->size(),
              "there is no remote device ", static_cast<int>(index));
  return (*generators)[index];
}

}  // namespace djinn::capture
