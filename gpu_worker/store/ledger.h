// The one account of a device's memory: what is used, by which class and
// tenant, and whether more may be. Every allocation is reserved here first, and
// what was reserved returns by itself when the reservation is destroyed.
//
// Physical bytes are counted once, however many storages share them; beside
// them a SessionQuota counts what one session's storages would take without
// sharing, so that a session's limit does not depend on what others uploaded.
//
// Ledger and Reservation are thread-safe.
#ifndef GPU_WORKER_STORE_LEDGER_H_
#define GPU_WORKER_STORE_LEDGER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

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
  // Uploads on their way, and copies made for reads until they are sent.
  kTransfers = 2,
  // What the device keeps to be faster, such as packed weights; yields.
  kSpare = 3,
};
inline constexpr size_t kMemoryClasses = 4;

// How full a device is, as operators see it and housekeeping acts upon.
enum class MemoryPressure {
  kNone = 0,
  // Contents that nobody uses yield before anybody asks for their room.
  kHigh = 1,
  // So does what makes the device faster.
  kCritical = 2,
};
// From this share of the memory on.
inline constexpr double kHighPressure = 0.8;
inline constexpr double kCriticalPressure = 0.95;

class Ledger;

// Bytes set aside; returned by the destructor. Movable.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  uint64_t bytes() const { return bytes_; }
  void Release();
  // Grows (RESOURCE_EXHAUSTED, unchanged, when it does not fit) or shrinks.
  absl::Status Resize(uint64_t bytes);
  // The bytes now serve another purpose, such as a transfer that arrived.
  void MoveTo(MemoryClass memory_class);
  // A part of the bytes, at most all, as a reservation of its own.
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

    // Bytes used beyond the share.
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

  // Must outlive its reservations.
  explicit Ledger(uint64_t device_bytes) : limit_(device_bytes) {}

  // RESOURCE_EXHAUSTED (DEVICE_MEMORY) naming limit, used and asked.
  absl::StatusOr<Reservation> Reserve(MemoryClass memory_class,
                                      const std::string& tenant,
                                      uint64_t bytes);

  Usage usage() const;
  // Of those that have some.
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

// What a storage is, in the account of its session.
enum class StorageClass {
  // Has memory of its own.
  kOwn = 0,
  // Shares an immutable content.
  kContent = 1,
  // State of a random number generator.
  kGenerator = 2,
  // As kOwn, and kept from run to run: known to be a cache.
  kCache = 3,
};
inline constexpr size_t kStorageClasses = 4;

// Caps on memory: of all together, and of its parts: what shares contents,
// caches, and all else. Without a cap a part may have all; caches without one
// count with all else.
struct MemoryLimits {
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  uint64_t all = kUnlimited;
  uint64_t contents = kUnlimited;
  uint64_t storages = kUnlimited;
  uint64_t caches = kUnlimited;

  // Of v1::SessionLimits or v1::TenantLimits.
  template <typename Limits>
  static MemoryLimits Of(const Limits& limits) {
    return {limits.memory_bytes(),
            limits.has_content_bytes() ? limits.content_bytes() : kUnlimited,
            limits.has_storage_bytes() ? limits.storage_bytes() : kUnlimited,
            limits.has_cache_bytes() ? limits.cache_bytes() : kUnlimited};
  }
};

// Memory used under such caps. Thread-safe.
//
// That something is a cache may be found out when it is there already, beyond
// its cap: then no storage but those that share contents gets any more, as long
// as that is so.
class CappedMemory {
 public:
  // What a storage has, or wants.
  struct Amount {
    StorageClass storage_class = StorageClass::kOwn;
    uint64_t bytes = 0;
  };

  // `reason` and `owner` ("session") are for errors; both outlive it.
  CappedMemory(const char* reason, const char* owner, MemoryLimits limits)
      : reason_(reason), owner_(owner) {
    SetLimits(limits);
  }

  // What is taken already stays.
  void SetLimits(MemoryLimits limits);
  // One storage has `to` from now on instead of `from`; nothing changes when
  // that takes more of a part, or of all, than there is: RESOURCE_EXHAUSTED
  // naming limit, used and what was asked beyond.
  absl::Status Change(Amount from, Amount to);
  // Likewise, but asks for no cap: for what is given back, and for what cannot
  // be refused any more.
  void Count(Amount from, Amount to);

  uint64_t limit() const;
  uint64_t used() const;
  // What a storage that shares a content could have.
  uint64_t RoomForContents() const;

