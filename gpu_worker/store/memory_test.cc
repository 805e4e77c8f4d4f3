#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/error.h"
#include "common/base/retry_after.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/storage_table.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr StorageClass kOwn = StorageClass::kOwn;
constexpr StorageClass kContent = StorageClass::kContent;
constexpr StorageClass kCache = StorageClass::kCache;

TEST(LedgerTest, APartOfAReservationIsOneOfItsOwn) {
  Ledger ledger(100);
  Reservation whole = *ledger.Reserve(MemoryClass::kStorages, "t", 60);
  {
    const Reservation part = whole.Split(20);
    EXPECT_EQ(part.bytes(), 20u);
    EXPECT_EQ(whole.bytes(), 40u);
    EXPECT_EQ(ledger.usage().used, 60u);
  }
  EXPECT_EQ(ledger.usage().used, 40u);
  EXPECT_EQ(ledger.by_tenant().at("t"), 40u);

  SessionQuota quota({.all = 100});
  QuotaShare share = *quota.Reserve(60);
  QuotaShare part = share.Split(25);
  EXPECT_EQ(quota.used(StorageClass::kOwn).count, 2u);
  EXPECT_EQ(quota.used(), 60u);
  share.Release();
  EXPECT_EQ(quota.used(), 25u);
  part.Release();
  EXPECT_EQ(quota.used(), 0u);
  EXPECT_EQ(quota.used(StorageClass::kOwn).count, 0u);
}

TEST(LedgerTest, ReservationsReturnByThemselves) {
  Ledger ledger(100);
  {
    Reservation a = *ledger.Reserve(MemoryClass::kTransfers, "t", 60);
    EXPECT_EQ(ledger.usage().used, 60u);
    EXPECT_EQ(ledger.by_tenant().at("t"), 60u);
    a.MoveTo(MemoryClass::kContents);
    EXPECT_EQ(ledger.usage().by_class[1], 60u);
    EXPECT_EQ(ledger.usage().by_class[2], 0u);
    Reservation b = std::move(a);
    EXPECT_EQ(ledger.usage().used, 60u);
  }
  EXPECT_EQ(ledger.usage().used, 0u);
  EXPECT_TRUE(ledger.by_tenant().empty());
}

TEST(LedgerTest, RefusalsNameTheNumbersAndChangeNothing) {
  Ledger ledger(100);
  Reservation a = *ledger.Reserve(MemoryClass::kStorages, "t", 60);
  const absl::Status status =
      ledger.Reserve(MemoryClass::kStorages, "t", 41).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "DEVICE_MEMORY");
  EXPECT_EQ(ErrorMetadataValue(status, "limit"), "100");
  EXPECT_EQ(ErrorMetadataValue(status, "used"), "60");
  EXPECT_EQ(ErrorMetadataValue(status, "asked"), "41");
  // Another tenant learns only what it uses itself.
  Reservation b = *ledger.Reserve(MemoryClass::kStorages, "u", 7);
  const absl::Status other =
      ledger.Reserve(MemoryClass::kStorages, "u", 41).status();
  EXPECT_EQ(ErrorMetadataValue(other, "used"), "7");
  EXPECT_EQ(other.message(),
            "device memory (used: by this tenant): limit 100 bytes, used 7, "
            "asked 41");
  b.Release();
  EXPECT_EQ(
      ErrorMetadataValue(
          ledger.Reserve(MemoryClass::kStorages, "v", 41).status(), "used"),
      "0");
  EXPECT_TRUE(RetryAfter(status).has_value());
  const absl::Status never = ledger
                                 .Reserve(MemoryClass::kStorages, "t",
                                          std::numeric_limits<uint64_t>::max())
                                 .status();
  EXPECT_EQ(ErrorReason(never), "DEVICE_MEMORY");
  EXPECT_FALSE(RetryAfter(never).has_value());
  EXPECT_FALSE(a.Resize(101).ok());
  EXPECT_EQ(a.bytes(), 60u);
  EXPECT_TRUE(a.Resize(100).ok());
  EXPECT_TRUE(a.Resize(10).ok());
  EXPECT_EQ(ledger.usage().used, 10u);
}

