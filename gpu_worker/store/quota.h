// Caps the memory of sessions and tenants.
//
// A quota counts what the storages of a session would take without sharing, so
// that a session's limit does not depend on other sessions' uploads. ledger.h
// counts the physical bytes of the device.
//
// A TenantQuota is thread-safe. One thread at a time uses a SessionQuota, its
// shares and their changes, but where a comment says otherwise.
#ifndef GPU_WORKER_STORE_QUOTA_H_
#define GPU_WORKER_STORE_QUOTA_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace djinn::worker {

// The class under which a session's account counts a storage.
enum class StorageClass {
  // Has memory of its own.
  kOwn = 0,
  // Shares an immutable content.
  kContent = 1,
  // State of a random number generator.
  kGenerator = 2,
  // Like kOwn, but known to be a cache: the program keeps it from run to run.
  kCache = 3,
};
inline constexpr size_t kStorageClasses = 4;

// Caps on memory: on all of it, and on its three parts: storages that share
// contents, caches, and the rest. A part without a cap may take all. Caches
// without a cap count with the rest.
struct MemoryLimits {
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  uint64_t all = kUnlimited;
  uint64_t contents = kUnlimited;
  uint64_t storages = kUnlimited;
  uint64_t caches = kUnlimited;

  // Reads the caps of v1::SessionLimits or v1::TenantLimits.
  template <typename Limits>
  static MemoryLimits Of(const Limits& limits) {
    return {limits.memory_bytes(),
            limits.has_content_bytes() ? limits.content_bytes() : kUnlimited,
            limits.has_storage_bytes() ? limits.storage_bytes() : kUnlimited,
            limits.has_cache_bytes() ? limits.cache_bytes() : kUnlimited};
  }
};

// Counts memory used under such caps. Thread-safe.
//
// The session may learn that a storage is a cache only once the storage is
// there, beyond the caches' cap. From then until the caches fit again, only
// storages that share contents get more memory.
class CappedMemory {
 public:
  // The memory that a storage has, or asks for.
  struct Amount {
    StorageClass storage_class = StorageClass::kOwn;
    uint64_t bytes = 0;
  };

  // `reason` and `owner` ("session") appear in errors; both must outlive this.
  CappedMemory(const char* reason, const char* owner, MemoryLimits limits)
      : reason_(reason), owner_(owner) {
    SetLimits(limits);
  }

  // Changes the caps. Memory taken already stays.
  void SetLimits(MemoryLimits limits);
  // Changes what one storage has from `from` to `to`. Returns
  // RESOURCE_EXHAUSTED, and changes nothing, when that exceeds a cap; the error
  // names the limit, the bytes used and the bytes requested beyond.
  absl::Status Change(Amount from, Amount to);
  // Changes what one storage has from `from` to `to` without a check of the
  // caps: for memory that is returned, and for memory that can no longer be
  // refused.
  void Count(Amount from, Amount to);

  uint64_t limit() const;
  uint64_t used() const;
  // Returns how many bytes others would have to give back before Change() could
  // succeed; 0 if it could succeed now.
  uint64_t Missing(Amount from, Amount to) const;
  // Returns how much a new storage that shares a content could take.
  uint64_t RoomForContents() const;
  // Returns how much a new storage with memory of its own could take, as of the
  // last change. Takes no lock.
  uint64_t room() const { return room_.load(std::memory_order_relaxed); }

 private:
  // Indexes used_: contents, the rest, caches.
  enum class Part { kContents = 0, kStorages = 1, kCaches = 2 };
  static Part PartOf(StorageClass storage_class);
  uint64_t& UsedOf(StorageClass storage_class)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return used_[static_cast<size_t>(PartOf(storage_class))];
  }
  uint64_t All() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return used_[0] + used_[1] + used_[2];
  }
  // Checks whether usage may grow from `before` to `now`.
  absl::Status Check(const char* what, uint64_t limit, uint64_t before,
                     uint64_t now) const;
  absl::Status CheckParts(Part part,
                          const std::array<uint64_t, 3>& before) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PublishRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool caches_apart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return limits_.caches != MemoryLimits::kUnlimited;
  }

  const char* const reason_;
  const char* const owner_;
  mutable Mutex mu_;
  MemoryLimits limits_ ABSL_GUARDED_BY(mu_);
  std::array<uint64_t, 3> used_ ABSL_GUARDED_BY(mu_) = {};
  std::atomic<uint64_t> room_{0};
};

// Caps what all sessions of one tenant take together, counted as a SessionQuota
// counts. Its errors have the reason TENANT_MEMORY.
class TenantQuota : public CappedMemory {
 public:
  // Ends one of the tenant's sessions whose client is away. Returns false, and
  // ends none, if there is none, or if all of them together hold less than
  // `missing` bytes.
  using EndLost = std::function<bool(uint64_t missing)>;

  explicit TenantQuota(MemoryLimits limits = {}, EndLost end_lost = nullptr)
      : CappedMemory("TENANT_MEMORY", "the tenant's sessions", limits),
        end_lost_(std::move(end_lost)) {}

