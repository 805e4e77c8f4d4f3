#include "gpu_worker/core/device_watch.h"

#include <utility>

#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

class GaugedDevice : public FakeDevice, public MemoryGauge {
 public:
  GaugedDevice() : FakeDevice(uint64_t{8} << 30) {}
  absl::StatusOr<uint64_t> AvailableBytes() const override {
    return available_;
  }
  void SetAvailableBytes(absl::StatusOr<uint64_t> available) {
    available_ = std::move(available);
  }

 private:
  absl::StatusOr<uint64_t> available_ = uint64_t{8} << 30;
};

class DeviceWatchTest : public testing::Test {
 protected:
  // Lets so much time pass, and measures.
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    watch_.Measure();
  }

  FakeClock clock_;
  GaugedDevice device_;
  DeviceWatch watch_{&device_, &clock_, uint64_t{2} << 30};
};

TEST_F(DeviceWatchTest, ADeviceWithEnoughMemoryIsUsable) {
  EXPECT_EQ(watch_.failure(), "");
  EXPECT_EQ(watch_.available_bytes().value(), uint64_t{8} << 30);
  device_.SetAvailableBytes(uint64_t{2} << 30);
  Pass(absl::Seconds(1));
  EXPECT_EQ(watch_.failure(), "");
}

TEST_F(DeviceWatchTest, TooLittleMemoryMakesItUnusableUntilThereIsMore) {
  device_.SetAvailableBytes(uint64_t{3} << 29);
  // A measurement is made once a second at most.
  Pass(absl::Milliseconds(999));
  EXPECT_EQ(watch_.failure(), "");
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(watch_.failure(),
            "it has 1.5 GiB of memory available, and device.min_free is 2.0 "
            "GiB");
  device_.SetAvailableBytes(uint64_t{3} << 30);
  Pass(absl::Seconds(1));
  EXPECT_EQ(watch_.failure(), "");
}

TEST_F(DeviceWatchTest, MemoryThatNoOtherProcessUsesIsAvailable) {
  FakeDevice alone(uint64_t{1} << 30);
  EXPECT_EQ(DeviceWatch(&alone, &clock_, 0).available_bytes().value(),
            uint64_t{1} << 30);
}

TEST_F(DeviceWatchTest, MemoryOfADeviceOfOtherProcessesIsWatchedAlone) {
  absl::StatusOr<uint64_t> available = uint64_t{3} << 30;
  DeviceWatch watch([&] { return available; }, &clock_, uint64_t{2} << 30);
  EXPECT_EQ(watch.failure(), "");
  EXPECT_EQ(watch.detail(), "3221225472 bytes available");
  available = absl::InternalError("no driver");
  clock_.Advance(absl::Seconds(1));
  watch.Measure();
  EXPECT_EQ(watch.failure(), "no driver");
  EXPECT_EQ(watch.detail(), "no driver");
}

TEST_F(DeviceWatchTest, TheMinimumMayChange) {
  watch_.SetMinFree(uint64_t{9} << 30);
  EXPECT_EQ(watch_.failure(),
            "it has 8.0 GiB of memory available, and device.min_free is 9.0 "
            "GiB");
}

TEST_F(DeviceWatchTest, ABrokenDeviceSaysItsErrorAtOnce) {
  device_.Break(absl::UnavailableError("it asserted"));
  EXPECT_EQ(watch_.failure(), "it asserted");
}

TEST_F(DeviceWatchTest, MemoryThatIsNotKnownMattersOnlyWithALimit) {
  device_.SetAvailableBytes(absl::InternalError("no driver"));
  Pass(absl::Seconds(1));
  EXPECT_EQ(watch_.failure(), "no driver");
  DeviceWatch unlimited(&device_, &clock_, 0);
  EXPECT_EQ(unlimited.failure(), "");
  Exposition out;
  unlimited.Collect("w0", &out);
  EXPECT_EQ(out.Text(), "");
}

TEST_F(DeviceWatchTest, ADeviceThatDoesNotAnswerShows) {
  clock_.Advance(absl::Seconds(30));
  EXPECT_EQ(watch_.failure(), "");
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(watch_.failure(), "it has not answered for 31 seconds");
  watch_.Measure();
  EXPECT_EQ(watch_.failure(), "");
}

TEST_F(DeviceWatchTest, AScrapeHasTheAvailableMemory) {
  Exposition out;
  watch_.Collect("w0", &out);
  EXPECT_THAT(
      out.Text(),
      HasSubstr(
          "djinn_worker_device_available_bytes{worker=\"w0\"} 8589934592\n"));
}

}  // namespace
}  // namespace djinn::worker