TEST(SessionQuotaTest, LimitsTheSessionAlone) {
  SessionQuota quota({.all = 100});
  QuotaShare a = *quota.Reserve(60);
  EXPECT_EQ(ErrorReason(quota.Reserve(41).status()), "SESSION_MEMORY");
  EXPECT_TRUE(quota.Resize(&a, 100, kOwn).ok());
  EXPECT_FALSE(
      quota.Resize(&a, std::numeric_limits<uint64_t>::max(), kOwn).ok());
  EXPECT_TRUE(quota.Resize(&a, 5, kOwn).ok());
  EXPECT_EQ(quota.used(), 5u);
  a.Release();
  EXPECT_EQ(quota.used(), 0u);
}

TEST(SessionQuotaTest, CountsStoragesByClass) {
  const auto expect = [](const SessionQuota& quota, StorageClass storage_class,
                         uint64_t count, uint64_t bytes) {
    EXPECT_EQ(quota.used(storage_class).count, count);
    EXPECT_EQ(quota.used(storage_class).bytes, bytes);
  };
  SessionQuota quota({.all = 100});
  QuotaShare a = *quota.Reserve(60);
  QuotaShare b = *quota.Reserve(0);
  expect(quota, StorageClass::kOwn, 2, 60);
  a.MoveTo(StorageClass::kContent);
  EXPECT_TRUE(quota.Resize(&a, 70, StorageClass::kContent).ok());
  QuotaShare moved = std::move(a);
  expect(quota, StorageClass::kOwn, 1, 0);
  expect(quota, StorageClass::kContent, 1, 70);
  moved.Release();
  // The same storage gets memory of its own.
  EXPECT_TRUE(quota.Resize(&moved, 8, kOwn).ok());
  expect(quota, StorageClass::kContent, 0, 0);
  expect(quota, StorageClass::kOwn, 2, 8);
  b.Release();
  moved.Release();
  expect(quota, StorageClass::kOwn, 0, 0);
}

TEST(SessionQuotaTest, ContentsAndOtherStoragesHaveCapsOfTheirOwn) {
  SessionQuota quota({.all = 100, .contents = 70, .storages = 50});
  QuotaShare weight, cache, more;
  EXPECT_TRUE(quota.Resize(&weight, 60, kContent).ok());
  const absl::Status contents = quota.Resize(&more, 11, kContent);
  EXPECT_EQ(ErrorReason(contents), "SESSION_MEMORY");
  EXPECT_EQ(
      contents.message(),
      "memory of the session for contents: limit 70 bytes, used 60, asked 11");
  EXPECT_EQ(more.bytes(), 0u);
  // The contents leave less than the storages' part.
  EXPECT_EQ(quota.Resize(&cache, 41, kOwn).message(),
            "memory of the session: limit 100 bytes, used 60, asked 41");
  EXPECT_TRUE(quota.Resize(&cache, 40, kOwn).ok());
  // A content that is to be written needs memory of its own. Nothing changes
  // when the storages' part is full.
  EXPECT_EQ(
      quota.Resize(&weight, 60, kOwn).message(),
      "memory of the session but for contents: limit 50 bytes, used 40, asked "
      "60");
  EXPECT_EQ(weight.storage_class(), kContent);
  EXPECT_EQ(quota.used(kContent).bytes, 60u);
  EXPECT_EQ(quota.used(), 100u);
  // Generators' states belong to that part, too.
  cache.MoveTo(StorageClass::kGenerator);
  EXPECT_TRUE(quota.Resize(&weight, 10, kOwn).ok());
  EXPECT_FALSE(quota.Resize(&more, 1, kOwn).ok());
  EXPECT_EQ(quota.used(kContent).count, 0u);
  EXPECT_EQ(quota.used(), 50u);
  // Memory that cannot be refused counts all the same.
  EXPECT_TRUE(quota.Resize(&more, 20, kContent).ok());
  more.MoveTo(kOwn);
  EXPECT_EQ(quota.used(kOwn).bytes, 30u);
  weight.Release();
  EXPECT_FALSE(quota.Resize(&weight, 1, kOwn).ok());
  more.Release();
  EXPECT_TRUE(quota.Resize(&weight, 10, kOwn).ok());
}

