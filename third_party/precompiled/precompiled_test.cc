// GCC says nothing when it leaves a precompiled header out because an option
// differs from those that `./djinn setup` made it with; a build is then slower
// by a quarter. Two tests are made of this source: one depends on @torch.
#if defined(DJINN_USES_TORCH) && !defined(DJINN_PRECOMPILED_TORCH)
#define TEST_IS_PRECOMPILED false
#elif defined(DJINN_PRECOMPILED_TEST)
#define TEST_IS_PRECOMPILED true
#else
#define TEST_IS_PRECOMPILED false
#endif

#include "gtest/gtest.h"

namespace djinn {

bool LibraryIsPrecompiled();

namespace {

TEST(Precompiled, HeadersAreUsedInTheOrdinaryBuild) {
#if defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || \
    defined(__SANITIZE_THREAD__) || defined(__clang__)
  GTEST_SKIP() << "This is another configuration.";
#endif
  EXPECT_TRUE(TEST_IS_PRECOMPILED)
      << "compare .bazelrc with make_precompiled in setup.sh";
  EXPECT_TRUE(LibraryIsPrecompiled())
      << "compare .bazelrc with make_precompiled in setup.sh";
}

}  // namespace
}  // namespace djinn