 private:
  // What is used of the parts: contents, all else, caches.
  enum class Part { kContents = 0, kStorages = 1, kCaches = 2 };
  static Part PartOf(StorageClass storage_class);
  uint64_t& UsedOf(StorageClass storage_class)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return used_[static_cast<size_t>(PartOf(storage_class))];
  }
  uint64_t All() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return used_[0] + used_[1] + used_[2];
  }
  // Whether a part that was `before` may be what it is now.
  absl::Status Check(const char* what, uint64_t limit, uint64_t before,
                     uint64_t now) const;
  absl::Status CheckParts(Part part,
                          const std::array<uint64_t, 3>& before) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool caches_apart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return limits_.caches != MemoryLimits::kUnlimited;
  }

  const char* const reason_;
  const char* const owner_;
  mutable Mutex mu_;
  MemoryLimits limits_ ABSL_GUARDED_BY(mu_);
  std::array<uint64_t, 3> used_ ABSL_GUARDED_BY(mu_) = {};
};

// What all sessions of one tenant may take together, counted as a SessionQuota
// counts: TENANT_MEMORY.
class TenantQuota : public CappedMemory {
 public:
  explicit TenantQuota(MemoryLimits limits = {})
      : CappedMemory("TENANT_MEMORY", "the tenant's sessions", limits) {}
};

class SessionQuota;

// A storage's part of its session's quota; returned by the destructor.
class QuotaShare {
 public:
  QuotaShare() = default;
  QuotaShare(QuotaShare&& other) noexcept { *this = std::move(other); }
  QuotaShare& operator=(QuotaShare&& other) noexcept;
  ~QuotaShare() { Release(); }
  // The storage is of class kOwn again.
  void Release();
  uint64_t bytes() const { return bytes_; }
  StorageClass storage_class() const { return class_; }
  // What memory of its own counts as: a cache stays one.
  StorageClass own_class() const {
    return class_ == StorageClass::kCache ? class_ : StorageClass::kOwn;
  }
  // What the bytes turned out to be, when it is too late to refuse them: caps
  // are not looked at, as SessionQuota::Resize() does.
  void MoveTo(StorageClass storage_class);
  // A part of the bytes, at most all, as a share of its own.
  QuotaShare Split(uint64_t bytes);

 private:
  friend class SessionQuota;
  friend class QuotaChange;
  SessionQuota* quota_ = nullptr;
  StorageClass class_ = StorageClass::kOwn;
  uint64_t bytes_ = 0;
};

// Changed by one thread at a time; the numbers may be read from any.
class SessionQuota {
 public:
  struct ClassUse {
    // Storages with a share.
    uint64_t count = 0;
    uint64_t bytes = 0;
  };

  // Must outlive its shares; `tenant`, if not null, outlives both.
  explicit SessionQuota(MemoryLimits limits, TenantQuota* tenant = nullptr)
      : memory_("SESSION_MEMORY", "the session", limits), tenant_(tenant) {}

  // For a storage with memory of its own, or a cache. RESOURCE_EXHAUSTED
  // (SESSION_MEMORY or TENANT_MEMORY) naming limit, used and asked.
  absl::StatusOr<QuotaShare> Reserve(
      uint64_t bytes, StorageClass storage_class = StorageClass::kOwn);
  // `share` is of `bytes` and of that class from now on; unchanged when that
  // does not fit, with errors likewise.
  absl::Status Resize(QuotaShare* share, uint64_t bytes,
                      StorageClass storage_class);
  // From any thread. What is taken already stays.
  void SetLimits(MemoryLimits limits) { memory_.SetLimits(limits); }

  uint64_t limit() const { return memory_.limit(); }
  uint64_t used() const { return memory_.used(); }
  // As CappedMemory, of the tenant, too.
  uint64_t RoomForContents() const;
  ClassUse used(StorageClass storage_class) const;

 private:
  friend class QuotaShare;
  friend class QuotaChange;
  // For a share that is changed in any case.
  void Count(CappedMemory::Amount from, CappedMemory::Amount to);
  struct ClassCounters {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> bytes{0};
  };
  ClassCounters& Of(StorageClass storage_class) {
    return by_class_[static_cast<size_t>(storage_class)];
  }

  CappedMemory memory_;
  TenantQuota* const tenant_;
  std::array<ClassCounters, kStorageClasses> by_class_;
};

// What a share becomes if all goes well: unless that is kept, it is again what
// it was, whatever the caps are by then.
class QuotaChange {
 public:
  // Both outlive it.
  QuotaChange(SessionQuota* quota, QuotaShare* share)
      : quota_(quota), share_(share) {}
  QuotaChange(const QuotaChange&) = delete;
  QuotaChange& operator=(const QuotaChange&) = delete;
  ~QuotaChange();

  // Once; as SessionQuota::Resize().
  absl::Status To(uint64_t bytes, StorageClass storage_class);
  void Keep() { changed_ = false; }

 private:
  SessionQuota* const quota_;
  QuotaShare* const share_;
  bool changed_ = false;
  // What it was.
  bool had_share_ = false;
  CappedMemory::Amount before_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_LEDGER_H_
