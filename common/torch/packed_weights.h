// Takes packed weights apart and packs them again. A packed weight is an object
// that PyTorch makes for one kernel, such as LinearPackedParamsBase of a
// dynamically quantised layer. It stays in its process, and crosses to a worker
// as its parts: plain tensors, with a list of integers that says how they
// belong together. The object that is packed again computes the same bits, on
// the same kind of CPU.
//
// Linear layers, convolutions and recurrent cells are known, with weights of
// qint8 that are quantised per tensor or per output channel. Those of linear
// layers and cells may also be float16.
//
// All functions are thread-safe.
#ifndef COMMON_TORCH_PACKED_WEIGHTS_H_
#define COMMON_TORCH_PACKED_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"

namespace djinn {

// Returns whether values of the type are objects, or lists of objects.
bool IsPackedType(const c10::Type& type);

// The parts of an object, or of a list of objects.
struct PackedParts {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> layout;
  // The biases among the tensors. The program may hold and write them, too.
  std::vector<at::Tensor> shared;
};

// Takes the value of an argument apart. The tensors may share memory with the
// objects. Throws c10::NotImplementedError for an object of another kind, and
// for one that was packed for another engine than workers pack for.
PackedParts TakeApart(const c10::IValue& value);

// Returns the object, or the list of objects, of an argument of `type`, made
// from copies of the parts. Throws c10::Error if the parts do not belong
// together; it checks whatever PyTorch's kernels trust.
c10::IValue PackAgain(const c10::Type& type, at::TensorList tensors,
                      c10::IntArrayRef layout);

}  // namespace djinn

#endif  // COMMON_TORCH_PACKED_WEIGHTS_H_
