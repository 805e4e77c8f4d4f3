#include "gpu_worker/device/cpu/apart.h"

#include <sched.h>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

TEST(ApartTest, ThreadsMayUseAllTheirProcessorsAfterwards) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  // Wherever this thread is: it stands for both.
  Apart apart;
  apart.Begin(0, 2);
  apart.Begin(1, 2);
  apart.Begin(1, 1 << 20);
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace djinn::worker
