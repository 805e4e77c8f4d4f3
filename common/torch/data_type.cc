#include "common/torch/data_type.h"

#include <cstdint>
#include <utility>

namespace djinn {

std::optional<srg::DataType> DataTypeFromTorch(c10::ScalarType type) {
  const int number = static_cast<int>(type) + 1;
  if (!std::in_range<uint8_t>(number)) return std::nullopt;
  const auto data_type = static_cast<srg::DataType>(number);
  if (srg::ElementSize(data_type) == 0) return std::nullopt;
  return data_type;
}

std::optional<c10::ScalarType> DataTypeToTorch(srg::DataType type) {
  if (srg::ElementSize(type) == 0) return std::nullopt;
  return static_cast<c10::ScalarType>(static_cast<int>(type) - 1);
}

}  // namespace djinn
