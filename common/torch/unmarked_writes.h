// Lists arguments that an operator's kernels write although its schema does not
// mark them as written. Code that orders calls by their writes must know them.
#ifndef COMMON_TORCH_UNMARKED_WRITES_H_
#define COMMON_TORCH_UNMARKED_WRITES_H_

#include <cstddef>
#include <optional>

#include "ATen/core/function_schema.h"

namespace djinn {

struct UnmarkedWrite {
  // Position of the boolean argument that must be true for the write to happen.
  // Unset: it always happens.
  std::optional<size_t> flag;
};

// Returns nullopt when argument number `argument` is marked as written, or only
// read.
std::optional<UnmarkedWrite> FindUnmarkedWrite(
    const c10::FunctionSchema& schema, size_t argument);

}  // namespace djinn

#endif  // COMMON_TORCH_UNMARKED_WRITES_H_
