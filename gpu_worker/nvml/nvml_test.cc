// Tests NVML and the monitor with the fake library.
#include "gpu_worker/nvml/nvml.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "gmock/gmock.h"
#include "gpu_worker/nvml/context_meter.h"
#include "gpu_worker/nvml/gpu_monitor.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFake[] = "gpu_worker/nvml/libfake_nvml.so";

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() : path_(testing::TempDir() + "/gpus") {
    setenv("DJINN_FAKE_NVML", path_.c_str(), /*overwrite=*/1);
    Describe("GPU-aaaa 0000:01:00.0 41 0 -\nGPU-bbbb 0000:02:00.0 52 0 -\n");
  }
  ~NvmlTest() override { std::remove(path_.c_str()); }

  // Replaces the file atomically, because the library reads it at any time.
  void Describe(absl::string_view gpus) {
    const std::string draft = path_ + ".draft";
    std::ofstream(draft) << gpus;
    ASSERT_EQ(std::rename(draft.c_str(), path_.c_str()), 0);
  }
  static GpuMonitorOptions Options(int index = 0) {
    return {
        .library = kFake, .index = index, .interval = absl::Milliseconds(10)};
  }
  // Waits for a failure of the monitor, and returns it.
  static std::string AwaitFailure(GpuMonitor* monitor) {
    Mutex mu;
    CondVar changed;
    bool failed = false;
    monitor->Start([&] {
      MutexLock lock(&mu);
      failed = true;
      changed.SignalAll();
    });
    MutexLock lock(&mu);
    while (!failed) {
      if (changed.WaitWithTimeout(&mu, absl::Seconds(60))) break;
    }
    return monitor->failure();
  }

  const std::string path_;
};

TEST_F(NvmlTest, ContextIsWhatAProcessTookOfItsGpu) {
  Describe(
      "GPU-aaaa 0000:01:00.0 41 0 - 500\n"
      "GPU-bbbb 0000:02:00.0 52 0 - 900\n");
  EXPECT_EQ(ContextMeter::Start("none.so").status().code(),
            absl::StatusCode::kUnavailable);
  const absl::StatusOr<ContextMeter> meter = ContextMeter::Start(kFake);
  ASSERT_TRUE(meter.ok()) << meter.status();
  const auto reading = meter->Read("0000:02:00.0", 650);
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_EQ(reading->free_bytes, 900u);
  EXPECT_EQ(reading->context_bytes, 250u);
  // Another process released memory.
  EXPECT_EQ(meter->Read("0000:01:00.0", 501)->context_bytes, 0u);
  EXPECT_EQ(ErrorReason(meter->Read("0000:03:00.0", 1).status()),
            "NVML_UNAVAILABLE");
}

TEST_F(NvmlTest, GpusAreFoundByNumberAndByAddress) {
  const std::unique_ptr<Nvml> nvml = Nvml::Open(kFake).value();
  EXPECT_EQ(nvml->DriverVersion(), "580.0");
  EXPECT_EQ(nvml->Count().value(), 2u);
  EXPECT_EQ(nvml->Uuid(nvml->ByIndex(1).value()).value(), "GPU-bbbb");
  const Nvml::Gpu gpu = nvml->ByBusId("0000:02:00.0").value();
  EXPECT_EQ(nvml->Uuid(gpu).value(), "GPU-bbbb");
  EXPECT_EQ(nvml->ByUuid("GPU-bbbb").value(), gpu);
  EXPECT_EQ(ErrorReason(nvml->ByUuid("GPU-cccc").status()), "NVML_UNAVAILABLE");
  EXPECT_EQ(nvml->Temperature(gpu).value(), 52u);
  EXPECT_EQ(nvml->UncorrectedEccErrors(gpu).value(), 0u);
  EXPECT_EQ(ErrorReason(nvml->ByIndex(2).status()), "NVML_UNAVAILABLE");
  EXPECT_THAT(std::string(nvml->ByBusId("0000:03:00.0").status().message()),
              HasSubstr("nvmlDeviceGetHandleByPciBusId_v2: Not Found"));
}

TEST_F(NvmlTest, MissingLibraryIsNamed) {
  const absl::Status none = Nvml::Open("libnone-nvml.so.1").status();
  EXPECT_EQ(ErrorReason(none), "NVML_UNAVAILABLE");
  EXPECT_THAT(std::string(none.message()), HasSubstr("libnone-nvml.so.1"));
  // The library exists, but is not NVML.
  EXPECT_THAT(std::string(Nvml::Open("libm.so.6").status().message()),
              HasSubstr("libm.so.6 has no nvmlInit_v2"));
  std::remove(path_.c_str());
  EXPECT_THAT(std::string(Nvml::Open(kFake).status().message()),
              HasSubstr("nvmlInit_v2: Driver Not Loaded"));
}

TEST_F(NvmlTest, AMonitorWithoutTheLibrarySaysSoAndIsNoFailure) {
  GpuMonitor monitor({.library = "libnone-nvml.so.1"});
  monitor.Start([] { FAIL() << "there is no failure"; });
  EXPECT_EQ(monitor.failure(), "");
  EXPECT_THAT(monitor.health().source(), AllOf(HasSubstr("unavailable: "),
                                               HasSubstr("libnone-nvml.so.1")));
  EXPECT_FALSE(monitor.health().has_temperature_celsius());
  Exposition out;
  monitor.Collect("w0", &out);
  EXPECT_THAT(out.Text(),
              AllOf(HasSubstr("djinn_worker_gpu_monitored{worker=\"w0\"} 0"),
                    Not(HasSubstr("celsius"))));
}

