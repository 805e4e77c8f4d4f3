// Names an operator's schema. Client and worker compare the names, so that they
// may run different versions of PyTorch.
#ifndef COMMON_TORCH_SCHEMA_HASH_H_
#define COMMON_TORCH_SCHEMA_HASH_H_

#include <cstdint>

#include "ATen/core/function_schema.h"

namespace djinn {

// Returns the XXH3-64 of the qualified name, the overload, and every argument's
// and return's name, real type, list length, alias marks and keyword-only flag.
// Defaults are left out, because a graph carries every argument. The hash is
// the same on every machine. It takes microseconds, so callers keep it.
uint64_t SchemaHash(const c10::FunctionSchema& schema);

}  // namespace djinn

#endif  // COMMON_TORCH_SCHEMA_HASH_H_
