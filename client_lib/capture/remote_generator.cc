#include "client_lib/capture/remote_generator.h"

#include <c10/core/TensorImpl.h>

#include <vector>

#include "client_lib/capture/process_session.h"
#include "client_lib/capture/throw_status.h"

namespace djinn::capture {

RemoteGenerator::RemoteGenerator(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      // An unseeded generator draws what an unseeded CPU generator draws.
      seed_(c10::default_rng_seed_val) {}

StoragePtr RemoteGenerator::StorageOn(
    const std::shared_ptr<VirtualDevice>& device, uint32_t lane) {
  MutexLock lock(&mu_);
  if (!storage_ || storage_->device() != device) {
    if (storage_) storage_->device()->MarkDead(storage_.get());
    storage_ = device->NewStorage(0);
    sent_serial_ = 0;
  }
  const uint64_t serial = seed_serial_.load();
  if (sent_serial_ != serial) {
    ThrowIfError(device->Seed(lane, storage_.get(), seed_.load()));
    sent_serial_ = serial;
  }
  return storage_;
}

void RemoteGenerator::set_current_seed(uint64_t seed) {
  seed_.store(seed);
  seed_serial_.fetch_add(1);
}

uint64_t RemoteGenerator::current_seed() const { return seed_.load(); }

uint64_t RemoteGenerator::seed() {
  const uint64_t value = c10::detail::getNonDeterministicRandom();
  set_current_seed(value);
  return value;
}

void RemoteGenerator::set_offset(uint64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "generators of remote devices have no offset");
}

uint64_t RemoteGenerator::get_offset() const {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "generators of remote devices have no offset");
}

void RemoteGenerator::set_state(const c10::TensorImpl&) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "set_state is not supported for generators of remote devices; "
      "use manual_seed");
}

c10::intrusive_ptr<c10::TensorImpl> RemoteGenerator::get_state() const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "get_state is not supported for generators of remote devices");
}

RemoteGenerator* RemoteGenerator::clone_impl() const {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "generators of remote devices cannot be cloned");
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
