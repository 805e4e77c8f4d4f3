#include "client_lib/capture/remote_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <utility>
#include <vector>

#include "client_lib/capture/lane.h"
#include "client_lib/capture/process_session.h"
#include "client_lib/capture/throw_status.h"
#include "common/srg/structure.h"

namespace djinn::capture {
namespace {

std::string BytesOf(const at::Tensor& state) {
  return std::string(static_cast<const char*>(state.const_data_ptr()),
                     state.nbytes());
}

// The size of a state: that of the CPU's, which a worker checks.
uint64_t StateBytes() {
  static const uint64_t bytes =
      at::detail::createCPUGenerator().get_state().nbytes();
  return bytes;
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
  MutexLock lock(&mu_);
  if (!storage_ || storage_->device() != device) {
    StoragePtr made = device->NewStorage(StateBytes());
    // Also before a state: it is the seed that makes a storage a generator.
    ThrowIfError(device->Seed(lane, made.get(), seed_));
    if (storage_) storage_->device()->MarkDead(storage_.get());
    storage_ = std::move(made);
    sent_ = state_.empty();
  }
  if (sent_) return storage_;
  if (state_.empty()) {
    ThrowIfError(device->Seed(lane, storage_.get(), seed_));
  } else {
    auto bytes = std::make_shared<const std::string>(state_);
    ThrowIfError(device->Upload(lane, storage_.get(), {*bytes, bytes}));
  }
  sent_ = true;
  return storage_;
}

void RemoteGenerator::set_current_seed(uint64_t seed) {
  MutexLock lock(&mu_);
  seed_ = seed;
  state_.clear();
  sent_ = false;
}

uint64_t RemoteGenerator::current_seed() const {
  MutexLock lock(&mu_);
  return seed_;
}

uint64_t RemoteGenerator::seed() {
  const uint64_t value = c10::detail::getNonDeterministicRandom();
  set_current_seed(value);
  return value;
}

void RemoteGenerator::set_state(const c10::TensorImpl& new_state) {
  // Takes what the CPU takes, older formats too, and complains as it does.
  at::Generator taken = at::detail::createCPUGenerator();
  taken.unsafeGetGeneratorImpl()->set_state(new_state);
  std::string bytes = BytesOf(taken.get_state());
  MutexLock lock(&mu_);
  seed_ = taken.current_seed();
  state_ = std::move(bytes);
  sent_ = false;
}

c10::intrusive_ptr<c10::TensorImpl> RemoteGenerator::get_state() const {
  const std::shared_ptr<VirtualDevice> device =
      ValueOrThrow(DeviceOfProcess(device_.index()));
  const uint32_t lane = CurrentLane();
  const StoragePtr storage = StorageOn(device, lane);
  at::Tensor state = at::empty({static_cast<int64_t>(StateBytes())},
                               at::TensorOptions(at::kCPU).dtype(at::kByte));
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {state.numel()};
  view.strides = {1};
  ThrowIfError(device->Read(lane, storage.get(), view, state.mutable_data_ptr(),
                            state.nbytes()));
  return std::move(state).getIntrusivePtr();
}

void RemoteGenerator::set_offset(uint64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "generators of remote devices have no offset");
}

uint64_t RemoteGenerator::get_offset() const {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "generators of remote devices have no offset");
}

RemoteGenerator* RemoteGenerator::clone_impl() const {
  const at::Tensor state = at::Tensor(get_state());
  auto* const clone = new RemoteGenerator(device_.index());
  clone->set_state(*state.unsafeGetTensorImpl());
  return clone;
}

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