TEST_F(NvmlTest, AMonitorTellsTheFreeMemoryOfItsGpu) {
  Describe(
      "GPU-aaaa 0000:01:00.0 41 0 - 500\n"
      "GPU-bbbb 0000:02:00.0 52 0 - 900\n");
  const GpuMonitor monitor(Options(1));
  EXPECT_EQ(monitor.FreeBytes().value(), 900u);
  Describe(
      "GPU-aaaa 0000:01:00.0 41 0 - 500\n"
      "GPU-bbbb 0000:02:00.0 52 0 - 70\n");
  EXPECT_EQ(monitor.FreeBytes().value(), 70u);
  const GpuMonitor without({.library = "libnone-nvml.so.1"});
  EXPECT_EQ(ErrorReason(without.FreeBytes().status()), "NVML_UNAVAILABLE");
  EXPECT_EQ(ErrorReason(GpuMonitor(Options(7)).FreeBytes().status()),
            "NVML_UNAVAILABLE");
}

TEST_F(NvmlTest, AMonitorWithoutItsGpuNamesTheFunction) {
  GpuMonitor monitor(Options(7));
  EXPECT_THAT(monitor.health().source(),
              HasSubstr("nvmlDeviceGetHandleByIndex_v2: Not Found"));
  GpuMonitor by_address({.library = kFake, .bus_id = "0000:07:00.0"});
  EXPECT_THAT(by_address.health().source(),
              HasSubstr("nvmlDeviceGetHandleByPciBusId_v2: Not Found"));
}

TEST_F(NvmlTest, AHealthyGpuShowsItsNumbers) {
  EXPECT_EQ(GpuMonitor({.library = kFake, .uuid = "GPU-aaaa"})
                .health()
                .temperature_celsius(),
            41u);
  GpuMonitor monitor({.library = kFake, .bus_id = "0000:02:00.0"});
  EXPECT_EQ(monitor.failure(), "");
  const v1::GpuHealth health = monitor.health();
  EXPECT_EQ(health.source(), "NVML, driver 580.0");
  EXPECT_EQ(health.temperature_celsius(), 52u);
  EXPECT_TRUE(health.has_uncorrected_ecc_errors());
  Exposition out;
  monitor.Collect("w0", &out);
  EXPECT_THAT(
      out.Text(),
      AllOf(HasSubstr("djinn_worker_gpu_temperature_celsius{worker=\"w0\"} 52"),
            HasSubstr("djinn_worker_gpu_monitored{worker=\"w0\"} 1"),
            HasSubstr("uncorrected_ecc_errors{worker=\"w0\"} 0")));
}

TEST_F(NvmlTest, AGpuThatMeasuresNothingIsHealthy) {
  Describe("GPU-aaaa 0000:01:00.0 none none -\n");
  GpuMonitor monitor(Options());
  EXPECT_EQ(monitor.failure(), "");
  EXPECT_FALSE(monitor.health().has_temperature_celsius());
  EXPECT_FALSE(monitor.health().has_uncorrected_ecc_errors());
}

TEST_F(NvmlTest, AnUncorrectedEccErrorIsAFailureThatStays) {
  GpuMonitor monitor(Options());
  Describe("GPU-aaaa 0000:01:00.0 41 2 -\n");
  EXPECT_EQ(AwaitFailure(&monitor),
            "2 uncorrected ECC errors since the driver was loaded");
  EXPECT_EQ(monitor.health().uncorrected_ecc_errors(), 2u);
  Describe("GPU-aaaa 0000:01:00.0 41 0 -\n");
  for (int i = 0; i < 6000 && monitor.health().uncorrected_ecc_errors() != 0;
       ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(monitor.health().uncorrected_ecc_errors(), 0u);
  EXPECT_NE(monitor.failure(), "");
}

TEST_F(NvmlTest, AnEccErrorFromBeforeTheStartIsAFailure) {
  Describe("GPU-aaaa 0000:01:00.0 41 1 -\n");
  EXPECT_NE(GpuMonitor(Options()).failure(), "");
}

TEST_F(NvmlTest, AnXidOfTheGpuIsAFailureAndOneOfAProgramIsNot) {
  GpuMonitor monitor(Options(1));
  Describe(
      "GPU-aaaa 0000:01:00.0 41 0 48\nGPU-bbbb 0000:02:00.0 52 0 13,31,79\n");
  EXPECT_EQ(AwaitFailure(&monitor), "Xid 79");
  EXPECT_EQ(monitor.health().xid_count(), 3u);
  EXPECT_EQ(monitor.health().last_xid(), 79u);
  Exposition out;
  monitor.Collect("w0", &out);
  EXPECT_THAT(out.Text(),
              AllOf(HasSubstr("xid_events_total{worker=\"w0\",xid=\"13\"} 1"),
                    HasSubstr("xid_events_total{worker=\"w0\",xid=\"79\"} 1"),
                    Not(HasSubstr("48"))));
}

TEST_F(NvmlTest, AGpuThatIsLostIsAFailure) {
  GpuMonitor monitor(Options());
  Describe("GPU-aaaa 0000:01:00.0 lost 0 -\n");
  EXPECT_THAT(AwaitFailure(&monitor), HasSubstr("GPU is lost"));
  EXPECT_FALSE(monitor.health().has_temperature_celsius());
}

}  // namespace
}  // namespace djinn::worker
