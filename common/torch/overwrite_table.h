// Decides which written operands an operator overwrites wholly without reading
// them, so that their earlier contents, poison included, do not matter.
#ifndef COMMON_TORCH_OVERWRITE_TABLE_H_
#define COMMON_TORCH_OVERWRITE_TABLE_H_

#include <cstddef>

#include "ATen/core/function_schema.h"

namespace djinn {

// Returns whether the operator writes every element of argument number
// `argument` (a tensor or a list of them) without reading it. This is true of
// the operand's view only: the caller must check whether the view covers its
// storage, and whether another operand reads the same storage.
bool Overwrites(const c10::FunctionSchema& schema, size_t argument);

}  // namespace djinn

#endif  // COMMON_TORCH_OVERWRITE_TABLE_H_
