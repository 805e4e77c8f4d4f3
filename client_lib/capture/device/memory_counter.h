// Counts the bytes of remote memory that the program holds on a virtual device,
// in the form of PyTorch's memory statistics. It adds up the sizes of live
// storages, whether or not the worker has created them yet. Nothing is cached,
// so "reserved" equals "allocated".
//
// Thread-safe without locks: creating or releasing a storage costs a few atomic
// additions. Numbers that are read while other threads allocate may be
// inconsistent with each other.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_MEMORY_COUNTER_H_
#define CLIENT_LIB_CAPTURE_DEVICE_MEMORY_COUNTER_H_

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstdint>

namespace djinn::capture {

class MemoryCounter {
 public:
  // Returns the counter of a device index, which lives for the rest of the
  // process.
  static MemoryCounter& Of(int device_index);

  void Created(uint64_t bytes) {
    storages_.Increase(1);
    bytes_.Increase(bytes);
  }
  void Released(uint64_t bytes) {
    storages_.Decrease(1);
    bytes_.Decrease(bytes);
  }
  void Resized(uint64_t from, uint64_t to) {
    if (to < from) bytes_.Decrease(from - to);
    if (to > from) bytes_.Increase(to - from);
  }

  uint64_t LiveBytes() const {
    return static_cast<uint64_t>(
        bytes_.current.load(std::memory_order_relaxed));
  }
  c10::CachingDeviceAllocator::DeviceStats Statistics() const;
  void ResetPeaks();
  void ResetTotals();

 private:
  struct Quantity {
    void Increase(uint64_t amount);
    void Decrease(uint64_t amount);
    c10::CachingAllocator::Stat Read() const;

    std::atomic<int64_t> current{0};
    std::atomic<int64_t> peak{0};
    std::atomic<int64_t> allocated{0};
    std::atomic<int64_t> freed{0};
  };

  Quantity storages_;
  Quantity bytes_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_MEMORY_COUNTER_H_
