// A name for an operator's schema that client and worker compare, so that they
// may run different versions of PyTorch.
#ifndef COMMON_TORCH_SCHEMA_HASH_H_
#define COMMON_TORCH_SCHEMA_HASH_H_

#include <cstdint>

#include "ATen/core/function_schema.h"

namespace djinn {

// XXH3-64 of the qualified name, the overload, and every argument's and
// return's name, real type, list length, alias marks and keyword-only flag.
// Defaults are left out, because a graph carries every argument. The same
// on every machine. Takes microseconds: keep the value.
uint64_t SchemaHash(const c10::FunctionSchema& schema);

}  // namespace djinn

#endif  // COMMON_TORCH_SCHEMA_HASH_H_
