#include "gpu_worker/store/memory_relief.h"

#include <memory>
#include <utility>
#include <vector>

#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/store/ledger.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Holds one block of spare memory, and releases it as a whole.
class SpareDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  void SetSpareMemory(SpareMemory* spare) override { source_ = spare; }
  uint64_t ReleaseSpareMemory(uint64_t) override {
    return std::exchange(held_, nullptr) == nullptr
               ? 0
               : std::exchange(held_bytes_, 0);
  }
  // Returns whether the memory was to spare.
  bool Hold(uint64_t bytes) {
    held_ = source_->Reserve("t", bytes);
    held_bytes_ = held_ == nullptr ? 0 : bytes;
    return held_ != nullptr;
  }
  uint64_t held() const { return held_bytes_; }
  bool has_source() const { return source_ != nullptr; }

 private:
  SpareMemory* source_ = nullptr;
  std::shared_ptr<void> held_;
  uint64_t held_bytes_ = 0;
};

class MemoryReliefTest : public testing::Test {
 protected:
  // The source outlives what was reserved from it (device.h).
  void TearDown() override { device_.ReleaseSpareMemory(0); }

  // Adds a content that no storage shares.
  void AddIdle(uint64_t hash, uint64_t bytes) {
    Reservation reservation =
        *ledger_.Reserve(MemoryClass::kContents, "t", bytes);
    contents_.Insert("t", {hash, 0},
                     DeviceMemory::Track(
                         *device_.Allocate(bytes),
                         std::make_shared<Reservation>(std::move(reservation))),
                     absl::Seconds(1));
  }
  uint64_t idle() const { return contents_.stats().idle_bytes; }

  SpareDevice device_{1000};
  Ledger ledger_{1000};
  DeviceMemory memory_{&device_, &ledger_};
  ContentCache contents_{10};
  int changes_ = 0;
  // Memory of sessions whose client is away.
  std::vector<std::shared_ptr<Buffer>> lost_;
  MemoryRelief relief_{&memory_, &contents_, [this] { ++changes_; },
                       [this](uint64_t missing) {
                         uint64_t most = 0;
                         for (const auto& memory : lost_) {
                           most += memory->size_bytes();
                         }
                         if (lost_.empty() || most < missing) return false;
                         lost_.pop_back();
                         return true;
                       }};
};

TEST_F(MemoryReliefTest, AllocationTakesSpareMemoryFirst) {
  AddIdle(1, 400);
  ASSERT_TRUE(device_.Hold(500));
  const std::shared_ptr<Buffer> fits = *memory_.Allocate("t", 600);
  EXPECT_EQ(device_.held(), 0u);
  EXPECT_EQ(idle(), 400u);
}

TEST_F(MemoryReliefTest, AllocationEvictsIdleContentsForTheRest) {
  AddIdle(1, 200);
  AddIdle(2, 200);
  ASSERT_TRUE(device_.Hold(500));
  const std::shared_ptr<Buffer> fits = *memory_.Allocate("t", 700);
  EXPECT_EQ(device_.held(), 0u);
  EXPECT_EQ(idle(), 200u);
  EXPECT_EQ(changes_, 1);
}

TEST_F(MemoryReliefTest, AllocationEndsNoMoreLostSessionsThanItNeeds) {
  for (int i = 0; i < 3; ++i) lost_.push_back(*memory_.Allocate("t", 250));
  AddIdle(1, 200);
  const std::shared_ptr<Buffer> idle_is_enough = *memory_.Allocate("t", 250);
  EXPECT_EQ(lost_.size(), 3u);
  const std::shared_ptr<Buffer> one_more = *memory_.Allocate("t", 240);
  EXPECT_EQ(lost_.size(), 2u);
  const std::shared_ptr<Buffer> two_more = *memory_.Allocate("t", 400);
  EXPECT_EQ(lost_.size(), 0u);
  EXPECT_FALSE(memory_.Allocate("t", 400).ok());
}

TEST_F(MemoryReliefTest, AllocationThatCannotFitEndsNoLostSession) {
  const std::shared_ptr<Buffer> used = *memory_.Allocate("t", 500);
  for (int i = 0; i < 2; ++i) lost_.push_back(*memory_.Allocate("t", 200));
  // 100 bytes are free, and lost sessions have 400.
  EXPECT_FALSE(memory_.Allocate("t", 501).ok());
  EXPECT_EQ(lost_.size(), 2u);
  const std::shared_ptr<Buffer> fits = *memory_.Allocate("t", 500);
  EXPECT_EQ(lost_.size(), 0u);
}

TEST_F(MemoryReliefTest, ContentsThatALostSessionLeavesAreEvicted) {
  AddIdle(1, 900);
  lost_.push_back(contents_.Find("t", {1, 0}, 900));
  ASSERT_EQ(idle(), 0u);
  const std::shared_ptr<Buffer> fits = *memory_.Allocate("t", 500);
  EXPECT_EQ(lost_.size(), 0u);
  EXPECT_EQ(contents_.stats().bytes, 0u);
}

TEST_F(MemoryReliefTest, HousekeepingEndsNoLostSession) {
  lost_.push_back(*memory_.Allocate("t", 990));
  relief_.KeepHouse();
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(MemoryReliefTest, HousekeepingEvictsIdleContentsFirst) {
  AddIdle(1, 200);
  AddIdle(2, 200);
  ASSERT_TRUE(device_.Hold(590));
  // 990 of 1,000 bytes are used: critical pressure until a content is evicted.
  relief_.KeepHouse();
  EXPECT_EQ(idle(), 200u);
  EXPECT_EQ(device_.held(), 590u);
  EXPECT_EQ(changes_, 1);
  relief_.KeepHouse();
  EXPECT_EQ(idle(), 200u);
  EXPECT_EQ(changes_, 1);
}

TEST_F(MemoryReliefTest, HousekeepingReleasesSpareMemoryUnderCriticalPressure) {
  const std::shared_ptr<Buffer> used = *memory_.Allocate("t", 500);
  ASSERT_TRUE(device_.Hold(450));
  relief_.KeepHouse();
  EXPECT_EQ(device_.held(), 450u);
  const std::shared_ptr<Buffer> more = *memory_.Allocate("t", 1);
  relief_.KeepHouse();
  EXPECT_EQ(device_.held(), 0u);
  EXPECT_EQ(changes_, 0);
}

TEST_F(MemoryReliefTest, IdleContentsHaveAtMostHalfOfTheDevice) {
  AddIdle(1, 300);
  AddIdle(2, 300);
  relief_.KeepHouse();
  EXPECT_EQ(idle(), 300u);
}

TEST_F(MemoryReliefTest, SpareMemoryComesFromTheLedgerAndEvictsNothing) {
  AddIdle(1, 500);
  EXPECT_FALSE(device_.Hold(600));
  ASSERT_TRUE(device_.Hold(400));
  EXPECT_EQ(idle(), 500u);
  EXPECT_EQ(ledger_.usage().by_class[static_cast<size_t>(MemoryClass::kSpare)],
            400u);
  EXPECT_EQ(ledger_.by_tenant().at("t"), 900u);
}

TEST(MemoryReliefLifeTest, TheDeviceForgetsItsSource) {
  SpareDevice device(1000);
  Ledger ledger(1000);
  DeviceMemory memory(&device, &ledger);
  ContentCache contents(10);
  {
    const MemoryRelief relief(
        &memory, &contents, [] {}, [](uint64_t) { return false; });
    EXPECT_TRUE(device.has_source());
  }
  EXPECT_FALSE(device.has_source());
}

}  // namespace
}  // namespace djinn::worker
