// Which written operands an operator covers wholly without reading them, so
// that what they held before, poison included, does not matter.
#ifndef COMMON_TORCH_OVERWRITE_TABLE_H_
#define COMMON_TORCH_OVERWRITE_TABLE_H_

#include <cstddef>

#include "ATen/core/function_schema.h"

namespace djinn {

// Whether the operator writes every element of argument number `argument` (a
// tensor or a list of them) without reading it. It holds for the operand's
// view; whether the view covers its storage, and whether the same storage is
// read through another operand, is the caller's to check.
bool Overwrites(const c10::FunctionSchema& schema, size_t argument);

}  // namespace djinn

#endif  // COMMON_TORCH_OVERWRITE_TABLE_H_
