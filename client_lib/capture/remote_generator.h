// PyTorch's random generator on a virtual device. Its state lives on the worker
// as a hidden storage of the session; here there is only what it was last set
// to, a seed or a state. That is remembered and sent with the next draw,
// because at::manual_seed() visits every device, with the generator's lock
// held, before any session may exist.
#ifndef CLIENT_LIB_CAPTURE_REMOTE_GENERATOR_H_
#define CLIENT_LIB_CAPTURE_REMOTE_GENERATOR_H_

#include <ATen/core/Generator.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/mutex.h"

namespace djinn::capture {

class RemoteGenerator : public c10::GeneratorImpl {
 public:
  explicit RemoteGenerator(c10::DeviceIndex index);
  ~RemoteGenerator() override;

  // The storage with the generator's state on `device`, set if it has to be.
  // Throws djinn::Error.
  StoragePtr StorageOn(const std::shared_ptr<VirtualDevice>& device,
                       uint32_t lane) const;

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  // The state is that of PyTorch's generator for the worker's kind of device,
  // bit for bit, so that one can be moved into the other: a tensor of bytes on
  // the CPU. Both wait for the worker to be reached; reading waits for the
  // draws recorded before, too. A new one counts from the next draw on.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // The offset of a state on a GPU; elsewhere states have none, and these know
  // 0 only, as generators are copied with it.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;

 private:
  RemoteGenerator* clone_impl() const override;
  // Of a state on its worker; waits until that was reached.
  uint64_t StateBytes() const;
  void SetPhiloxState(const c10::TensorImpl& state) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether storage_ is on `device` and has what was set last.
  bool IsSetOn(const VirtualDevice& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return storage_ && sent_ == setting_ && storage_->device().get() == &device;
  }

  // Held while the seed or state is sent, which may take long, so that no other
  // thread draws before it is; nothing that runs below takes it. Never taken to
  // set one: that is for the next draw then, and this one goes first.
  mutable Mutex sending_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  // Nothing is called out to with it.
  mutable Mutex mu_;
  // Written with mu_, but for forked children.
  std::atomic<uint64_t> seed_;
  // Empty: the state is that of the seed.
  std::string state_ ABSL_GUARDED_BY(mu_);
  // The number of the setting that the above are.
  uint64_t setting_ ABSL_GUARDED_BY(mu_) = 1;
  // That of the one that storage_ was given last; 0: of none.
  mutable uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  // Replaced with both locks.
  mutable StoragePtr storage_ ABSL_GUARDED_BY(mu_);
};

// How often this thread has seeded a remote generator or set its state: what a
// registered callable does to one must be seen, as it would not happen again.
uint64_t SettingsOfRemoteGenerators();

// The default generator of a device index; lives for ever.
const at::Generator& DefaultRemoteGenerator(c10::DeviceIndex index);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REMOTE_GENERATOR_H_
