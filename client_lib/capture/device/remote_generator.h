// PyTorch's random generator on a virtual device. Its state lives on the
// worker, as a hidden storage of the session. The client remembers only the
// seed or state that was set last, and sends it with the next draw. It cannot
// send them at once: at::manual_seed() sets the seed on every device while it
// holds the generator's lock, possibly before a session exists.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_REMOTE_GENERATOR_H_
#define CLIENT_LIB_CAPTURE_DEVICE_REMOTE_GENERATOR_H_

#include <ATen/core/Generator.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/mutex.h"

namespace djinn::capture {

class RemoteGenerator : public c10::GeneratorImpl {
 public:
  explicit RemoteGenerator(c10::DeviceIndex index);
  ~RemoteGenerator() override;

  // Returns the storage with the generator's state on `device`, after sending
  // the seed or state if necessary. Throws djinn::Error.
  StoragePtr StorageOn(const std::shared_ptr<VirtualDevice>& device,
                       uint32_t lane) const;

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  // A state is a byte tensor on the CPU. It equals, bit for bit, the state of
  // PyTorch's generator for the worker's kind of device, so that programs can
  // exchange states with that generator. set_state() and get_state() wait until
  // the worker is reached, and get_state() also waits for all earlier draws. A
  // new state applies from the next draw on.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // The program's last setting. The state is empty if it follows from the seed.
  struct Setting {
    uint64_t seed = 0;
    std::string state;
    friend bool operator==(const Setting&, const Setting&) = default;
  };
  // Returns the setting from which the next draw starts, or nothing if only the
  // worker knows the state, because the generator has drawn since. Sends
  // nothing.
  std::optional<Setting> PendingSetting() const;
  // Lets the next draw start from a setting.
  void Set(Setting setting);
  // Notes that operators restored a state that followed from this seed.
  void NoteSeed(uint64_t seed);
  // Waits until the generator's worker is reached, and returns the size of a
  // state there.
  uint64_t StateBytes() const;

  // set_offset() and get_offset() concern the offset of a GPU generator's
  // state. Other states have no offset: for these the functions accept and
  // return only 0, because PyTorch copies generators with them.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;

 private:
  RemoteGenerator* clone_impl() const override;
  void SetPhiloxState(const c10::TensorImpl& state) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns whether storage_ is on `device` and has received the last setting.
  bool IsSetOn(const VirtualDevice& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return storage_ && sent_ == setting_ && storage_->device().get() == &device;
  }

  // Held while the seed or state is sent, which may take long, so that no other
  // thread draws before the worker has it. Code that runs under this lock does
  // not take it a second time. Setting a seed does not take this lock, because
  // the new seed applies only to the next draw.
  mutable Mutex sending_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  // This lock is not held during calls to the session.
  mutable Mutex mu_;
  // Written with mu_ held, except in forked children.
  std::atomic<uint64_t> seed_;
  // Empty if the state is that of seed_.
  std::string state_ ABSL_GUARDED_BY(mu_);
  // Counts the settings of seed_ and state_.
  uint64_t setting_ ABSL_GUARDED_BY(mu_) = 1;
  // The value of setting_ that storage_ received last, or 0.
  mutable uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  // Replaced with both locks held.
  mutable StoragePtr storage_ ABSL_GUARDED_BY(mu_);
};

// Returns how often this thread has seeded a remote generator or set its state.
// A registered callable must do neither, because a replay would not repeat it.
uint64_t RemoteGeneratorSettings();

// Returns the default generator of a device index, which lives for the rest of
// the process.
const at::Generator& DefaultRemoteGenerator(c10::DeviceIndex index);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_REMOTE_GENERATOR_H_
