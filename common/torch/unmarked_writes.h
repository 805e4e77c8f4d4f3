// Arguments that an operator's kernels write although its schema does not mark
// them as written: whoever orders calls by what they write must know of them.
#ifndef COMMON_TORCH_UNMARKED_WRITES_H_
#define COMMON_TORCH_UNMARKED_WRITES_H_

#include <cstddef>
#include <optional>

#include "ATen/core/function_schema.h"

namespace djinn {

struct UnmarkedWrite {
  // Position of the boolean argument that must be true for the write to happen;
  // unset: it always does.
  std::optional<size_t> flag;
};

// None when argument number `argument` is marked as written, or only read.
std::optional<UnmarkedWrite> FindUnmarkedWrite(
    const c10::FunctionSchema& schema, size_t argument);

}  // namespace djinn

#endif  // COMMON_TORCH_UNMARKED_WRITES_H_
