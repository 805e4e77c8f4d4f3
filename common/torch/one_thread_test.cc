#include "common/torch/one_thread.h"

#include <thread>

#include "ATen/Parallel.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(OneThreadTest, ThreadHasOneComputeThreadUntilTheObjectEnds) {
  at::set_num_threads(3);
  {
    const OneThread one;
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
}

TEST(OneThreadTest, OtherThreadsKeepTheirCounts) {
  at::set_num_threads(3);
  const OneThread one;
  int other = 0;
  std::thread([&] { other = at::get_num_threads(); }).join();
  EXPECT_EQ(other, 3);
}

}  // namespace
}  // namespace djinn