TEST(SessionQuotaTest, CachesHaveACapOfTheirOwn) {
  SessionQuota quota({.all = 100, .storages = 50, .caches = 30});
  QuotaShare cache = *quota.Reserve(20, kCache);
  EXPECT_EQ(
      quota.Reserve(11, kCache).status().message(),
      "memory of the session for caches: limit 30 bytes, used 20, asked 11");
  // Caches leave the rest its part.
  QuotaShare own = *quota.Reserve(50);
  EXPECT_EQ(quota.Reserve(1).status().message(),
            "memory of the session but for contents and caches: limit 50 "
            "bytes, used 50, asked 1");
  EXPECT_EQ(quota.used(kCache).bytes, 20u);
  EXPECT_EQ(quota.used(kOwn).bytes, 50u);
  EXPECT_EQ(quota.used(), 70u);
  cache.Release();
  EXPECT_TRUE(quota.Resize(&own, 30, kCache).ok());
  EXPECT_EQ(quota.used(kOwn).count, 0u);
}

TEST(SessionQuotaTest, ReservationOfAnySizeIsChecked) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const MemoryLimits& limits :
       {MemoryLimits{.all = 100}, MemoryLimits{.all = 100, .storages = 50},
        MemoryLimits{.all = 100, .contents = 50},
        MemoryLimits{.all = 100, .caches = 50}, MemoryLimits{}}) {
    for (const bool of_tenant : {false, true}) {
      TenantQuota tenant(of_tenant ? limits : MemoryLimits{});
      SessionQuota quota(of_tenant ? MemoryLimits{} : limits, &tenant);
      const QuotaShare held = *quota.Reserve(10);
      for (const StorageClass storage_class :
           {StorageClass::kOwn, StorageClass::kContent, StorageClass::kCache}) {
        for (const uint64_t bytes : {kMost, kMost - 9, kMost - 10}) {
          const auto share = quota.Reserve(bytes, storage_class);
          // Without any limit that much is available.
          EXPECT_EQ(share.ok(), limits.all == kMost && bytes == kMost - 10)
              << bytes;
        }
        EXPECT_EQ(quota.used(), 10u);
        EXPECT_EQ(tenant.used(), 10u);
      }
    }
  }
}

TEST(SessionQuotaTest, WithoutACapCachesCountWithAllElse) {
  SessionQuota quota({.all = 100, .storages = 50});
  QuotaShare cache = *quota.Reserve(30, kCache);
  EXPECT_EQ(
      quota.Reserve(21).status().message(),
      "memory of the session but for contents: limit 50 bytes, used 30, asked "
      "21");
  QuotaShare own = *quota.Reserve(20);
  own.MoveTo(kCache);
  EXPECT_EQ(quota.used(kCache).bytes, 50u);
  EXPECT_FALSE(quota.Reserve(1, kCache).ok());
  // With a cap, caches count apart at once.
  quota.SetLimits({.all = 100, .storages = 50, .caches = 50});
  EXPECT_TRUE(quota.Reserve(50).ok());
}

TEST(SessionQuotaTest, BeyondTheirCapNothingGrowsButContents) {
  TenantQuota tenant;
  SessionQuota quota({.all = 100, .caches = 10}, &tenant);
  QuotaShare cache = *quota.Reserve(20), own = *quota.Reserve(30);
  // The storage was not known to be a cache, so it stays.
  cache.MoveTo(kCache);
  EXPECT_EQ(tenant.used(), 50u);
  EXPECT_EQ(
      quota.Reserve(1).status().message(),
      "memory of the session for caches: limit 10 bytes, used 20, asked 1");
  EXPECT_FALSE(quota.Reserve(1, kCache).ok());
  EXPECT_FALSE(quota.Resize(&own, 31, kOwn).ok());
  EXPECT_TRUE(quota.Resize(&own, 29, kOwn).ok());
  QuotaShare weight;
  EXPECT_TRUE(quota.Resize(&weight, 10, kContent).ok());
  EXPECT_TRUE(quota.Resize(&cache, 10, kCache).ok());
  EXPECT_TRUE(quota.Reserve(1).ok());
}

