#include "gpu_worker/device/cuda/philox_state.h"

#include <cstring>
#include <string>

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

std::string State(uint64_t seed, uint64_t offset) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &seed, 8);
  std::memcpy(bytes.data() + 8, &offset, 8);
  return bytes;
}

TEST(PhiloxStateTest, SeedAndOffset) {
  EXPECT_TRUE(CheckPhiloxState(State(0, 0)).ok());
  EXPECT_TRUE(CheckPhiloxState(State(UINT64_MAX, 8)).ok());
  for (const std::string& bad :
       {State(0, 2), std::string(), std::string(15, '\0'),
        std::string(5056, '\0')}) {
    EXPECT_EQ(ErrorReason(CheckPhiloxState(bad)), "INVALID_GENERATOR");
  }
}

}  // namespace
}  // namespace djinn::worker
