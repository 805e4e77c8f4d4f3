// What the results of an operator look like, from what its arguments look like:
// a table for the operators that PyTorch's own shape functions do not cover.
//
// A rule gives what the CPU kernel gives: data type, sizes and strides. It
// reads only metadata of tensor arguments, on whatever device they are, and
// calls no operator on them.
//
// Thread-safe.
#ifndef CLIENT_LIB_SHAPE_SHAPE_RULES_H_
#define CLIENT_LIB_SHAPE_SHAPE_RULES_H_

#include <functional>
#include <string>
#include <vector>

#include "ATen/core/function_schema.h"
#include "ATen/core/ivalue.h"
#include "c10/core/ScalarType.h"
#include "c10/util/ArrayRef.h"
#include "c10/util/DimVector.h"

namespace djinn {

// A fresh, strided result: its storage offset is 0 and its storage ends with
// its last element.
struct ResultMeta {
  // False for a result that the call leaves undefined (an unwanted gradient).
  bool defined = true;
  // False where the layout depends on the worker as well: then nothing but
  // `defined` counts.
  bool known = true;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DimVector sizes;
  c10::DimVector strides;
};

// Result metadata of one call, in return order with lists flattened; returns
// that alias a written argument are left out. None, of an operator that returns
// some, where PyTorch's own function knows the call after all. Throws
// c10::Error where PyTorch would for the same arguments, as far as metadata
// tells.
//
// `arguments` are all arguments of the schema, in order, defaults included.
using ShapeRule = std::function<std::vector<ResultMeta>(
    c10::ArrayRef<c10::IValue> arguments)>;

// The rule for an operator, or nullptr if it has none; lives for ever. `name`
// is "aten::add.Tensor", or "aten::mm" for a default overload.
const ShapeRule* FindShapeRule(const std::string& name);

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_SHAPE_RULES_H_