TEST(SessionQuotaTest, TheTenantsCapsHoldForAllItsSessions) {
  TenantQuota tenant({.all = 100, .contents = 30});
  SessionQuota a({}, &tenant), b({}, &tenant);
  QuotaShare weight, other, cache;
  EXPECT_TRUE(a.Resize(&weight, 20, kContent).ok());
  const absl::Status refused = b.Resize(&other, 11, kContent);
  EXPECT_EQ(ErrorReason(refused), "TENANT_MEMORY");
  EXPECT_EQ(
      refused.message(),
      "memory of the tenant's sessions for contents: limit 30 bytes, used 20, "
      "asked 11");
  // The refusal leaves nothing in the session's account.
  EXPECT_EQ(b.used(), 0u);
  EXPECT_EQ(b.used(kContent).count, 0u);
  EXPECT_TRUE(b.Resize(&cache, 80, kOwn).ok());
  EXPECT_FALSE(a.Resize(&weight, 21, kContent).ok());
  EXPECT_EQ(weight.bytes(), 20u);
  // With memory of its own the storage counts in the other part, and still in
  // the whole.
  EXPECT_TRUE(a.Resize(&weight, 20, kOwn).ok());
  EXPECT_EQ(tenant.used(), 100u);
  cache.Release();
  EXPECT_TRUE(b.Resize(&other, 30, kContent).ok());
  weight.Release();
  other.Release();
  EXPECT_EQ(tenant.used(), 0u);
}

TEST(SessionQuotaTest, LostSessionsEndForWhatTheTenantsCapsLack) {
  QuotaShare gone;
  std::vector<uint64_t> asked;
  TenantQuota tenant({.all = 100, .contents = 30}, [&](uint64_t missing) {
    asked.push_back(missing);
    if (gone.bytes() < missing) return false;
    gone.Release();
    return true;
  });
  SessionQuota lost({}, &tenant), quota({}, &tenant);
  QuotaShare own, weight;
  EXPECT_TRUE(lost.Resize(&gone, 25, kContent).ok());
  EXPECT_TRUE(quota.Resize(&own, 70, kOwn).ok());
  EXPECT_THAT(asked, testing::IsEmpty());
  EXPECT_EQ(ErrorReason(quota.Resize(&weight, 60, kContent)), "TENANT_MEMORY");
  EXPECT_EQ(gone.bytes(), 25u);
  EXPECT_TRUE(quota.Resize(&weight, 10, kContent).ok());
  EXPECT_TRUE(quota.Resize(&own, 80, kOwn).ok());
  EXPECT_EQ(ErrorReason(quota.Resize(&own, 95, kOwn)), "TENANT_MEMORY");
  EXPECT_THAT(asked, testing::ElementsAre(55, 5, 5));
  EXPECT_EQ(tenant.used(), 90u);
}

TEST(SessionQuotaTest, RoomForContentsIsTheLeastOfWhatEachCapLeaves) {
  TenantQuota tenant({.all = 100, .contents = 50});
  SessionQuota a({.all = 90}, &tenant), b({.all = 80, .contents = 40}, &tenant);
  EXPECT_EQ(a.RoomForContents(), 50u);
  EXPECT_EQ(b.RoomForContents(), 40u);
  QuotaShare weight = *a.Reserve(30, kContent), other = *a.Reserve(45, kOwn);
  EXPECT_EQ(a.RoomForContents(), 15u);
  EXPECT_EQ(b.RoomForContents(), 20u);
  // Limits may be lowered below what is used.
  tenant.SetLimits({.all = 10});
  EXPECT_EQ(b.RoomForContents(), 0u);
  EXPECT_EQ(SessionQuota({}).RoomForContents(), MemoryLimits::kUnlimited);
}

TEST(SessionQuotaTest, RoomIsTheLeastOfWhatEachCapLeavesForOwnMemory) {
  TenantQuota tenant({.all = 90});
  SessionQuota session({.all = 100, .storages = 80, .caches = 20}, &tenant);
  EXPECT_EQ(session.room(), 80u);
  QuotaShare own = *session.Reserve(30);
  EXPECT_EQ(session.room(), 50u);
  QuotaShare cache = *session.Reserve(20, StorageClass::kCache);
  EXPECT_EQ(session.room(), 40u);  // the tenant's
  EXPECT_FALSE(session.Reserve(41).ok());
  EXPECT_EQ(session.room(), 40u);
  session.SetLimits({.all = 60});
  EXPECT_EQ(session.room(), 10u);
  session.SetLimits({.all = 10});
  EXPECT_EQ(session.room(), 0u);
  own.Release();
  cache.Release();
  EXPECT_EQ(session.room(), 10u);
  EXPECT_EQ(tenant.room(), 90u);
}

