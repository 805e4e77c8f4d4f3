// Represents one storage of a remote device in the client. The program's
// tensors own it (through c10::DataPtr), and unsent calls hold it too.
//
// Life: VirtualDevice::NewStorage() makes the object without any message. The
// first call, upload or read that names the storage creates it on the worker.
// The program releases the storage with its last handle (MarkDead()). The last
// message that names the storage, or a separate message, destroys it on the
// worker.
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

// A device's private data about a storage.
struct StorageExtension {
  virtual ~StorageExtension() = default;
};

// Counts references intrusively: a touch per operand and call must cost one
// atomic increment and no allocation.
class RemoteStorage {
 public:
  // If `id` is 0, the storage gets its id when it is created.
  RemoteStorage(uint64_t id, std::shared_ptr<VirtualDevice> device,
                uint64_t size_bytes)
      : id_(id), device_(std::move(device)), size_bytes_(size_bytes) {}
  RemoteStorage(const RemoteStorage&) = delete;
  RemoteStorage& operator=(const RemoteStorage&) = delete;

  // Returns the id, which is unique in the session and never reused, or 0
  // before the first use. The id is assigned at the first use, so that a worker
  // sees consecutive ids.
  uint64_t id() const { return id_; }
  const std::shared_ptr<VirtualDevice>& device() const { return device_; }
  // The owner of the tensor may assign an address; the session never reads it.
  AddressRange& address_range() { return address_range_; }
  // Returns the size after the resizes that the program made so far.
  uint64_t size_bytes() const {
    return size_bytes_.load(std::memory_order_relaxed);
  }

  void AddReference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void DropReference() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Called only by the device classes that resize the storage.
  void set_size_bytes(uint64_t bytes) {
    size_bytes_.store(bytes, std::memory_order_relaxed);
  }
  // Returns null while the device has one worker. The device's lock guards the
  // extension while the storage is live; a released storage has a single user.
  StorageExtension* extension() const { return extension_.get(); }
  void set_extension(std::unique_ptr<StorageExtension> extension) {
    extension_ = std::move(extension);
  }

  // Returns whether the program dropped its last handle, after which no new
  // call can name the storage.
  bool dead() const { return dead_.load(std::memory_order_acquire); }

 private:
  // The device classes that use the private fields.
  friend class CallRecorder;
  friend class DeadList;
  friend class Recorder;
  friend class RunEncoder;
  friend class SegmentQueue;
  friend class SegmentRecorder;
  friend class WorkEncoder;

  // An open segment that names the storage.
  struct OpenUse {
    Segment* segment;  // the device's, which outlives the storage
    uint64_t serial;   // the segment's at that time; stale once it has another
    bool writes;
  };

  // The recorder sets the id, under its lock, before a message names the
  // storage.
  uint64_t id_;
  const std::shared_ptr<VirtualDevice> device_;
  AddressRange address_range_;
  std::atomic<uint64_t> size_bytes_;
  std::atomic<uint32_t> references_{0};
  std::atomic<bool> dead_{false};
  // Uses by messages that are not encoded yet.
  std::atomic<uint32_t> unsent_uses_{0};

  // Guarded by the recorder's lock (the annotation cannot name it from here).
  uint64_t version_ = 0;
  bool created_ = false;
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
