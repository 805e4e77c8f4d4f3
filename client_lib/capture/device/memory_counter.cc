#include "client_lib/capture/device/memory_counter.h"

#include "client_lib/capture/device/process_session.h"

namespace djinn::capture {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAll =
    static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

MemoryCounter& MemoryCounter::Of(int device_index) {
  static auto* const counters = new MemoryCounter[DeviceCount()];
  return counters[device_index];
}

void MemoryCounter::Quantity::Increase(uint64_t amount) {
  const auto added = static_cast<int64_t>(amount);
  allocated.fetch_add(added, kRelaxed);
  const int64_t now = current.fetch_add(added, kRelaxed) + added;
  int64_t highest = peak.load(kRelaxed);
  while (now > highest && !peak.compare_exchange_weak(highest, now, kRelaxed)) {
  }
}

void MemoryCounter::Quantity::Decrease(uint64_t amount) {
  const auto removed = static_cast<int64_t>(amount);
  freed.fetch_add(removed, kRelaxed);
  current.fetch_sub(removed, kRelaxed);
}

c10::CachingAllocator::Stat MemoryCounter::Quantity::Read() const {
  c10::CachingAllocator::Stat stat;
  stat.current = current.load(kRelaxed);
  stat.peak = peak.load(kRelaxed);
  stat.allocated = allocated.load(kRelaxed);
  stat.freed = freed.load(kRelaxed);
  return stat;
}

c10::CachingDeviceAllocator::DeviceStats MemoryCounter::Statistics() const {
  c10::CachingDeviceAllocator::DeviceStats statistics;
  statistics.allocation[kAll] = storages_.Read();
  statistics.active[kAll] = storages_.Read();
  statistics.allocated_bytes[kAll] = bytes_.Read();
  statistics.reserved_bytes[kAll] = bytes_.Read();
  statistics.active_bytes[kAll] = bytes_.Read();
  statistics.requested_bytes[kAll] = bytes_.Read();
  return statistics;
}

void MemoryCounter::ResetPeaks() {
  for (Quantity* quantity : {&storages_, &bytes_}) {
    quantity->peak.store(quantity->current.load(kRelaxed), kRelaxed);
  }
}

void MemoryCounter::ResetTotals() {
  for (Quantity* quantity : {&storages_, &bytes_}) {
    quantity->allocated.store(0, kRelaxed);
    quantity->freed.store(0, kRelaxed);
  }
}

}  // namespace djinn::capture
