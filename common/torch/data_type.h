// Converts between PyTorch's element types and the graph's.
#ifndef COMMON_TORCH_DATA_TYPE_H_
#define COMMON_TORCH_DATA_TYPE_H_

#include <optional>

#include "c10/core/ScalarType.h"
#include "common/srg/graph.h"

namespace djinn {

// Return nullopt for types that the graph does not know, which are PyTorch's
// quantised ones.
std::optional<srg::DataType> DataTypeFromTorch(c10::ScalarType type);
std::optional<c10::ScalarType> DataTypeToTorch(srg::DataType type);

}  // namespace djinn

#endif  // COMMON_TORCH_DATA_TYPE_H_
