// A table of shape rules, for the operators that PyTorch's own shape functions
// do not cover. A rule computes the metadata of an operator's results from the
// metadata of its arguments.
//
// A rule returns what the CPU kernel returns: dtype, sizes and strides. It
// reads only the metadata of tensor arguments, on whatever device they are, and
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

// The metadata of a new, strided result. Its storage offset is 0, and its
// storage ends with its last element.
struct ResultMeta {
  // False if the call leaves the result undefined, as it does a gradient that
  // was not asked for.
  bool defined = true;
  // False if the layout depends on the worker. Only `defined` is valid then.
  bool known = true;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DimVector sizes;
  c10::DimVector strides;
};

// Returns the metadata of the results of one call, in return order with lists
// flattened, without returns that alias a written argument. The list is empty,
// although the operator has results, if PyTorch's own function can infer this
// call. Throws c10::Error if the metadata show that PyTorch would throw for
// these arguments.
//
// `arguments` are all arguments of the schema, in order, with defaults.
using ShapeRule = std::function<std::vector<ResultMeta>(
    c10::ArrayRef<c10::IValue> arguments)>;

// Returns the rule for an operator, or null if it has none. The rule lives for
// the rest of the process. `name` is the qualified name, followed by the
// overload's name if that is not empty: "aten::mm", "aten::add.Tensor".
const ShapeRule* FindShapeRule(const std::string& name);

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_SHAPE_RULES_H_
