#include "gpu_worker/supervised_device.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr char kFakeNvml[] = "gpu_worker/nvml/libfake_nvml.so";

class SupervisedDeviceTest : public testing::Test {
 protected:
  SupervisedDeviceTest()
      : file_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    options_.min_free_bytes = 2 * kGiB;
    options_.machine = {file_, /*own_group=*/"", /*groups=*/""};
    options_.said_by_executors = [this] { return said_.load(); };
  }
  ~SupervisedDeviceTest() override { std::remove(file_.c_str()); }

  // Replaces the file at once, as it may be read at any time.
  void Write(absl::string_view text) {
    const std::string draft = file_ + ".draft";
    std::ofstream(draft) << text;
    ASSERT_EQ(std::rename(draft.c_str(), file_.c_str()), 0);
  }
  void WriteMachine(uint64_t bytes) {
    Write(absl::StrCat("MemAvailable: ", bytes >> 10, " kB\n"));
  }
  void WriteGpu(uint64_t free) {
    Write(absl::StrCat("GPU-aaaa 0000:01:00.0 41 0 - ", free, "\n"));
  }
  // Makes a GPU's device whose executors may keep 10 GiB.
  void UseGpu(uint64_t free) {
    setenv("DJINN_FAKE_NVML", file_.c_str(), /*overwrite=*/1);
    WriteGpu(free);
    gpu_ = std::make_unique<GpuMonitor>(
        GpuMonitorOptions{.library = kFakeNvml, .uuid = "GPU-aaaa"});
    options_.kind = "cuda";
    options_.gpu = gpu_.get();
    options_.most_kept_bytes = 10 * kGiB;
  }
  // Lets the next measurement become due, and waits until the check says so.
  void AwaitDetail(const SupervisedDevice& device, absl::string_view detail) {
    clock_.Advance(DeviceWatch::kInterval);
    for (Patience patience; device.Check().detail != detail;) patience.Yield();
  }

  const std::string file_;
  FakeClock clock_;
  std::unique_ptr<GpuMonitor> gpu_;
  std::atomic<uint64_t> said_{0};
  SupervisedDeviceOptions options_;
};

TEST_F(SupervisedDeviceTest, CpuHasWhatTheMachineHasAvailable) {
  WriteMachine(3 * kGiB);
  options_.kind = "cpu";
  SupervisedDevice device(std::move(options_), &clock_);
  EXPECT_EQ(device.Check().name, "device");
  EXPECT_EQ(device.Check().failure, "");
  EXPECT_EQ(device.Check().detail, "3221225472 bytes available");
  WriteMachine(kGiB);
  AwaitDetail(device, "1073741824 bytes available");
  EXPECT_EQ(device.Check().failure,
            "it has 1.0 GiB of memory available, and device.min_free is 2.0 "
            "GiB");
  device.SetMinFree(kGiB);
  EXPECT_EQ(device.Check().failure, "");
  Exposition out;
  device.Collect("w0", &out);
  EXPECT_THAT(
      out.Text(),
      HasSubstr(
          "djinn_worker_device_available_bytes{worker=\"w0\"} 1073741824\n"));
}

TEST_F(SupervisedDeviceTest, MachineThatDoesNotSayFailsOnlyWithALimit) {
  options_.kind = "cpu";
  SupervisedDevice device(std::move(options_), &clock_);
  EXPECT_THAT(device.Check().failure, HasSubstr("does not say"));
  device.SetMinFree(0);
  EXPECT_EQ(device.Check().failure, "");
}

TEST_F(SupervisedDeviceTest, FakeDeviceHasAllItsMemory) {
  options_.kind = "fake";
  options_.memory_bytes = kGiB;
  const SupervisedDevice device(std::move(options_), &clock_);
  EXPECT_EQ(device.Check().detail, "1073741824 bytes available");
  EXPECT_THAT(device.Check().failure, HasSubstr("device.min_free"));
}

TEST_F(SupervisedDeviceTest, GpuHasWhatIsFreeAndWhatAnExecutorKeeps) {
  UseGpu(kGiB);
  const SupervisedDevice device(std::move(options_), &clock_);
  EXPECT_EQ(device.Check().detail, "1073741824 bytes available");
  EXPECT_THAT(device.Check().failure, HasSubstr("device.min_free"));
  said_ = 4 * kGiB;
  AwaitDetail(device, "4294967296 bytes available");
  EXPECT_EQ(device.Check().failure, "");
  said_ = 0;
  WriteGpu(5 * kGiB);
  AwaitDetail(device, "5368709120 bytes available");
  EXPECT_EQ(device.Check().failure, "");
}

TEST_F(SupervisedDeviceTest, ExecutorIsBelievedUpToWhatItMayKeep) {
  UseGpu(kGiB);
  said_ = uint64_t{1} << 50;
  const SupervisedDevice device(std::move(options_), &clock_);
  EXPECT_EQ(device.Check().detail, "11811160064 bytes available");
}

TEST_F(SupervisedDeviceTest, GpuOfUnknownMemoryIsNoFailureAndSaysSo) {
  options_.kind = "cuda";
  const GpuMonitor gpu({.library = "libnone-nvml.so.1"});
  options_.gpu = &gpu;
  said_ = 4 * kGiB;
  const SupervisedDevice device(options_, &clock_);
  EXPECT_EQ(device.Check().failure, "");
  EXPECT_THAT(device.Check().detail, HasSubstr("libnone-nvml.so.1"));
  options_.gpu = nullptr;
  const SupervisedDevice unnamed(options_, &clock_);
  EXPECT_EQ(unnamed.Check().failure, "");
  EXPECT_EQ(unnamed.Check().detail, "device.nvml_library names no library");
}

}  // namespace
}  // namespace djinn::worker
