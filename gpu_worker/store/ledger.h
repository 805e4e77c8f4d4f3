// Accounts for a device's memory: how much is used, by which class and tenant,
// and how much more may be used. Every allocation is reserved here first, and
// the bytes return when the reservation is destroyed.
//
// The ledger counts physical bytes once, however many storages share them.
// quota.h counts what sessions and tenants may take.
//
// Ledger and Reservation are thread-safe.
#ifndef GPU_WORKER_STORE_LEDGER_H_
#define GPU_WORKER_STORE_LEDGER_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace djinn::worker {

enum class MemoryClass {
  // Storages of sessions, not shared.
  kStorages = 0,
  // Immutable contents, kept per tenant and shared by storages.
  kContents = 1,
  // Uploads under way, and copies made for reads until they are sent.
  kTransfers = 2,
  // Memory that the device keeps to be faster, such as prepacked weights, and
  // returns on request.
  kSpare = 3,
};
inline constexpr size_t kMemoryClasses = 4;

// How full a device is. Operators see it, and housekeeping acts upon it
// (memory_relief.h).
enum class MemoryPressure {
  kNone = 0,
  // Housekeeping evicts idle contents, down to the high share, before their
  // memory is needed.
  kHigh = 1,
  // Housekeeping also releases spare memory, down to the critical share.
  kCritical = 2,
};
// The shares of the memory above which the pressure is high and critical.
inline constexpr double kHighPressure = 0.8;
inline constexpr double kCriticalPressure = 0.95;

class Ledger;

// Bytes set aside. The destructor returns them. Movable.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  uint64_t bytes() const { return bytes_; }
  void Release();
  // Grows or shrinks the reservation. Returns RESOURCE_EXHAUSTED, and changes
  // nothing, when it cannot grow.
  absl::Status Resize(uint64_t bytes);
  // Counts the bytes in another class, such as when a transfer has arrived.
  void MoveTo(MemoryClass memory_class);
  // Splits off some of the bytes, at most all, as a reservation of its own.
  Reservation Split(uint64_t bytes);

 private:
  friend class Ledger;
  Ledger* ledger_ = nullptr;
  MemoryClass class_ = MemoryClass::kStorages;
  std::string tenant_;
  uint64_t bytes_ = 0;
};

class Ledger {
 public:
  struct Usage {
    uint64_t limit = 0;
    uint64_t used = 0;
    std::array<uint64_t, kMemoryClasses> by_class{};

    // Returns the bytes used beyond the share.
    uint64_t Above(double share) const {
      const auto most =
          static_cast<uint64_t>(share * static_cast<double>(limit));
      return used > most ? used - most : 0;
    }
    MemoryPressure pressure() const {
      return Above(kCriticalPressure) > 0 ? MemoryPressure::kCritical
             : Above(kHighPressure) > 0   ? MemoryPressure::kHigh
                                          : MemoryPressure::kNone;
    }
  };

  // The ledger must outlive its reservations.
  explicit Ledger(uint64_t device_bytes) : limit_(device_bytes) {}

  // Reserves bytes. Returns RESOURCE_EXHAUSTED (DEVICE_MEMORY), which names the
  // device's limit, the bytes that the tenant uses and those requested, when
  // they do not fit.
  absl::StatusOr<Reservation> Reserve(MemoryClass memory_class,
                                      const std::string& tenant,
                                      uint64_t bytes);

  Usage usage() const;
  // Returns the bytes of each tenant that has some.
  absl::flat_hash_map<std::string, uint64_t> by_tenant() const;

 private:
  friend class Reservation;
  absl::Status Take(MemoryClass memory_class, const std::string& tenant,
                    uint64_t bytes);
  void Give(MemoryClass memory_class, const std::string& tenant,
            uint64_t bytes);

  const uint64_t limit_;
  mutable Mutex mu_;
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<uint64_t, kMemoryClasses> by_class_ ABSL_GUARDED_BY(mu_){};
  absl::flat_hash_map<std::string, uint64_t> by_tenant_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_LEDGER_H_
