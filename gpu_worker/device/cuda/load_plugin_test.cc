#include "gpu_worker/device/cuda/load_plugin.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "ATen/Parallel.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string File(const std::string& name) {
  return std::filesystem::absolute("gpu_worker/device/cuda/" + name);
}

TEST(LoadPluginTest, MakesADeviceWithTheOptions) {
  const absl::Status status =
      LoadDevicePlugin(File("libtest_plugin.so"),
                       {.ordinal = 3, .memory_bytes = 70})
          .status();
  EXPECT_EQ(status, absl::UnavailableError("no device 3 with 70 bytes"));
}

TEST(LoadPluginTest, AnotherVersionIsRefused) {
  const absl::Status status =
      LoadDevicePlugin(File("libold_plugin.so"), {}).status();
  EXPECT_EQ(ErrorReason(status), "PLUGIN_MISMATCH");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("was built as \"some other\""));
}

TEST(LoadPluginTest, OtherLibraryIsRefused) {
  EXPECT_EQ(ErrorReason(LoadDevicePlugin("libm.so.6", {}).status()),
            "PLUGIN_MISMATCH");
}

TEST(LoadPluginTest, AMissingPlugInIsNamed) {
  const absl::Status status =
      LoadDevicePlugin("/nowhere/libdjinn_cuda.so", {.ordinal = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "DEVICE_UNAVAILABLE");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cuda:1 cannot be used: no plug-in /nowhere/"));
}

// Checks that the plug-in contains no protobuf of its own: it uses the
// process's, which accepts each file's description only once.
TEST(LoadPluginTest, ThePlugInBringsNoProtobuf) {
  std::ifstream file(File("libdjinn_cuda.so"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  ASSERT_THAT(bytes, HasSubstr("djinn_make_device"));
  EXPECT_THAT(bytes, Not(HasSubstr(".proto")));
}

// Runs on machines without NVIDIA's libraries or without a driver.
TEST(LoadPluginTest, MissingLibraryOrDriverIsNamed) {
  // Links libtorch_cpu into this program.
  EXPECT_GT(at::get_num_threads(), 0);
  const absl::StatusOr<std::unique_ptr<Device>> device =
      LoadCudaDevice(File("libdjinn_cuda.so"), {});
  if (device.ok()) GTEST_SKIP() << "this machine has " << (*device)->name();
  std::cout << device.status().message() << std::endl;
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(device.status()), "DEVICE_UNAVAILABLE");
  EXPECT_THAT(std::string(device.status().message()),
              AnyOf(HasSubstr(".so"), HasSubstr("no driver"),
                    HasSubstr("this process sees 0")));
}

}  // namespace
}  // namespace djinn::worker