TEST(SessionQuotaTest, UnkeptChangeIsUndoneUnderAnyLimit) {
  TenantQuota tenant;
  SessionQuota quota({.all = 100, .contents = 60}, &tenant);
  QuotaShare share, none;
  EXPECT_TRUE(quota.Resize(&share, 60, kContent).ok());
  {
    QuotaChange change(&quota, &share), creation(&quota, &none);
    EXPECT_TRUE(change.To(10, kOwn).ok());
    EXPECT_TRUE(creation.To(80, kOwn).ok());
    EXPECT_EQ(quota.used(kOwn).count, 2u);
    EXPECT_EQ(tenant.used(), 90u);
    quota.SetLimits({.all = 5, .contents = 5});
    tenant.SetLimits({.all = 5});
  }
  EXPECT_EQ(share.bytes(), 60u);
  EXPECT_EQ(share.storage_class(), kContent);
  EXPECT_EQ(quota.used(kContent).count, 1u);
  EXPECT_EQ(quota.used(kContent).bytes, 60u);
  EXPECT_EQ(quota.used(kOwn).count, 0u);
  EXPECT_EQ(quota.used(kOwn).bytes, 0u);
  EXPECT_EQ(quota.used(), 60u);
  EXPECT_EQ(tenant.used(), 60u);
  {
    QuotaChange refused(&quota, &share), kept(&quota, &share);
    EXPECT_EQ(ErrorReason(refused.To(61, kContent)), "SESSION_MEMORY");
    EXPECT_TRUE(kept.To(3, kContent).ok());
    kept.Keep();
  }
  EXPECT_EQ(quota.used(), 3u);
}

TEST(DeviceMemoryTest, BytesReturnWithTheLastReference) {
  FakeDevice device(1000);
  Ledger ledger(1000);
  DeviceMemory memory(&device, &ledger);
  std::shared_ptr<Buffer> a = *memory.Allocate("t", 100);
  EXPECT_TRUE(IsSoleOwner(a));
  std::shared_ptr<Buffer> again = a;
  EXPECT_FALSE(IsSoleOwner(a));
  a.reset();
  EXPECT_FALSE(IsSoleOwner(a));
  EXPECT_EQ(ledger.usage().used, 100u);
  EXPECT_TRUE(IsSoleOwner(again));
  again.reset();
  EXPECT_EQ(ledger.usage().used, 0u);
  EXPECT_EQ(device.live_bytes(), 0u);
}

TEST(DeviceMemoryTest, TheReclaimerMakesRoomOnce) {
  FakeDevice device(1000);
  Ledger ledger(1000);
  DeviceMemory memory(&device, &ledger);
  std::shared_ptr<Buffer> idle = *memory.Allocate("t", 800);
  uint64_t asked = 0;
  memory.SetReclaimer([&](uint64_t bytes) {
    asked = bytes;
    idle.reset();
  });
  EXPECT_TRUE(memory.Allocate("t", 500).ok());
  EXPECT_EQ(asked, 300u);
  EXPECT_EQ(ErrorReason(memory.Allocate("t", uint64_t{10} << 40).status()),
            "DEVICE_MEMORY");
}

TEST(LedgerTest, PressureHasTwoLevels) {
  Ledger ledger(1000);
  const auto pressure = [&](uint64_t used) {
    const Reservation reserved =
        *ledger.Reserve(MemoryClass::kStorages, "t", used);
    return ledger.usage().pressure();
  };
  EXPECT_EQ(pressure(800), MemoryPressure::kNone);
  EXPECT_EQ(pressure(801), MemoryPressure::kHigh);
  EXPECT_EQ(pressure(950), MemoryPressure::kHigh);
  EXPECT_EQ(pressure(951), MemoryPressure::kCritical);
  const Reservation reserved =
      *ledger.Reserve(MemoryClass::kStorages, "t", 900);
  EXPECT_EQ(ledger.usage().Above(kHighPressure), 100u);
  EXPECT_EQ(ledger.usage().Above(kCriticalPressure), 0u);
}

TEST(UsedIdsTest, MergesNeighboursAndStaysBounded) {
  UsedIds ids(3);
  for (uint64_t id : {1, 3, 2, 10, 20}) ids.Insert(id);
  EXPECT_EQ(ids.ranges(), 3u);
  EXPECT_TRUE(ids.Contains(2));
  EXPECT_FALSE(ids.Contains(4));
  ids.Insert(30);
  EXPECT_EQ(ids.ranges(), 3u);
  EXPECT_TRUE(ids.Contains(10));
  EXPECT_FALSE(ids.Contains(21));
}

}  // namespace
}  // namespace djinn::worker
