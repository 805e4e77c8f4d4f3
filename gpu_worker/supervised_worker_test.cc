#include "gpu_worker/supervised_worker.h"

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

WorkerConfig Config(const char* kind) {
  WorkerConfig config;
  config.device_kind = kind;
  config.device_memory = 68 * kGiB;
  config.executors = 4;
  return config;
}

TEST(SetupTest, ExecutorsOnAGpuLearnItAndTheirPart) {
  WorkerConfig config = Config("cuda");
  config.device_ordinal = 3;
  config.device_plugin = "/opt/libdjinn_cuda.so";
  config.graph_memory = 8 * kGiB;
  config.graphs = false;
  config.nvml_library = "libnvidia-ml.so.1";
  const v1::ExecutorSetup setup = SetupOf(config);
  EXPECT_EQ(setup.nvml_library(), "libnvidia-ml.so.1");
  // 17 GiB for values are 85 % of what it may take.
  EXPECT_EQ(setup.process_memory(), 20 * kGiB);
  // The driver reserves more addresses than any limit would allow.
  EXPECT_EQ(setup.address_space_bytes(), 0u);
  EXPECT_GT(setup.data_bytes(), 17 * kGiB);
  const WorkerConfig executor = ConfigOf(setup);
  EXPECT_EQ(executor.device_kind, "cuda");
  EXPECT_EQ(executor.device_ordinal, 3);
  EXPECT_EQ(executor.device_plugin, "/opt/libdjinn_cuda.so");
  EXPECT_EQ(executor.graph_memory, 2 * kGiB);
  EXPECT_FALSE(executor.graphs);
  EXPECT_EQ(executor.process_memory, 20 * kGiB);
  EXPECT_TRUE(executor.one_tenant);
  // The sandbox has no room for what watches the GPU's health.
  EXPECT_EQ(executor.nvml_library, "");
}

TEST(SetupTest, OthersHaveALimitOfAddresses) {
  const v1::ExecutorSetup setup = SetupOf(Config("cpu"));
  EXPECT_GT(setup.address_space_bytes(), 34 * kGiB);
  EXPECT_EQ(setup.data_bytes(), 0u);
  EXPECT_EQ(setup.process_memory(), 0u);
  EXPECT_EQ(ConfigOf(setup).process_memory, 0u);
}

}  // namespace
}  // namespace djinn::worker
