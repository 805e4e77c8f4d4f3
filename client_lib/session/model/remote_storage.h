// The client's record of one storage on a remote device. The program's tensors
// own it (through c10::DataPtr); calls not yet sent hold it too.
//
// Life: made by VirtualDevice::NewStorage(), without any message; born on the
// worker when the first call, upload or read names it; dead when the program's
// last handle is gone (MarkDead()); freed on the worker by the last message
// that names it, or by one of its own.
#ifndef CLIENT_LIB_SESSION_MODEL_REMOTE_STORAGE_H_
#define CLIENT_LIB_SESSION_MODEL_REMOTE_STORAGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "client_lib/session/model/address_space.h"

namespace djinn {

class Segment;
class VirtualDevice;

// A device's own record of a storage.
struct StorageExtension {
  virtual ~StorageExtension() = default;
};

// Reference-counted by hand: a touch per operand and call must cost one atomic
// increment and no allocation.
class RemoteStorage {
 public:
  // An `id` of 0 is given at birth.
  RemoteStorage(uint64_t id, std::shared_ptr<VirtualDevice> device,
                uint64_t size_bytes)
      : id_(id), device_(std::move(device)), size_bytes_(size_bytes) {}
  RemoteStorage(const RemoteStorage&) = delete;
  RemoteStorage& operator=(const RemoteStorage&) = delete;

  // Unique in the session, never reused. Given at the first use, so that a
  // worker sees its device's ids without holes; 0 before.
  uint64_t id() const { return id_; }
  const std::shared_ptr<VirtualDevice>& device() const { return device_; }
  // Whoever wraps the storage may give it an address; nothing here looks at it.
  AddressRange& address_range() { return address_range_; }
  // As the program has resized it so far.
  uint64_t size_bytes() const {
    return size_bytes_.load(std::memory_order_relaxed);
  }

  void AddReference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void DropReference() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // For the parts of the device that resize it.
  void set_size_bytes(uint64_t bytes) {
    size_bytes_.store(bytes, std::memory_order_relaxed);
  }
  // Null while the device has one worker. The device's lock guards it; a dead
  // storage has no other user.
  StorageExtension* extension() const { return extension_.get(); }
  void set_extension(std::unique_ptr<StorageExtension> extension) {
    extension_ = std::move(extension);
  }

  // Whether the program has dropped its last handle: no further call can name
  // the storage.
  bool dead() const { return dead_.load(std::memory_order_acquire); }

 private:
  // The parts of a device that know what is inside.
  friend class CallRecorder;
  friend class DeadList;
  friend class Recorder;
  friend class RunEncoder;
  friend class SegmentRecorder;
  friend class WorkEncoder;

  // An open segment that names the storage.
  struct OpenUse {
    Segment* segment;  // the device's, which outlives the storage
    uint64_t serial;   // the segment's then; stale when it has another now
    bool writes;
  };

  // Set at birth, under the device's lock, before anything names the storage.
  uint64_t id_;
  const std::shared_ptr<VirtualDevice> device_;
  AddressRange address_range_;
  std::atomic<uint64_t> size_bytes_;
  std::atomic<uint32_t> references_{0};
  std::atomic<bool> dead_{false};
  // Times that messages not yet encoded name the storage.
  std::atomic<uint32_t> unsent_uses_{0};

  // Guarded by the device's lock (the annotation cannot name it from here).
  uint64_t version_ = 0;
  bool born_ = false;
  absl::InlinedVector<OpenUse, 1> open_uses_;

  // Used by the device's sender thread only.
  bool known_to_worker_ = false;
  uint32_t slot_ = 0;
  uint64_t slot_run_ = 0;  // the run that slot_ belongs to

  // The next entry of the device's dead list.
  RemoteStorage* next_dead_ = nullptr;

  std::unique_ptr<StorageExtension> extension_;
};

// Owning pointer.
class StoragePtr {
 public:
  StoragePtr() = default;
  explicit StoragePtr(RemoteStorage* storage) : storage_(storage) {
    if (storage_ != nullptr) storage_->AddReference();
  }
  StoragePtr(const StoragePtr& other) : StoragePtr(other.storage_) {}
  StoragePtr(StoragePtr&& other) noexcept
      : storage_(std::exchange(other.storage_, nullptr)) {}
  StoragePtr& operator=(StoragePtr other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StoragePtr() {
    if (storage_ != nullptr) storage_->DropReference();
  }

  RemoteStorage* get() const { return storage_; }
  RemoteStorage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }
  // Gives up ownership without dropping the reference.
  RemoteStorage* release() { return std::exchange(storage_, nullptr); }

 private:
  RemoteStorage* storage_ = nullptr;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_REMOTE_STORAGE_H_