  // Does as Change(), and ends sessions whose client is away if the caps demand
  // that. Call it without locks.
  absl::Status ChangeOrMakeRoom(Amount from, Amount to);

 private:
  const EndLost end_lost_;
};

class SessionQuota;

// A storage's share of its session's quota. The destructor returns it.
class QuotaShare {
 public:
  QuotaShare() = default;
  QuotaShare(QuotaShare&& other) noexcept { *this = std::move(other); }
  QuotaShare& operator=(QuotaShare&& other) noexcept;
  ~QuotaShare() { Release(); }
  // Returns the share; the storage is of class kOwn again.
  void Release();
  uint64_t bytes() const { return bytes_; }
  StorageClass storage_class() const { return class_; }
  // Returns the class of the storage when it has memory of its own: a cache
  // stays a cache.
  StorageClass own_class() const {
    return class_ == StorageClass::kCache ? class_ : StorageClass::kOwn;
  }
  // Counts the bytes in another class when it is too late to refuse them.
  // Unlike SessionQuota::Resize(), checks no cap.
  void MoveTo(StorageClass storage_class);
  // Splits off some of the bytes, at most all, as a share of its own.
  QuotaShare Split(uint64_t bytes);

 private:
  friend class SessionQuota;
  friend class QuotaChange;
  SessionQuota* quota_ = nullptr;
  StorageClass class_ = StorageClass::kOwn;
  uint64_t bytes_ = 0;
};

// Counts the memory of one session's storages. One thread at a time changes it;
// any thread may read the numbers.
class SessionQuota {
 public:
  struct ClassUse {
    // Storages that have a share.
    uint64_t count = 0;
    uint64_t bytes = 0;
  };

  // The quota must outlive its shares; `tenant`, which may be null, must
  // outlive both.
  explicit SessionQuota(MemoryLimits limits, TenantQuota* tenant = nullptr)
      : memory_("SESSION_MEMORY", "the session", limits), tenant_(tenant) {}

  // Releases shares of `missing` bytes or more that can be spared, or returns
  // false, without effect, if there are not so many.
  using GiveUp = std::function<bool(uint64_t missing)>;
  // Sets the function that is called when memory is refused: once, before the
  // first share. `this` must not outlive what it uses.
  void SetGiveUp(GiveUp give_up) { give_up_ = std::move(give_up); }
  // Has it called because the device has no memory.
  bool MakeRoom(uint64_t missing) {
    return give_up_ != nullptr && give_up_(missing);
  }

  // Reserves a share for a storage with memory of its own, or a cache. Returns
  // RESOURCE_EXHAUSTED (SESSION_MEMORY or TENANT_MEMORY), which names the bytes
  // allowed, used and requested, when it exceeds a cap.
  absl::StatusOr<QuotaShare> Reserve(
      uint64_t bytes, StorageClass storage_class = StorageClass::kOwn);
  // Changes the share's size and class. Changes nothing when that does not fit,
  // and returns the same errors as Reserve().
  absl::Status Resize(QuotaShare* share, uint64_t bytes,
                      StorageClass storage_class);
  // Changes the caps; memory taken already stays. Any thread may call it.
  void SetLimits(MemoryLimits limits) { memory_.SetLimits(limits); }

  uint64_t limit() const { return memory_.limit(); }
  uint64_t used() const { return memory_.used(); }
  // Returns the smaller of what the session's and the tenant's caps leave for a
  // storage that shares a content.
  uint64_t RoomForContents() const;
  // Returns the same for memory of its own. Takes no lock.
  uint64_t room() const {
    return tenant_ == nullptr ? memory_.room()
                              : std::min(memory_.room(), tenant_->room());
  }
  ClassUse used(StorageClass storage_class) const;

 private:
  friend class QuotaShare;
  friend class QuotaChange;
  // Changes what a share has, unless a cap refuses it. May end sessions of the
  // tenant whose client is away, if `ends_lost`.
  absl::Status Change(CappedMemory::Amount from, CappedMemory::Amount to,
                      bool ends_lost);
  // Returns how many bytes are missing for the change.
  uint64_t Missing(CappedMemory::Amount from, CappedMemory::Amount to) const;
  // Counts a change of a share without a check of the caps.
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
  GiveUp give_up_;
  std::array<ClassCounters, kStorageClasses> by_class_;
};

// Changes a share on trial: unless Keep() is called, the destructor restores
// the share, whatever the caps are by then.
class QuotaChange {
 public:
  // Both must outlive this.
  QuotaChange(SessionQuota* quota, QuotaShare* share)
      : quota_(quota), share_(share) {}
  QuotaChange(const QuotaChange&) = delete;
  QuotaChange& operator=(const QuotaChange&) = delete;
  ~QuotaChange();

  // Changes the share as SessionQuota::Resize() does. Call it once.
  absl::Status To(uint64_t bytes, StorageClass storage_class);
  void Keep() { changed_ = false; }

 private:
  SessionQuota* const quota_;
  QuotaShare* const share_;
  bool changed_ = false;
  // The share before the change.
  bool had_share_ = false;
  CappedMemory::Amount before_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_QUOTA_H_
