#include "gpu_worker/config.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { std::ofstream(testing::TempDir() + "join") << "join-token\n"; }

  // A file that says this of its device.
  absl::StatusOr<WorkerConfig> Read(const std::string& device) {
    return ReadWorkerConfig(
        ConfigReader::FromText("worker_id: w0\n"
                               "coordinator: 127.0.0.1:7070\n"
                               "join_token_file: join\n"
                               "device: " +
                                   device + "\n",
                               "w.yaml", testing::TempDir()));
  }
  std::string Complaint(const std::string& device) {
    return std::string(Read(device).status().message());
  }
};

TEST_F(ConfigTest, WeightsArePackedUnlessItSaysNot) {
  absl::StatusOr<WorkerConfig> config = Read("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->packed_weights);
  EXPECT_EQ(config->packed_weight_memory, 0u);
  config = Read("{packed_weights: false}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->packed_weights);
}

TEST_F(ConfigTest, PackedWeightsLieWithinTheMemory) {
  const absl::StatusOr<WorkerConfig> config =
      Read("{memory: 1GiB, packed_weight_memory: 1GiB}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->packed_weight_memory, uint64_t{1} << 30);
  EXPECT_THAT(Complaint("{memory: 1GiB, packed_weight_memory: 2GiB}"),
              HasSubstr("packed_weight_memory: at most memory"));
  EXPECT_THAT(Complaint("{packed_weights: often}"),
              HasSubstr("device.packed_weights"));
}

}  // namespace
}  // namespace djinn::worker
