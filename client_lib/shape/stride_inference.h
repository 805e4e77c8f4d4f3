// Computes the strides that PyTorch gives to new results: contiguous, in a
// memory format, like those of another tensor, or as its elementwise iterator
// chooses them.
#ifndef CLIENT_LIB_SHAPE_STRIDE_INFERENCE_H_
#define CLIENT_LIB_SHAPE_STRIDE_INFERENCE_H_

#include <cstdint>
#include <optional>

#include "ATen/core/Tensor.h"
#include "c10/core/MemoryFormat.h"
#include "c10/core/ScalarType.h"
#include "c10/util/ArrayRef.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn {

// Returns the tensor's own metadata, whatever its strides are.
ResultMeta Describe(const at::Tensor& tensor);

ResultMeta Contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes);

// Returns metadata in a memory format, which must not be Preserve. A
// channels-last format needs sizes of its rank, as in PyTorch.
ResultMeta InFormat(c10::ScalarType dtype, c10::IntArrayRef sizes,
                    c10::MemoryFormat format);

// Returns the metadata of at::empty_like() with its default format: the same
// strides if `like` is dense, otherwise dense strides in the same order.
ResultMeta EmptyLike(c10::ScalarType dtype, const ResultMeta& like);
ResultMeta EmptyLike(c10::ScalarType dtype, const at::Tensor& like);

// Returns the result of at::Tensor::suggest_memory_format().
c10::MemoryFormat SuggestFormat(const ResultMeta& meta);

int64_t NumElements(const ResultMeta& meta);
bool IsContiguous(const ResultMeta& meta,
                  c10::MemoryFormat format = c10::MemoryFormat::Contiguous);
bool IsDense(const ResultMeta& meta);

c10::DimVector Broadcast(c10::IntArrayRef left, c10::IntArrayRef right);

// Returns the metadata of the result that at::TensorIterator allocates for an
// elementwise operator over `operands`, which are in the order in which the
// operator adds them. If `common` is given, operands of another dtype are first
// copied to that dtype, as on a CPU.
ResultMeta Elementwise(c10::ScalarType dtype,
                       c10::ArrayRef<ResultMeta> operands,
                       std::optional<c10::ScalarType> common = std::nullopt);

// Inserts or removes a dimension of size 1 at `dim`, as unsqueeze() and
// squeeze() do.
ResultMeta Unsqueeze(ResultMeta meta, int64_t dim);
ResultMeta Squeeze(ResultMeta meta, int64_t dim);
ResultMeta Transpose(ResultMeta meta, int64_t first, int64_t second);

// Returns batches of matrices (at least two dimensions) that are stored column
// by column, as LAPACK writes them.
ResultMeta ColumnMajor(c10::ScalarType dtype, c10::IntArrayRef sizes);

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_STRIDE_INFERENCE_H_
