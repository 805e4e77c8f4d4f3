#include "gpu_worker/gpu_list.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GpuListTest : public testing::Test {
 protected:
  GpuListTest() : path_(testing::TempDir() + "/listed_gpus") {
    setenv("DJINN_FAKE_NVML", path_.c_str(), /*overwrite=*/1);
    std::ofstream(path_) << "GPU-aa11 0000:01:00.0 41 0 -\n"
                            "GPU-aa22 0000:02:00.0 41 0 -\n"
                            "GPU-bb33 0000:03:00.0 41 0 -\n";
  }
  ~GpuListTest() override { std::remove(path_.c_str()); }

  static absl::StatusOr<std::vector<std::string>> List(
      std::optional<absl::string_view> visible) {
    return ListGpus(*Nvml::Open("gpu_worker/nvml/libfake_nvml.so").value(),
                    visible);
  }
  static std::string Reason(const std::string& visible) {
    return ErrorReason(List(visible).status());
  }

  const std::string path_;
};

TEST_F(GpuListTest, WithoutTheVariableAllAreVisible) {
  EXPECT_THAT(*List(std::nullopt),
              ElementsAre("GPU-aa11", "GPU-aa22", "GPU-bb33"));
}

TEST_F(GpuListTest, TheVariableChoosesAndOrders) {
  EXPECT_THAT(*List("2,0"), ElementsAre("GPU-bb33", "GPU-aa11"));
  EXPECT_THAT(*List(" GPU-bb , GPU-aa22"), ElementsAre("GPU-bb33", "GPU-aa22"));
}

TEST_F(GpuListTest, AnEntryThatNamesNoGpuIsNamed) {
  EXPECT_EQ(List("3").status().message(),
            "\"3\" in CUDA_VISIBLE_DEVICES is no number of 3 GPUs");
  EXPECT_EQ(List("GPU-aa").status().message(),
            "\"GPU-aa\" in CUDA_VISIBLE_DEVICES names several GPUs");
  for (const char* wrong : {"MIG-aa11", "-1", "0,", "0,GPU-aa11", "none"}) {
    EXPECT_EQ(Reason(wrong), "GPU_UNKNOWN") << wrong;
  }
  EXPECT_EQ(Reason(""), "NO_GPU");
}

TEST_F(GpuListTest, AMachineWithoutGpusSaysSo) {
  std::ofstream empty(path_, std::ios::trunc);
  empty.close();
  const absl::Status none = List(std::nullopt).status();
  EXPECT_EQ(ErrorReason(none), "NO_GPU");
  EXPECT_THAT(std::string(none.message()), HasSubstr("has no GPU"));
}

WorkerConfig All() {
  WorkerConfig config;
  config.worker_id = "w0";
  config.listen = "0.0.0.0:7072";
  config.device_kind = "cuda";
  config.all_gpus = true;
  return config;
}

TEST(ConfigOfGpuTest, EachHasNamesAndPortsOfItsOwn) {
  WorkerConfig all = All();
  all.advertise = "[fd00::1]:7072";
  all.monitoring.listen = "127.0.0.1:9465";
  all.shared_memory_socket = "/run/w0.shm";
  all.content_disk_directory = "/var/contents";
  all.content_disk_limit = 100;
  const WorkerConfig first = *ConfigOfGpu(all, 0, 4, "GPU-a");
  EXPECT_EQ(first.listen, "0.0.0.0:7072");
  EXPECT_EQ(first.monitoring.listen, "127.0.0.1:9466");
  EXPECT_TRUE(first.monitoring.stand_in);
  const WorkerConfig third = *ConfigOfGpu(all, 2, 4, "GPU-c");
  EXPECT_FALSE(third.all_gpus);
  EXPECT_EQ(third.device_ordinal, 0);
  EXPECT_EQ(third.gpu_uuid, "GPU-c");
  EXPECT_EQ(third.worker_id, "w0-gpu2");
  EXPECT_EQ(third.listen, "0.0.0.0:7074");
  EXPECT_EQ(third.advertise, "[fd00::1]:7074");
  EXPECT_EQ(third.monitoring.listen, "127.0.0.1:9468");
  EXPECT_EQ(third.shared_memory_socket, "/run/w0.shm-gpu2");
  EXPECT_EQ(third.content_disk_directory, "/var/contents-gpu2");
  EXPECT_EQ(third.content_disk_limit, 25u);
}

TEST(ConfigOfGpuTest, PortsThatTheSystemChoosesStay) {
  WorkerConfig all = All();
  all.listen = "127.0.0.1:0";
  const WorkerConfig config = *ConfigOfGpu(all, 3, 4, "GPU-d");
  EXPECT_EQ(config.listen, "127.0.0.1:0");
  EXPECT_EQ(config.monitoring.listen, "127.0.0.1:0");
  EXPECT_EQ(config.shared_memory_socket, "");
  EXPECT_EQ(config.content_disk_directory, "");
  all.listen = "unix:w0.sock";
  EXPECT_EQ(ConfigOfGpu(all, 3, 4, "GPU-d")->listen, "unix:w0.sock-gpu3");
}

TEST(ConfigOfGpuTest, ProcessesOfTenantsHaveTheirPart) {
  WorkerConfig all = All();
  all.isolated = true;
  all.executors = 4;
  all.content_memory = 100;
  all.first_executor_port = 7100;
  all.last_executor_port = 7110;
  const WorkerConfig second = *ConfigOfGpu(all, 1, 2, "GPU-b");
  EXPECT_TRUE(second.isolated);
  EXPECT_EQ(second.first_executor_port, 7105);
  EXPECT_EQ(second.last_executor_port, 7109);
  EXPECT_EQ(second.content_memory, 50u);
  const absl::Status few = ConfigOfGpu(all, 0, 3, "GPU-a").status();
  EXPECT_EQ(ErrorReason(few), "BAD_CONFIG");
  EXPECT_THAT(std::string(few.message()),
              HasSubstr("isolation.ports: 3 ports are left for the worker"));
  all.first_executor_port = all.last_executor_port = 0;
  EXPECT_EQ(ConfigOfGpu(all, 0, 3, "GPU-a")->first_executor_port, 0);
}

TEST(ConfigOfGpuTest, APortThatIsMissingIsNamed) {
  WorkerConfig all = All();
  all.listen = "0.0.0.0:65534";
  EXPECT_TRUE(ConfigOfGpu(all, 1, 4, "GPU-b").ok());
  const absl::Status status = ConfigOfGpu(all, 2, 4, "GPU-c").status();
  EXPECT_EQ(ErrorReason(status), "BAD_CONFIG");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("listen: 0.0.0.0:65534 leaves no port"));
}

}  // namespace
}  // namespace djinn::worker
