// How much remote memory the program holds on a virtual device, as PyTorch's
// memory statistics want it: the sizes of its live storages, whether or not the
// worker has made them yet. Nothing is cached, so "reserved" equals
// "allocated".
//
// Thread-safe without locks; a storage's birth and death cost a few atomic
// additions. Numbers read while other threads allocate may not fit together.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_MEMORY_COUNTER_H_
#define CLIENT_LIB_CAPTURE_DEVICE_MEMORY_COUNTER_H_

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstdint>

namespace djinn::capture {

class MemoryCounter {
 public:
  // That of a device index; lives for ever.
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
