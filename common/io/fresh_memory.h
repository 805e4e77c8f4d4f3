// Writing to memory for the first time.
#ifndef COMMON_IO_FRESH_MEMORY_H_
#define COMMON_IO_FRESH_MEMORY_H_

#include <cstddef>

namespace djinn {

// Before `bytes` at `begin` are all written: has the kernel give them their
// pages in one call, where each page would cost a fault of its own, which takes
// longer than copying the page's bytes. Best for some hundred KiB at a time,
// which are then still in the processor's cache; below 64 KiB it does nothing.
// Without effect on memory that has its pages, but for some microseconds, and
// on what is written.
void PopulateForWrite(void* begin, size_t bytes);

}  // namespace djinn

#endif  // COMMON_IO_FRESH_MEMORY_H_
