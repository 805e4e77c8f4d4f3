#include "common/io/fresh_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 256 << 10;

TEST(FreshMemoryTest, KeepsWhatIsThere) {
  std::string bytes(kBytes, 'x');
  PopulateForWrite(bytes.data() + 1, bytes.size() - 2);
  EXPECT_EQ(bytes, std::string(kBytes, 'x'));
}

TEST(FreshMemoryTest, PagesComeAtOnce) {
  void* const memory = mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  char* const begin = static_cast<char*>(memory);
  // The range begins and ends within a page.
  PopulateForWrite(begin + 100, kBytes);
  std::vector<unsigned char> present(2 * kBytes / kPage);
  ASSERT_EQ(mincore(memory, 2 * kBytes, present.data()), 0);
  if ((present[0] & 1) == 0) GTEST_SKIP() << "this kernel cannot do it";
  EXPECT_EQ(present[kBytes / kPage] & 1, 1);
  EXPECT_EQ(present[kBytes / kPage + 1] & 1, 0);
  munmap(memory, 2 * kBytes);
}

TEST(FreshMemoryTest, MemoryThatCannotBeWrittenIsLeftAlone) {
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  PopulateForWrite(memory, kBytes);
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace djinn
