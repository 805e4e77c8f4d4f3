#include "common/io/fresh_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace djinn {
namespace {

constexpr size_t kWorthwhile = 64 << 10;
// MADV_POPULATE_WRITE of Linux 5.14. Older kernels refuse it.
constexpr int kPopulateWrite = 23;

}  // namespace

void PopulateForWrite(void* begin, size_t bytes) {
  if (bytes < kWorthwhile) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t from = address / page * page;
  const uintptr_t to = (address + bytes + page - 1) / page * page;
  // A failure does not matter: the following writes have the same effect.
  (void)madvise(reinterpret_cast<void*>(from), to - from, kPopulateWrite);
}

}  // namespace djinn
