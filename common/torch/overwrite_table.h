// Decides which written operands an operator overwrites wholly without reading
// them, so that their earlier contents, poison included, do not matter.
#ifndef COMMON_TORCH_OVERWRITE_TABLE_H_
#define COMMON_TORCH_OVERWRITE_TABLE_H_

#include <cstddef>
#include <optional>

#include "ATen/core/function_schema.h"

namespace djinn {

// Returns whether the operator writes every element of argument number
// `argument` (a tensor or a list of them) without reading it. This is true of
// the operand's view only: the caller must check whether the view covers its
// storage, and whether another operand reads the same storage.
bool Overwrites(const c10::FunctionSchema& schema, size_t argument);

// Lists arguments that an operator's kernels write although its schema does not
// mark them as written. Code that orders calls by their writes must know them.
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

#endif  // COMMON_TORCH_OVERWRITE_TABLE_H_
