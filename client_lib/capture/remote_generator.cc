#include "client_lib/capture/remote_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <cstring>
#include <utility>
#include <vector>

#include "client_lib/capture/lane.h"
#include "client_lib/capture/process_session.h"
#include "client_lib/capture/throw_status.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/srg/structure.h"

namespace djinn::capture {
namespace {

std::string BytesOf(const at::Tensor& state) {
  return std::string(static_cast<const char*>(state.const_data_ptr()),
                     state.nbytes());
}

// The size of a state: that of the CPU's, which a worker checks.
uint64_t CpuStateBytes() {
  static const uint64_t bytes =
      at::detail::createCPUGenerator().get_state().nbytes();
  return bytes;
}

// On a GPU a state is a seed and an offset, 64 bits each, as
// torch.cuda.get_rng_state() gives it.
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
      // An unseeded generator draws what an unseeded CPU generator draws.
      seed_(c10::default_rng_seed_val) {}

RemoteGenerator::~RemoteGenerator() {
  if (storage_) storage_->device()->MarkDead(storage_.get());
}

StoragePtr RemoteGenerator::StorageOn(
    const std::shared_ptr<VirtualDevice>& device, uint32_t lane) const {
  // Whoever had a lock when the process was forked never lets go of it here.
  if (IsForkedChild()) ThrowIfError(AfterForkError());
  {
    MutexLock lock(&mu_);
    if (IsSetOn(*device)) return storage_;
  }
  // Others who draw meanwhile do so after it is sent.
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
  // What the worker's own seeding makes of it, it knows itself.
  const uint64_t bytes = state.empty() ? CpuStateBytes() : state.size();
  const bool anew =
      !storage || storage->device() != device || storage->size_bytes() != bytes;
  if (anew) storage = device->NewStorage(bytes);
  // Also before a state: it is the seed that makes a storage a generator.
  if (anew || state.empty()) {
    ThrowIfError(device->Seed(lane, storage.get(), seed));
  }
  if (anew) {
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
    // Nobody draws from it any more, and the lock may be held for ever.
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
  const uint64_t due = StateBytes();
  if (due == kPhiloxStateBytes) return SetPhiloxState(new_state);
  // Takes what the CPU takes, older formats too, and complains as it does.
  at::Generator taken = at::detail::createCPUGenerator();
  taken.unsafeGetGeneratorImpl()->set_state(new_state);
  std::string bytes = BytesOf(taken.get_state());
  TORCH_CHECK(bytes.size() == due, "RNG state is wrong size: the worker's has ",
              due, " bytes, this one ", bytes.size());
  MutexLock lock(&mu_);
  seed_ = taken.current_seed();
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

void RemoteGenerator::set_offset(uint64_t offset) {
  if (StateBytes() != kPhiloxStateBytes) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        offset == 0, "generators have an offset on GPU workers only");
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

uint64_t SettingsOfRemoteGenerators() { return settings; }

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
              "no remote device ", static_cast<int>(index));
  return (*generators)[index];
}

}  // namespace djinn::capture
