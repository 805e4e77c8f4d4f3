// PyTorch's random generator on a virtual device. Its state lives on the worker
// as a hidden storage of the session; here there is only the seed. Seeding is
// remembered and sent with the next draw, because at::manual_seed() visits
// every device, with the generator's lock held, before any session may exist.
#ifndef CLIENT_LIB_CAPTURE_REMOTE_GENERATOR_H_
#define CLIENT_LIB_CAPTURE_REMOTE_GENERATOR_H_

#include <ATen/core/Generator.h>

#include <atomic>
#include <memory>

#include "client_lib/session/remote_storage.h"
#include "client_lib/session/virtual_device.h"
#include "common/mutex.h"

namespace djinn::capture {

class RemoteGenerator : public c10::GeneratorImpl {
 public:
  explicit RemoteGenerator(c10::DeviceIndex index);

  // The storage with the generator's state on `device`, seeded if it has to be.
  // Throws djinn::Error.
  StoragePtr StorageOn(const std::shared_ptr<VirtualDevice>& device,
                       uint32_t lane);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  // A remote generator has no offset, and its state cannot be moved yet: these
  // throw.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  RemoteGenerator* clone_impl() const override;

  std::atomic<uint64_t> seed_;
  // Grows with every seeding.
  std::atomic<uint64_t> seed_serial_{1};

  // Held while the seed is sent, so that no other thread draws before it is;
  // nothing that runs below takes it.
  Mutex mu_;
  StoragePtr storage_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_serial_ ABSL_GUARDED_BY(mu_) = 0;
};

// The default generator of a device index; lives for ever.
const at::Generator& DefaultRemoteGenerator(c10::DeviceIndex index);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REMOTE_GENERATOR_H_
