#include "gpu_worker/device/cpu/available_memory.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest()
      : folder_(testing::TempDir() + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        files_{folder_ + "/meminfo", folder_ + "/cgroup", folder_} {
    Write("meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
    Write("cgroup", "1:name=systemd:/other\n0::/system.slice/worker\n");
  }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void WriteGroup(const std::string& group, const std::string& limit, int used,
                  int inactive) {
    Write(group + "memory.max", limit + "\n");
    Write(group + "memory.current", std::to_string(used) + "\n");
    Write(group + "memory.stat", "anon 1\nactive_file 7\ninactive_file " +
                                     std::to_string(inactive) + "\n");
  }

  const std::string folder_;
  const MemoryFiles files_;
};

TEST_F(AvailableMemoryTest, WithoutLimitsItIsTheMachines) {
  EXPECT_EQ(AvailableMemory(files_).value(), 8000u << 10);
  WriteGroup("system.slice/worker/", "max", 12345, 1);
  EXPECT_EQ(AvailableMemory(files_).value(), 8000u << 10);
}

TEST_F(AvailableMemoryTest, TheTightestGroupLimitsIt) {
  WriteGroup("system.slice/worker/", "5000", 3000, 400);
  EXPECT_EQ(AvailableMemory(files_).value(), 2400u);
  WriteGroup("system.slice/", "1000", 900, 0);
  EXPECT_EQ(AvailableMemory(files_).value(), 100u);
  // A group that lowered its limit below its use.
  WriteGroup("", "100", 900, 0);
  EXPECT_EQ(AvailableMemory(files_).value(), 0u);
}

TEST_F(AvailableMemoryTest, AMachineThatDoesNotSayIsAnError) {
  Write("meminfo", "MemTotal:  9000 kB\n");
  EXPECT_EQ(AvailableMemory(files_).status().message(),
            files_.machine + " does not say what is available");
}

TEST(AvailableMemoryOfThisMachineTest, IsKnown) {
  EXPECT_GT(AvailableMemory().value(), 1u << 20);
}

}  // namespace
}  // namespace djinn::worker
