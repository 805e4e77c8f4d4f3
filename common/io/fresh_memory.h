// Prepares memory that is written for the first time.
#ifndef COMMON_IO_FRESH_MEMORY_H_
#define COMMON_IO_FRESH_MEMORY_H_

#include <cstddef>

namespace djinn {

// Makes the kernel map the pages of `bytes` at `begin` in one call. Call it
// before all of them are written: otherwise each page costs a fault, which
// takes longer than copying the page's bytes. It is best for some hundred KiB
// at a time, which are then still in the processor's cache; below 64 KiB it
// does nothing. It does not change mapped pages, on which it costs some
// microseconds.
void PopulateForWrite(void* begin, size_t bytes);

}  // namespace djinn

#endif  // COMMON_IO_FRESH_MEMORY_H_
